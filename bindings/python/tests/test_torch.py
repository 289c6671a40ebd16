"""PyTorch's hard units against Rust's, and networks there and back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

import ftprop
from ftprop import _native
from ftprop.torch import HardThreshold, Residual, from_module, set_progress, to_module

GOLDEN = Path(__file__).parents[3] / "crates" / "ftprop-train" / "golden"
LOSSES, RULES = _native.names()
#: Rules that a unit alone cannot follow.
BATCH_RULES = ["class_mean", "class_agreement"]
FURTHER_RULES = ["secant", "verified:0.1", "teacher"]
#: Every loss, and others of the families.
ALL_LOSSES = [*LOSSES, "sigmoid:1", "sigmoid:4.5", "soft_hinge:2.5", "soft_hinge:0.3", "saturated_hinge:-0.5", "saturated_hinge:0.5"]
ACTIVATIONS = ["sign", "step", "qrelu:2", "qrelu:3", "qrelu:5", "qrelu:11"]
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 1 + 2**-23, -1 - 2**-23, -1e-30, 1e-30, 2.0, -2.0, 40.0, -40.0], np.float32)


def test_every_loss_and_rule_is_known_here() -> None:
    for loss in LOSSES:
        for rule in set(RULES) - set(BATCH_RULES) - set(FURTHER_RULES):
            HardThreshold("sign", loss, rule)
    for rule in BATCH_RULES:
        assert rule in RULES
        with pytest.raises(ValueError, match=f"{rule} goes by the labels of a whole batch"):
            HardThreshold(target_rule=rule)
    for rule in FURTHER_RULES:
        assert rule in RULES
        with pytest.raises(ValueError, match=f"{rule} looks at other layers or a teacher"):
            HardThreshold(target_rule=rule)
    with pytest.raises(ftprop.RecipeError, match="unknown layer loss"):
        HardThreshold(layer_loss="softhinge")


def compare(rng: np.random.Generator, activation: str, loss: str, rule: str, form: str, weighted: bool, shape: Any) -> float:
    """How far PyTorch's slopes are from Rust's, relative to the larger of each and 1 · |weight|."""
    seed, step, layer = (int(rng.integers(0, 2**40)) for _ in range(3))
    progress = float(rng.random())
    z = (rng.normal(size=shape) * rng.choice([0.3, 1.0, 3.0])).astype(np.float32)
    g = (rng.normal(size=shape) * 10.0 ** rng.integers(-6, 3)).astype(np.float32)
    places = rng.integers(0, z.size, 20)
    z.reshape(-1)[places] = rng.choice(SPECIAL, 20)
    g.reshape(-1)[rng.integers(0, g.size, 5)] = 0.0
    unit = HardThreshold(activation, loss, rule, qrelu_form=form, weighted=weighted, seed=seed, layer=layer)
    set_progress(unit, progress)
    unit.step.fill_(step)
    tz = torch.from_numpy(z).requires_grad_()
    h = unit(tz)
    h.backward(torch.from_numpy(g))
    # Rust has the channels last.
    last = (lambda a: np.ascontiguousarray(np.moveaxis(a, 1, -1))) if len(shape) > 2 else np.ascontiguousarray
    ours, values = last(g).copy(), last(z).copy()
    _native.values(activation, values)
    np.testing.assert_array_equal(last(h.detach().numpy()), values)
    progress32 = float(np.float32(progress))
    _native.slopes(activation, loss, rule, form, weighted, ours, last(z), shape[0], progress32, seed, step, layer)
    theirs = last(tz.grad.numpy())
    weight = np.abs(last(g)) if weighted else 1 / shape[0]
    scale = np.maximum(np.abs(ours), weight) + 1e-30
    return float((np.abs(theirs - ours) / scale).max())


def test_three_hundred_random_settings_equal_rust() -> None:
    rng = np.random.default_rng(2018)
    rules = ["gradient_sign", "random_subset:0.5", "random_subset:0.1"]
    worst = ("", 0.0)
    for number in range(300):
        # The first ones go through every loss with every activation at least once.
        loss = ALL_LOSSES[number % len(ALL_LOSSES)]
        activation = ACTIVATIONS[number // len(ALL_LOSSES) % len(ACTIVATIONS)]
        setting = (activation, loss, str(rng.choice(rules)), str(rng.choice(["single", "per_step"])), bool(rng.integers(2)))
        shape = [(7, 33), (4, 5, 3, 6), (3, 4, 10)][number % 3]
        error = compare(rng, *setting, shape)
        worst = max(worst, (str(setting), error), key=lambda w: w[1])
    print(f"largest relative difference {worst[1]:.2e} with {worst[0]}")
    assert worst[1] <= 1e-6, worst


def test_soft_activations_are_pytorchs() -> None:
    z = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0], requires_grad=True)
    HardThreshold("saturated_relu")(z).sum().backward()
    assert z.grad.tolist() == [0, 1, 1, 1, 0]


def test_collapses_to_the_straight_through_estimator() -> None:
    z, g = torch.randn(1000), torch.randn(1000)
    z.requires_grad_()
    HardThreshold("sign", "saturated_hinge")(z).backward(g)
    assert torch.equal(z.grad, torch.where(z.detach().abs() <= 1, g, torch.zeros(())))


@pytest.mark.parametrize(
    "settings",
    [
        {"activation": "sign"},
        {"activation": "qrelu:3", "qrelu_form": "per_step", "layer_loss": "log"},
        {"activation": "step", "layer_loss": "annealed_tanh", "target_rule": "random_subset:0.5", "weighted": False},
    ],
)
def test_it_compiles(settings) -> None:
    torch.manual_seed(0)

    def made() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 16), HardThreshold(**settings), nn.Linear(16, 3))

    eager, inner = made(), made()
    compiled = torch.compile(inner, fullgraph=True, backend="aot_eager")
    x = torch.randn(8, 6)
    for _ in range(3):
        grads = []
        for net, params in ((eager, eager), (compiled, inner)):
            params.zero_grad()
            nn.functional.cross_entropy(net(x), torch.arange(8) % 3).backward()
            grads.append([p.grad.clone() for p in params.parameters()])
        for one, other in zip(*grads):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def mix(x: Any) -> Any:
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def numbers(stream: int, count: int) -> Any:
    """The golden cases' numbers, see their README."""
    with np.errstate(over="ignore"):
        base = mix(np.array([stream], np.uint64))
        return (mix(base + np.arange(count, dtype=np.uint64)) >> np.uint64(40)).astype(np.float64) / 2.0**24


def network(case: dict[str, Any]) -> tuple[nn.Module, tuple[int, ...], int]:
    """A golden case's network."""
    activation = case["activation"]
    if activation.startswith("qrelu"):
        activation = f"qrelu:{activation.removeprefix('qrelu')}"
    shape, classes = {"mlp": ((1, 1, 20), 5), "alexnet": ((224, 224, 3), 1000), "resnet18": ((224, 224, 3), 1000)}.get(
        case["net"], ((32, 32, 3), 10)
    )
    net = {"preset": case["net"], **({"widths": [16, 12]} if case["net"] == "mlp" else {})}
    recipe = {"network": net, "activation": activation}
    if case.get("layer_loss"):
        recipe["layer_loss"] = case["layer_loss"]
    run = ftprop.untrained(recipe, (20,) if case["net"] == "mlp" else shape, classes)
    module = to_module(run, normalize=False).double().train()
    for part in module.modules():
        if isinstance(part, (nn.Dropout, nn.Dropout2d)):
            part.p = 0.0
    channels_first = (20,) if case["net"] == "mlp" else (shape[2], *shape[:2])
    return module, channels_first, classes


@pytest.mark.parametrize("name", [p.stem for p in sorted(GOLDEN.glob("*.json"))])
def test_golden_cases(name) -> None:
    case = json.loads((GOLDEN / f"{name}.json").read_text())
    module, shape, classes = network(case)
    start, batch = 1000 * case["seed"], case["batch"]
    # A Residual's main path comes before its shortcut, a weight before its bias: as the cases number them.
    with torch.no_grad():
        j = 0
        for part in module.modules():
            is_norm = isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d))
            if not is_norm and not isinstance(part, (nn.Conv2d, nn.Linear)):
                continue
            fan_in = 1 if is_norm else part.weight[0].numel()
            for role, p in (("weight", part.weight), ("bias", part.bias)):
                if p is None:
                    continue
                u = numbers(start + j, p.numel())
                values = (u + 0.5 if role == "weight" else u - 0.5) if is_norm else (2 * u - 1) / math.sqrt(fan_in)
                p.copy_(torch.from_numpy(values.astype(np.float32).astype(np.float64)).view_as(p))
                j += 1
    x = 1.7 * (2 * numbers(start + 999, batch * math.prod(shape)) - 1)
    x = torch.from_numpy(x.astype(np.float32).astype(np.float64)).view(batch, *shape)
    labels = torch.from_numpy(np.floor(numbers(start + 998, batch) * classes).astype(np.int64))
    logits = module(x)
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    # In float64 as the cases were made, so to more digits than their tolerance in float32.
    expect = case["expect"][0]
    assert loss.item() == pytest.approx(expect["loss"], rel=1e-6)
    wanted = np.array(expect["logits"])
    np.testing.assert_allclose(logits.detach().numpy()[:, : wanted.shape[1]], wanted, rtol=1e-6, atol=1e-6)
    for p, known in zip(module.parameters(), expect["params"]):
        grad = p.grad.numpy().reshape(-1)
        scale = known["grad_norm"] / math.sqrt(known["size"])
        assert np.linalg.norm(grad) == pytest.approx(known["grad_norm"], rel=1e-6)
        np.testing.assert_allclose(grad[known["at"]], known["grad"], rtol=1e-6, atol=1e-6 * scale)


CONVOLUTIONS = {
    "network": {
        "layers": [
            {"kind": "conv", "out": 8, "kernel": [3, 2], "pad": 1},
            {"kind": "batch_norm"},
            {"kind": "max_pool", "kernel": 2},
            {"kind": "act", "activation": "relu"},
            {
                "kind": "residual",
                "main": [{"kind": "conv", "out": 8, "kernel": 3, "pad": 1, "groups": 2}, {"kind": "batch_norm"}],
                "shortcut": [{"kind": "conv", "out": 8, "kernel": 1}],
            },
            {"kind": "affine", "scale": 1.5},
            {"kind": "act"},
            {"kind": "affine"},
            {"kind": "channel_dropout", "p": 0.2},
            {"kind": "avg_pool", "kernel": 2},
            {"kind": "fc", "out": 12},
            {"kind": "batch_norm"},
            {"kind": "act", "activation": "qrelu:3", "qrelu_form": "per_step"},
            {"kind": "dropout", "p": 0.2},
            {"kind": "fc"},
        ]
    },
    "train": {"epochs": 2, "batch": 16},
}


def test_there_and_back(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (80, 8, 9, 3), dtype=np.uint8)
    run = ftprop.train(CONVOLUTIONS, (X, np.array(["a", "b", "c", "d"])[rng.integers(0, 4, 80)]), device="cpu")
    module = to_module(run).eval()
    assert any(isinstance(part, Residual) for part in module)
    with torch.no_grad():
        theirs = module(torch.from_numpy(X.transpose(0, 3, 1, 2).copy()).float()).numpy()
    np.testing.assert_allclose(theirs, run.logits(X), rtol=1e-4, atol=1e-4)
    back = from_module(module, (3, 8, 9), classes=run.classes)
    np.testing.assert_array_equal(back.logits(X), run.logits(X))
    assert back.predict(X).tolist() == run.predict(X).tolist()
    model = ftprop.load(back.export(tmp_path / "back.ftp"), threads=1)
    assert (model.predict(X) == run.predict(X)).mean() > 0.9


def test_a_module_learns_on_in_pytorch() -> None:
    run = ftprop.train("digits", settings={"train.epochs": 1}, device="cpu")
    module = to_module(run)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(0, 17, (64, 1, 8, 8), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, 10, 64))
    adam = torch.optim.Adam(module.parameters(), 1e-3)
    losses = []
    for _ in range(30):
        adam.zero_grad()
        loss = nn.functional.cross_entropy(module(x), labels)
        loss.backward()
        adam.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    "layer, words",
    [
        (nn.GELU(), "GELU"),
        (nn.Conv2d(3, 4, 3, dilation=2), "dilation"),
        (nn.Conv2d(3, 4, 3, stride=(1, 2)), "stride must be the same"),
        (nn.Conv2d(3, 4, 3, padding="same"), "padding"),
        (nn.BatchNorm2d(3, affine=False), "norms"),
        (nn.MaxPool2d(2, ceil_mode=True), "poolings"),
    ],
)
def test_layers_that_only_pytorch_knows_are_named(layer, words) -> None:
    with pytest.raises(ftprop.ModelError, match=words) as caught:
        from_module(nn.Sequential(nn.Identity(), layer, nn.Flatten()), (3, 8, 8))
    assert str(caught.value).startswith("layer 1 (")
