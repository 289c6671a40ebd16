"""The paper's units for PyTorch (extra ``torch``), and networks from here to there and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from . import _native
from ._arrays import names_of
from ._errors import ModelError
from ._run import Run, Which

__all__ = ["HardThreshold", "Normalize", "Residual", "from_module", "set_progress", "to_module"]

#: The number that a family of losses or rules has where its name says none.
_USUAL = {"saturated_hinge": -1.0, "soft_hinge": 1.0, "sigmoid": 2.0, "random_subset": 0.5}
_LOSSES = (
    "linear",
    "perceptron",
    "hinge",
    "saturated_hinge",
    "soft_hinge",
    "squared_hinge",
    "saturated_squared_hinge",
    "log",
    "sigmoid",
    "ramp",
    "approx_sign",
    "annealed_tanh",
)
_RULES = ("gradient_sign", "random_subset")


def _indicator(truth: Tensor, like: Tensor) -> Tensor:
    return truth.to(like.dtype)


def _sech_squared(x: Tensor) -> Tensor:
    """1 − tanh²(x), which keeps its digits far from zero."""
    e = torch.exp(-2.0 * x.abs())
    return 4.0 * e / ((1.0 + e) * (1.0 + e))


def _phi(loss: str, a: float, m: Tensor, tau: Tensor) -> Tensor:
    """φ(m) = −ℓ′(m) of the layer loss with number ``a``; ``tau`` is what progress decides."""
    if loss == "linear":
        return torch.ones_like(m)
    if loss == "perceptron":
        return _indicator(m <= 0.0, m)
    if loss == "hinge":
        return _indicator(m <= 1.0, m)
    if loss == "saturated_hinge":
        return _indicator((a <= m) & (m <= 1.0), m)
    if loss == "soft_hinge":
        return a * _sech_squared(a * m)
    if loss == "squared_hinge":
        return (1.0 - m).clamp(min=0.0)
    if loss == "saturated_squared_hinge":
        return _indicator(m.abs() <= 1.0, m) * (1.0 - m)
    if loss == "log":
        return torch.sigmoid(-m)
    if loss == "sigmoid":
        return 0.25 * a * _sech_squared(0.5 * a * m)
    if loss == "ramp":
        return (2.0 - m.abs()).clamp(0.0, 1.0)
    if loss == "approx_sign":
        return 2.0 * (1.0 - m.abs()).clamp(min=0.0)
    scale = tau.clamp(min=1.0)
    return scale * _sech_squared(tau * m)


def _value(activation: str, k: int, z: Tensor) -> Tensor:
    if activation == "sign":
        return torch.where(z > 0.0, 1.0, -1.0).to(z.dtype)
    if activation == "step":
        return _indicator(z > 0.0, z)
    return (z * (k - 1)).ceil().clamp(0.0, float(k)) / k


# SplitMix64 over signed numbers, whose products wrap around as unsigned ones do.
def _signed(number: int) -> int:
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def _mix_number(x: int) -> int:
    mask = (1 << 64) - 1
    z = (x + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    z = x + _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


#: What the stream of random numbers for targets is called by its number.
_TARGETS = 7


def _stream_of(seed: int) -> int:
    """Where the random numbers of a seed's targets begin."""
    return _signed(_mix_number(_mix_number(seed) + _TARGETS))


def _uniform(like: Tensor, start: int, step: Tensor, layer: int) -> Tensor:
    """The random number of each unit: a function of seed, step, layer and place, the same as in Rust."""
    key = _mix(_mix(_mix(step + start) + layer))
    places = torch.arange(like.numel(), device=like.device)
    if like.dim() > 2:
        # There the channels come last.
        batch, channels, *rest = like.shape
        places = places.view(batch, *rest, channels).movedim(-1, 1)
    else:
        places = places.view(like.shape)
    return _shifted(_mix(places + key), 40).to(like.dtype) / float(1 << 24)


class _Hard(torch.autograd.Function):
    """h = g(z); backwards the slope of the layer loss at the target that ∂L/∂h gives."""

    @staticmethod
    def forward(  # type: ignore[override]
        z: Tensor,
        tau: Tensor,
        step: Tensor,
        activation: str,
        k: int,
        loss: str,
        a: float,
        rule: str,
        p: float,
        per_step: bool,
        weighted: bool,
        start: int,
        layer: int,
    ) -> Tensor:
        return _value(activation, k, z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, tau, step, *settings = inputs
        ctx.save_for_backward(z, tau, step)
        ctx.settings = tuple(settings)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        z, tau, step = ctx.saved_tensors
        activation, k, loss, a, rule, p, per_step, weighted, start, layer = ctx.settings
        t = _indicator(g < 0.0, z) - _indicator(g > 0.0, z)
        if rule == "random_subset":
            t = t * _indicator(_uniform(z, start, step, layer) < p, z)
        if activation != "qrelu":
            phi = _phi(loss, a, t * z, tau)
            if activation == "step":
                # The linear image of sign, so half its slope.
                phi = 0.5 * phi
        elif per_step:
            phi = torch.zeros_like(z)
            for i in range(k):
                # The place of a step, rounded as a tensor of this kind is.
                place = torch.full((), float(i), dtype=z.dtype, device=z.device) / (k - 1)
                phi = phi + _phi(loss, a, t * (z - place), tau)
            phi = phi / k
        else:
            m = 2.0 * z - 1.0
            # A tiny negative z would round to −1, the edge of the saturated losses, from outside.
            beyond = -1.0 - torch.finfo(z.dtype).eps
            m = torch.where(z < 0.0, m.clamp(max=beyond), m)
            phi = _phi(loss, a, t * m, tau)
        weight = g.abs() if weighted else 1.0 / z.shape[0]
        return (-t * (phi * weight), *([None] * 12))


def _family(name: str) -> tuple[str, float]:
    family, _, number = name.partition(":")
    return family, float(number) if number else _USUAL.get(family, 0.0)


class HardThreshold(nn.Module):
    """Hard-threshold units that learn by targets: forwards the activation, backwards the slope of the layer loss at the
    target that the gradient from above gives.

    The names are those of a recipe: ``activation`` is ``sign``, ``step``, ``qrelu:k``, ``relu`` or ``saturated_relu``;
    ``layer_loss`` any of the layer losses, such as ``soft_hinge`` or ``saturated_hinge:-0.5``; ``target_rule``
    ``gradient_sign`` or ``random_subset:p``; ``qrelu_form`` ``single`` or ``per_step``. Unless ``weighted``, every
    unit with a target has the same weight, one over the batch's size.

    The loss ``annealed_tanh`` changes with training's progress: see :func:`set_progress`. The rule ``random_subset``
    counts the forward passes in training mode, and its random numbers are those of ``seed``, that count and ``layer``.

    >>> import torch
    >>> from ftprop.torch import HardThreshold
    >>> z = torch.tensor([-2.0, -0.5, 0.5, 2.0], requires_grad=True)
    >>> h = HardThreshold("sign", layer_loss="saturated_hinge")(z)
    >>> h.tolist()
    [-1.0, -1.0, 1.0, 1.0]
    >>> h.sum().backward()
    >>> z.grad.tolist()
    [0.0, 1.0, 1.0, 0.0]
    """

    progress: Tensor
    step: Tensor

    def __init__(
        self,
        activation: str = "sign",
        layer_loss: str = "soft_hinge",
        target_rule: str = "gradient_sign",
        *,
        qrelu_form: str = "single",
        weighted: bool = True,
        seed: int = 0,
        layer: int = 0,
    ) -> None:
        super().__init__()
        names = _native.known_unit(activation, layer_loss, target_rule, qrelu_form)
        self.activation, self.layer_loss, self.target_rule, self.qrelu_form = names
        self.weighted = bool(weighted)
        self.seed = int(seed)
        self.layer = int(layer)
        self._start = _stream_of(self.seed)
        self._loss = _family(self.layer_loss)
        self._rule = _family(self.target_rule)
        if self._loss[0] not in _LOSSES or self._rule[0] not in _RULES:
            raise ValueError(f"PyTorch has no formula for {self.layer_loss} with {self.target_rule}")
        kind, _, k = self.activation.partition(":")
        self._kind = kind
        self._k = int(k) if k else 2
        self.register_buffer("progress", torch.zeros(()), persistent=False)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """g(z)"""
        if self._kind == "relu":
            return torch.relu(z)
        if self._kind == "saturated_relu":
            # At its corners it still rises, whatever PyTorch's clamp does there.
            return torch.where((z >= 0.0) & (z <= 1.0), z, z.detach().clamp(0.0, 1.0))
        tau = 10.0 ** (2.0 * self.progress.clamp(0.0, 1.0) - 1.0)
        step = self.step
        if self._rule[0] == "random_subset" and self.training:
            # Not in place: backwards, what is compiled would see the buffer as it is after the step.
            self.step = step + 1
        h: Tensor = _Hard.apply(  # type: ignore[no-untyped-call]
            z,
            tau.to(z.dtype),
            step,
            self._kind,
            self._k,
            *self._loss,
            *self._rule,
            self.qrelu_form == "per_step",
            self.weighted,
            self._start,
            self.layer,
        )
        return h

    def extra_repr(self) -> str:
        if self._kind in ("relu", "saturated_relu"):
            return self.activation
        parts = [self.activation, f"layer_loss={self.layer_loss}"]
        if self._rule[0] != "gradient_sign":
            parts.append(f"target_rule={self.target_rule}")
        if self._kind == "qrelu" and self.qrelu_form != "single":
            parts.append(f"qrelu_form={self.qrelu_form}")
        if not self.weighted:
            parts.append("weighted=False")
        return ", ".join(parts)


def set_progress(module: nn.Module, progress: float) -> None:
    """Tells every hard unit in a module how much of training is done, from 0 to 1; ``annealed_tanh`` wants to know."""
    for unit in module.modules():
        if isinstance(unit, HardThreshold):
            unit.progress.fill_(progress)


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
    seed = next(
        (int(line.removeprefix("seed = ")) for line in run.recipe.splitlines() if line.startswith("seed = ")), 0
    )
    height, width, _ = run.input_shape
    network, _ = _sequence(layers, height * width == 1, seed)
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
            "Dropout and 2d, ReLU, Hardtanh(0, 1), Flatten, Identity, HardThreshold, Residual and Normalize",
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
