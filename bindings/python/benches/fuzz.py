#!/usr/bin/env python3
"""Random arrays and recipes: none may crash the interpreter, none may panic.

usage: fuzz.py [count=100000] [seed=0]

Whatever goes in, what comes out is a result or an exception of the package's, a ValueError or a TypeError, in one line.
"""

from __future__ import annotations

import sys
import time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

import ftprop

KINDS = [np.uint8, np.float32, np.float64, np.float16, np.int8, np.int64, np.uint16, bool, complex, object, "U3", "S2", "M8[s]"]
ALLOWED = (ftprop.FtpropError, ValueError, TypeError)


class Inputs:
    """Whatever comes to mind."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def array(self, good: bool) -> Any:
        rng = self.rng
        count = int(self.one(0, 1, 2, 3, 5, 9, 17)) if not good else int(rng.integers(4, 18))
        if good:
            shape: tuple[int, ...] = self.one((count, 3), (count, 4, 4), (count, 5, 4, 3), (count, 1, 5, 6))
            kind: Any = self.one(np.uint8, np.float32)
        else:
            shape = (count, *(int(rng.integers(0, 6)) for _ in range(int(rng.integers(0, 4)))))
            kind = self.one(*KINDS)
        array = (rng.normal(size=shape) * 50).astype("f8")
        if not good and array.size and rng.random() < 0.2:
            array.reshape(-1)[int(rng.integers(array.size))] = self.one(np.nan, np.inf, 1e300, -0.0)
        with np.errstate(all="ignore"):
            array = np.abs(array).astype(kind) if np.dtype(kind).kind in "u" else array.astype(kind)
        if not good and array.ndim > 1 and rng.random() < 0.4:
            array = self.one(array[::-1], array[..., ::2], array.T, np.asfortranarray(array), array[:, ::-1])
        if rng.random() < 0.2:
            array = array.copy()
            array.flags.writeable = False
        if not good and rng.random() < 0.1:
            return self.one(array.tolist(), None, "text", 3, b"x", {"a": 1}, memoryview(b"abc"))
        return array

    def labels(self, X: Any, good: bool) -> Any:
        rng = self.rng
        try:
            count = len(X)
        except TypeError:
            count = 3
        if good:
            return self.one(np.arange(count) % 2, np.array(["a", "b", "c"])[np.arange(count) % 3])
        count = max(0, count + int(self.one(0, 0, 0, 0, 1, -1)))
        return self.one(
            rng.integers(-2, 3, count),
            rng.normal(size=count),
            np.array(["x", "", "ä"])[rng.integers(0, 3, count)],
            [None] * count,
            np.zeros(count),
            rng.integers(0, 2, (count, 2)),
            np.full(count, np.nan),
            rng.integers(0, 2, count).astype(bool),
            [1, "a"] * (count // 2),
        )

    def recipe(self, good: bool) -> Any:
        rng = self.rng
        if good:
            network: Any = self.one(
                {"preset": "mlp", "widths": [int(rng.integers(1, 9))]},
                {"layers": [{"kind": "fc", "out": 5}, {"kind": "batch_norm"}, {"kind": "act"}, {"kind": "fc"}]},
            )
            loss = self.one("soft_hinge", "hinge", "log", "annealed_tanh", "saturated_hinge:0.5", "sigmoid:3")
            unit = {"activation": self.one("sign", "step", "qrelu:3", "relu"), "layer_loss": loss}
            train = {"epochs": 1, "batch": int(self.one(1, 2, 3)), "seed": int(rng.integers(100))}
            return {**unit, "network": network, "train": train, "target_rule": self.one("gradient_sign", "random_subset:0.5")}
        parts = {
            "network": self.one({"layers": [self.layer() for _ in range(int(rng.integers(0, 4)))]}, {"preset": self.thing()}, 3),
            "activation": self.thing(),
            "layer_loss": self.thing(),
            "optimizer": {"name": self.one("adam", "sgd", "muon", 1), self.one("lr", "momentum"): self.thing()},
            "schedule": {"kind": self.one("step", "cosine", "constant", "x"), self.one("at", "factor"): self.thing()},
            "train": {self.one("batch", "seed", "clip", "ema", "loss", "threads"): self.thing(), "epochs": 1},
            "data": {self.one("validation", "pad", "crop", "flip", "workers", "path"): self.thing()},
            self.one("name", "groups", "weighted", "qrelu_form", "Ω", ""): self.thing(),
        }
        chosen = {key: value for key, value in parts.items() if rng.random() < 0.4}
        # So large a thread pool or network is a wish and no mistake; it would only take long.
        chosen.setdefault("network", {"preset": "mlp", "widths": [3]})
        return chosen if rng.random() < 0.95 else self.one("nothing-such", 5, None, b"digits", [1])

    def layer(self) -> dict[str, Any]:
        return {
            "kind": self.one("conv", "fc", "act", "batch_norm", "max_pool", "avg_pool", "dropout", "residual", "flat"),
            self.one("out", "kernel", "p", "pad", "stride", "groups", "main", "momentum"): self.thing(),
            self.one("out", "kernel", "p", "pad", "stride", "groups", "main", "activation"): self.thing(),
        }

    def thing(self) -> Any:
        return self.one(
            0, 1, 2, 3, -1, 0.5, -0.5, 1e-9, 1e9, float("nan"), float("inf"), 2**70, "", "sign", "soft_hinge", "mlp",
            "qrelu:9", True, None, [], [1, 2], ["x"], {}, {"a": 1}, np.float32(0.5), np.int64(2), Fraction(1, 2), object(), [2, 2],
        )  # fmt: skip


def attempt(inputs: Inputs, model: Any, run: Any) -> str:
    """One random call; gives what kind it was."""
    good = inputs.rng.random() < 0.25
    X = inputs.array(good or inputs.rng.random() < 0.3)
    kind = str(inputs.one("dataset", "dataset", "train", "train", "predict", "packed", "separable", "solve", "recipe"))
    if kind == "dataset":
        options: dict[str, Any] = {}
        if not good:
            names = ("channels", "scale", "mean", "std", "sample_weight", "test_fraction", "test", "source")
            options = {name: inputs.thing() for name in names if inputs.rng.random() < 0.1}
        ftprop.Dataset(X, inputs.labels(X, good), **options)
    elif kind == "train":
        recipe, y = inputs.recipe(good or inputs.rng.random() < 0.3), inputs.labels(X, good)
        ftprop.train(recipe, (X, y), device="cpu", threads=1)
    elif kind == "predict":
        run.predict(X)
    elif kind == "packed":
        model.predict(X)
    elif kind == "separable":
        ftprop.separable(X, inputs.labels(X, good), budget="20ms")
    elif kind == "solve":
        numbers = X if good else inputs.one(X, [[1, Fraction(1, 3)], [Decimal("0.1"), 2]], [[2**80, 1], [1, 2]])
        ftprop.solve(numbers, inputs.labels(numbers, good), hidden=inputs.one(1, 2, (2, 1)), budget="10ms", threads=1)
    else:
        ftprop._native.recipe_toml(inputs.recipe(good))
    return kind


def main(arguments: list[str]) -> None:
    """So many attempts."""
    options = dict(argument.split("=") for argument in arguments)
    count, seed = int(options.get("count", 100_000)), int(options.get("seed", 0))
    run = ftprop.untrained({"network": {"preset": "mlp", "widths": [4]}}, (5, 4, 3), 3)
    model = ftprop.PackedModel(bytes(run._native.export("packed", "int8", "last")), threads=1)
    outcomes: dict[str, int] = {}
    started = time.monotonic()
    for number in range(count):
        inputs = Inputs(seed * 10_000_000 + number)
        try:
            outcome = attempt(inputs, model, run)
        except ALLOWED as error:
            outcome = "refused"
            # An exception of the package's own is one line; numpy's are numpy's.
            if isinstance(error, ftprop.FtpropError) and ("\n" in str(error) or not str(error)):
                raise SystemExit(f"attempt {number}: not one line: {error!r}") from error
        except BaseException as error:
            raise SystemExit(f"attempt {number} of seed {seed}: {type(error).__name__}: {error}") from error
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    took = time.monotonic() - started
    print(f"{count} random arrays and recipes in {took:.0f} s, no crash and no panic: {outcomes}")


if __name__ == "__main__":
    main(sys.argv[1:])
