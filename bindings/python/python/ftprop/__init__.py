"""Deep networks with hard-threshold activations: trained by feasible target propagation, proved by search, packed for use.

>>> import ftprop
>>> run = ftprop.train("digits", settings={"train.epochs": 1}, device="cpu")

========================  =====================================================================
:func:`train`             trains a network, from a recipe and arrays or a path
:func:`load`              a packed model, a run folder or a checkpoint
:class:`Dataset`          arrays with everything that can be said about them
:func:`separable`         whether two classes are linearly separable, with proof
:func:`solve`             a small network by search, with proof
``FTPropClassifier``      a scikit-learn estimator (extra ``sklearn``)
``ftprop.torch``          the paper's units for PyTorch (extra ``torch``)
========================  =====================================================================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ._data import Dataset
from ._errors import (
    DataError,
    DeviceError,
    FileError,
    FtpropError,
    ModelError,
    RecipeError,
    SearchError,
    TrainingError,
)
from ._native import version as __version__
from ._packed import PackedModel, load
from ._run import Picture, Run
from ._train import Callback, Epoch, recipes, resume, train, untrained

if TYPE_CHECKING:
    from ._exact import Certificate, Solution, Verdict, Verification, separable, solve
    from .sklearn import FTPropClassifier

__all__ = [
    "Callback",
    "Certificate",
    "DataError",
    "Dataset",
    "DeviceError",
    "Epoch",
    "FTPropClassifier",
    "FileError",
    "FtpropError",
    "ModelError",
    "PackedModel",
    "Picture",
    "RecipeError",
    "Run",
    "SearchError",
    "Solution",
    "TrainingError",
    "Verdict",
    "Verification",
    "__version__",
    "load",
    "recipes",
    "resume",
    "separable",
    "solve",
    "train",
    "untrained",
]

# People catch ftprop.RecipeError, so that is what a traceback should call it.
for _error in (
    DataError,
    DeviceError,
    FileError,
    FtpropError,
    ModelError,
    RecipeError,
    SearchError,
    TrainingError,
):
    _error.__module__ = "ftprop"
del _error


# What takes long to import, or is an extra, waits until somebody asks for it.
_LATER = {name: "._exact" for name in ("Certificate", "Solution", "Verdict", "Verification", "separable", "solve")}
_LATER["FTPropClassifier"] = ".sklearn"


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'ftprop' has no attribute {name!r}")
    found: object = getattr(import_module(_LATER[name], __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
