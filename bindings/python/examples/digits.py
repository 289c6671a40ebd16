"""Train on the built-in digits, watch it, stop early, pack it and use the packed model."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import ftprop


def good_enough(epoch: ftprop.Epoch) -> bool:
    """Has seen enough at 98 % on the test part."""
    print(f"epoch {epoch.epoch}: train {epoch.train_top1:.3f}, test {epoch.test_top1:.3f}")
    return epoch.test_top1 >= 0.98


def main() -> None:
    """The whole way."""
    run = ftprop.train("digits", settings={"train.seed": 1}, callbacks=[good_enough])
    print(run.summary())
    wrong = run.confusion_matrix()
    np.fill_diagonal(wrong, 0)
    print("taken for another digit:", int(wrong.sum()))
    with tempfile.TemporaryDirectory() as folder:
        model = ftprop.load(run.export(Path(folder) / "digits.ftp"), threads=1)
    assert isinstance(model, ftprop.PackedModel)
    print(model, model.predict(np.zeros((2, 8, 8, 1), np.uint8)).tolist())
    assert run.evaluate()["top1"] > 0.95


if __name__ == "__main__":
    main()
