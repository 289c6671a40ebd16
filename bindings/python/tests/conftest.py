"""What the tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ftprop

DIGITS = Path(__file__).parents[3] / "crates" / "ftprop-data" / "data" / "digits.csv.gz"


@pytest.fixture(scope="session")
def digits() -> tuple[Any, Any]:
    """The digits that the program carries: 8×8 pictures of bytes up to 16, and their labels."""
    rows = np.loadtxt(DIGITS, delimiter=",", dtype=np.uint8)
    return np.ascontiguousarray(rows[:, :64]).reshape(-1, 8, 8, 1), rows[:, 64].astype(np.int64)


@pytest.fixture(scope="session")
def digits_run() -> ftprop.Run:
    """A run of two epochs, in memory."""
    return ftprop.train("digits", settings={"train.epochs": 2}, device="cpu")


@pytest.fixture(scope="session")
def packed(digits_run: ftprop.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its packed model."""
    return digits_run.export(tmp_path_factory.mktemp("packed") / "digits.ftp")


MLP = {"network": {"preset": "mlp", "widths": [16]}, "train": {"epochs": 3, "batch": 16}}


@pytest.fixture()
def table() -> tuple[Any, Any]:
    """A table of two classes."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 3)).astype(np.float32)
    return X, np.where(X[:, 0] + X[:, 1] > 0, "up", "down")
