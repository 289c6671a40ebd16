"""The paper's units for PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .. import _native

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
#: Rules that go by the labels of a whole batch, which a unit does not see.
_BATCH_RULES = ("class_mean", "class_agreement")
#: Rules that need the curvature of the loss, the layers above or a teacher, which it does not see either.
_FURTHER_RULES = ("secant", "verified", "teacher")


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
        if self._rule[0] in _BATCH_RULES:
            raise ValueError(f"{self.target_rule} goes by the labels of a whole batch, which a unit in PyTorch does not see")
        if self._rule[0] in _FURTHER_RULES:
            raise ValueError(f"{self.target_rule} looks at other layers or a teacher, which a unit in PyTorch does not see")
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
