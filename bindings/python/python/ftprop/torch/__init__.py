"""The paper's units for PyTorch (extra ``torch``), and networks from here to there and back."""

from ._modules import Affine, Normalize, Residual, from_module, to_module
from ._units import HardThreshold, set_progress

__all__ = ["Affine", "HardThreshold", "Normalize", "Residual", "from_module", "set_progress", "to_module"]
