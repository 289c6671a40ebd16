"""Train on arrays of one's own: a table with names for labels, and pictures of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import ftprop


def table() -> ftprop.Run:
    """Which quadrants belong together is no question for a single unit."""
    rng = np.random.default_rng(0)
    X: npt.NDArray[np.float32] = rng.normal(size=(600, 2)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] > 0, "same side", "other side")
    recipe = {"network": {"preset": "mlp", "widths": [32, 32]}, "train": {"epochs": 40, "batch": 32}}
    return ftprop.train(recipe, (X, y))


def pictures() -> ftprop.Run:
    """Bars that stand or lie, with the channels first as PyTorch has them."""
    rng = np.random.default_rng(1)
    X = 0.3 * rng.random((400, 1, 12, 12))
    y: list[str] = []
    for picture in X[:, 0]:
        lies, at = bool(rng.integers(2)), int(rng.integers(12))
        picture[at if lies else slice(None), slice(None) if lies else at] = 1.0
        y.append("lies" if lies else "stands")
    layers: list[dict[str, Any]] = [
        {"kind": "conv", "out": 8, "kernel": 5},
        {"kind": "batch_norm"},
        {"kind": "act"},
        {"kind": "fc"},
    ]
    recipe = {"activation": "qrelu:3", "network": {"layers": layers}, "train": {"epochs": 15, "batch": 16}}
    return ftprop.train(recipe, ftprop.Dataset(X, y, test_fraction=0.25))


def main() -> None:
    """Both, and that they came to something."""
    for run in (table(), pictures()):
        print(run, run.evaluate())
        assert run.evaluate()["top1"] > 0.9


if __name__ == "__main__":
    main()
