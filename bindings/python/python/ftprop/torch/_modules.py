"""Networks from here to PyTorch and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import _native
from .._arrays import names_of
from .._errors import ModelError
from .._run import Run, Which
from ._units import HardThreshold


class Normalize(nn.Module):
    """Raw values as the network was trained on: divided by ``full``, less the mean, divided by the deviation."""

    mean: Tensor
    std: Tensor

    def __init__(self, full: float, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.full = float(full)
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    def forward(self, x: Tensor) -> Tensor:
        """Normalised values."""
        shape = (1, -1, *[1] * (x.dim() - 2))
        values: Tensor = (x.to(self.mean.dtype) / self.full - self.mean.view(shape)) / self.std.view(shape)
        return values


class Residual(nn.Module):
    """The sum of a main path and a shortcut, which is the input itself if it has no layers."""

    def __init__(self, main: nn.Sequential, shortcut: nn.Sequential) -> None:
        super().__init__()
        self.main = main
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        total: Tensor = self.main(x) + self.shortcut(x)
        return total


class Affine(nn.Module):
    """A learned summand for each channel and, with ``scale``, a learned factor that starts there."""

    weight: Tensor | None

    def __init__(self, channels: int, scale: float | None = None) -> None:
        super().__init__()
        self.weight = None if scale is None else nn.Parameter(torch.full((channels,), float(scale)))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Each channel times its factor, and its summand."""
        shape = (1, -1, *[1] * (x.dim() - 2))
        if self.weight is not None:
            x = x * self.weight.view(shape)
        return x + self.bias.view(shape)


def _put(parameter: Tensor | None, values: Any) -> None:
    if parameter is not None:
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))


def _layer(layer: dict[str, Any], seed: int) -> nn.Module:
    kind = layer["kind"]
    made: nn.Module
    if kind in ("conv", "fc"):
        weight, bias = layer["weight"], layer["bias"]
        if kind == "fc":
            made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        else:
            groups = layer["groups"]
            made = nn.Conv2d(
                weight.shape[1] * groups,
                weight.shape[0],
                layer["kernel"],
                layer["stride"],
                layer["pad"],
                groups=groups,
                bias=bias is not None,
            )
        _put(made.weight, weight)
        _put(made.bias, bias)
    elif kind == "batch_norm":
        _, height, width = layer["output"]
        of = nn.BatchNorm1d if height * width == 1 and layer["flat"] else nn.BatchNorm2d
        made = of(len(layer["weight"]), eps=layer["eps"], momentum=layer["momentum"])
        _put(made.weight, layer["weight"])
        _put(made.bias, layer["bias"])
        _put(made.running_mean, layer["mean"])
        _put(made.running_var, layer["variance"])
    elif kind == "affine":
        made = Affine(len(layer["bias"]), None if layer["weight"] is None else 1.0)
        _put(made.weight, layer["weight"])
        _put(made.bias, layer["bias"])
    elif kind == "max_pool":
        made = nn.MaxPool2d(layer["kernel"], layer["stride"], layer["pad"])
    elif kind == "avg_pool":
        made = nn.AvgPool2d(layer["kernel"], layer["stride"], layer["pad"])
    elif kind == "dropout":
        made = nn.Dropout(layer["p"])
    elif kind == "channel_dropout":
        made = nn.Dropout2d(layer["p"])
    elif "layer_loss" not in layer:
        made = HardThreshold(layer["activation"])
    else:
        unit = {name: layer[name] for name in ("activation", "layer_loss", "target_rule", "qrelu_form")}
        made = HardThreshold(**unit, weighted=layer["weighted"], seed=seed, layer=layer["layer"])
    return made


def _sequence(layers: list[dict[str, Any]], flat: bool, seed: int) -> tuple[nn.Sequential, bool]:
    modules: list[nn.Module] = []
    for layer in layers:
        if layer["kind"] == "residual":
            main, after = _sequence(layer["main"], flat, seed)
            shortcut, _ = _sequence(layer["shortcut"], flat, seed)
            modules.append(Residual(main, shortcut))
            flat = after
            continue
        if layer["kind"] == "fc" and not flat:
            modules.append(nn.Flatten())
            flat = True
        modules.append(_layer({**layer, "flat": flat}, seed))
    return nn.Sequential(*modules), flat


def to_module(run: Run, *, which: Which = "best", normalize: bool = True) -> nn.Sequential:
    """A run's network as a module of PyTorch, with its numbers, ready to go on training.

    It takes pictures with the channels first (N×C×H×W), or rows of a table, as raw values unless ``normalize`` is
    false.

    >>> import ftprop, numpy as np, torch
    >>> from ftprop.torch import to_module
    >>> run = ftprop.train("digits", settings={"train.epochs": 1}, device="cpu")
    >>> module = to_module(run).eval()
    >>> X = np.random.default_rng(0).integers(0, 17, (5, 8, 8, 1), dtype=np.uint8)
    >>> with torch.no_grad():
    ...     theirs = module(torch.from_numpy(X.transpose(0, 3, 1, 2).copy())).numpy()
    >>> bool(np.abs(theirs - run.logits(X)).max() < 1e-4)
    True
    """
    layers = _native.layers(run._native, which)
    height, width, _ = run.input_shape
    network, _ = _sequence(layers, height * width == 1, run._native.seed)
    return nn.Sequential(Normalize(*run._native.normalize), *network) if normalize else network


class _Reader:
    """Reads a module down into a recipe's layers and the numbers in their order."""

    def __init__(self) -> None:
        self.parameters: list[Any] = []
        self.statistics: list[Any] = []
        self.normalize: Normalize | None = None
        self.weighted: bool | None = None

    def refuse(self, name: str, module: nn.Module, why: str) -> ModelError:
        return ModelError(f"layer {name} ({type(module).__name__}): {why}")

    def numbers(self, tensor: Tensor) -> Any:
        return tensor.detach().cpu().to(torch.float32).contiguous().numpy().reshape(-1)

    def take(self, *tensors: Tensor | None) -> None:
        self.parameters += [self.numbers(tensor) for tensor in tensors if tensor is not None]

    def one(self, name: str, module: nn.Module, what: str, value: Any) -> int:
        first, second = (value, value) if isinstance(value, int) else value
        if first != second or isinstance(value, str):
            raise self.refuse(name, module, f"{what} must be the same in both directions")
        return int(first)

    def layers(self, module: nn.Module, name: str, first: bool = False) -> Iterator[dict[str, Any]]:
        if isinstance(module, nn.Sequential):
            for i, (part, inner) in enumerate(module.named_children()):
                yield from self.layers(inner, f"{name}.{part}" if name else part, first and i == 0)
        elif isinstance(module, Normalize):
            if not first:
                raise self.refuse(name, module, "normalising must come first")
            self.normalize = module
        elif isinstance(module, (nn.Identity, nn.Flatten)):
            if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) != (1, -1):
                raise self.refuse(name, module, "only nn.Flatten() as it is by default can be taken over")
        elif isinstance(module, Residual):
            main = list(self.layers(module.main, f"{name}.main"))
            yield {"kind": "residual", "main": main, "shortcut": list(self.layers(module.shortcut, f"{name}.shortcut"))}
        else:
            yield self.layer(module, name)

    def layer(self, module: nn.Module, name: str) -> dict[str, Any]:
        if isinstance(module, nn.Conv2d):
            if self.one(name, module, "dilation", module.dilation) != 1 or module.padding_mode != "zeros":
                raise self.refuse(name, module, "only convolutions without dilation, padded with zeros, can be taken over")
            if isinstance(module.padding, str):
                raise self.refuse(name, module, "padding must be a number")
            self.take(module.weight, module.bias)
            return {
                "kind": "conv",
                "out": module.out_channels,
                "kernel": [int(side) for side in module.kernel_size],
                "stride": self.one(name, module, "stride", module.stride),
                "pad": self.one(name, module, "padding", module.padding),
                "groups": module.groups,
                "bias": module.bias is not None,
            }
        if isinstance(module, nn.Linear):
            self.take(module.weight, module.bias)
            return {"kind": "fc", "out": module.out_features, "bias": module.bias is not None}
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            if not module.affine or module.running_mean is None or module.momentum is None:
                raise self.refuse(name, module, "only norms with weights, running statistics and a momentum can be taken over")
            self.take(module.weight, module.bias)
            assert module.running_var is not None
            self.statistics += [self.numbers(module.running_mean), self.numbers(module.running_var)]
            return {"kind": "batch_norm", "eps": module.eps, "momentum": module.momentum}
        if isinstance(module, Affine):
            self.take(module.weight, module.bias)
            return {"kind": "affine"} if module.weight is None else {"kind": "affine", "scale": 1.0}
        return self.plain(module, name)

    def plain(self, module: nn.Module, name: str) -> dict[str, Any]:
        """Layers without numbers."""
        if isinstance(module, (nn.MaxPool2d, nn.AvgPool2d)):
            dilated = isinstance(module, nn.MaxPool2d) and module.dilation not in (1, (1, 1))
            uncounted = isinstance(module, nn.AvgPool2d) and not module.count_include_pad and module.padding != 0
            if dilated or uncounted or module.ceil_mode:
                raise self.refuse(name, module, "only poolings as they are by default can be taken over")
            return {
                "kind": "max_pool" if isinstance(module, nn.MaxPool2d) else "avg_pool",
                "kernel": self.one(name, module, "kernel_size", module.kernel_size),
                "stride": self.one(name, module, "stride", module.stride),
                "pad": self.one(name, module, "padding", module.padding),
            }
        if isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size in (1, (1, 1)):
            return {"kind": "avg_pool"}
        if isinstance(module, nn.Dropout2d):
            return {"kind": "channel_dropout", "p": module.p}
        if isinstance(module, nn.Dropout):
            return {"kind": "dropout", "p": module.p}
        if isinstance(module, nn.ReLU):
            return {"kind": "act", "activation": "relu"}
        if isinstance(module, nn.Hardtanh) and (module.min_val, module.max_val) == (0.0, 1.0):
            return {"kind": "act", "activation": "saturated_relu"}
        if isinstance(module, HardThreshold):
            unit = {"kind": "act", "activation": module.activation}
            if module._kind in ("relu", "saturated_relu"):
                return unit
            if self.weighted not in (None, module.weighted):
                raise self.refuse(name, module, "either all hard units are weighted or none")
            self.weighted = module.weighted
            names = ("layer_loss", "target_rule", "qrelu_form")
            return {**unit, **{key: getattr(module, key) for key in names}}
        raise self.refuse(
            name,
            module,
            "there is no such layer here; known are Sequential, Conv2d, Linear, BatchNorm1d and 2d, MaxPool2d, AvgPool2d, "
            "Dropout and 2d, ReLU, Hardtanh(0, 1), Flatten, Identity, HardThreshold, Residual, Affine and Normalize",
        )


def from_module(
    module: nn.Module,
    input_shape: tuple[int, ...],
    *,
    classes: Any = None,
    name: str = "module",
) -> Run:
    """A module's network as a run, for predictions, packing and export. ``input_shape`` is that of one example, with the
    channels first; without ``classes`` they are numbered.

    A :class:`Normalize` in front, as :func:`to_module` puts there, is taken over; without one raw values count as they
    are. A layer that only PyTorch knows raises :class:`ftprop.ModelError`, which names it.

    >>> import ftprop, torch
    >>> from torch import nn
    >>> from ftprop.torch import HardThreshold, from_module
    >>> net = nn.Sequential(nn.Linear(4, 8), HardThreshold("sign"), nn.Linear(8, 3))
    >>> from_module(net, (4,)).predict(torch.randn(5, 4).numpy()).shape
    (5,)
    >>> from_module(nn.Sequential(nn.Linear(4, 8), nn.GELU()), (4,))
    Traceback (most recent call last):
    ftprop.ModelError: layer 1 (GELU): there is no such layer here; known are Sequential, ...
    """
    if len(input_shape) not in (1, 3) or any(side < 1 for side in input_shape):
        raise ValueError(f"input_shape: expected (features,) or (channels, height, width), found {input_shape}")
    channels, height, width = (int(side) for side in (*input_shape, 1, 1)[:3])
    reader = _Reader()
    layers = list(reader.layers(module, "", first=True))
    with torch.no_grad():
        # The module says itself how many outputs it has.
        was_training, kind = module.training, next((p.dtype for p in module.parameters()), torch.float32)
        device = next((p.device for p in module.parameters()), torch.device("cpu"))
        outputs = module.eval()(torch.zeros((1, *input_shape), dtype=kind, device=device)).shape
        module.train(was_training)
    if len(outputs) != 2:
        raise ModelError(f"the module gives numbers of shape {tuple(outputs[1:])} for an example; classes are one row")
    known = np.arange(outputs[1]) if classes is None else np.asarray(classes)
    if len(known) != outputs[1]:
        raise ValueError(f"classes: expected {outputs[1]}, as many as the module has outputs, found {len(known)}")
    normalize = (1.0, [0.0] * channels, [1.0] * channels)
    if reader.normalize is not None:
        front = reader.normalize
        normalize = (front.full, front.mean.tolist(), front.std.tolist())
    recipe = {
        "name": name,
        "network": {"layers": layers},
        "weighted": True if reader.weighted is None else reader.weighted,
        "data": {"source": "arrays"},
    }
    native = _native.assemble(
        recipe, (height, width, channels), names_of(known), normalize, reader.parameters, reader.statistics
    )
    return Run(native, known)
