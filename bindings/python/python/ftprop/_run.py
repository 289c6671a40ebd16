"""Trained networks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from . import _arrays, _native

if TYPE_CHECKING:
    import pandas

#: The best epoch's network, or that of the last step.
Which = Literal["best", "last"]
#: What a network can be exported as.
Format = Literal["packed", "onnx", "torch"]
#: How a packed model keeps its weights.
Weights = Literal["int8", "int4", "f32"]

_ENDINGS: dict[str, Format] = {".onnx": "onnx", ".safetensors": "torch"}


class Picture:
    """A picture that a notebook shows; :meth:`save` keeps it."""

    def __init__(self, svg: str, png: bytes) -> None:
        self.svg = svg
        self.png = png

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes it as PNG, or as SVG if the name ends so."""
        path = Path(path)
        _native.Run.write(path, self.svg.encode() if path.suffix == ".svg" else self.png)
        return path

    def __repr__(self) -> str:
        return f"Picture({len(self.png)} bytes as PNG)"


class Run:
    """A trained network with how its training went. :func:`ftprop.train` and :func:`ftprop.load` give one.

    Several threads may use it at once.

    >>> import ftprop
    >>> run = ftprop.train("digits", settings={"train.epochs": 2}, device="cpu")
    >>> run
    Run('digits', 2 of 2 epochs, 10 classes)
    >>> sorted(run.metrics)[:3]
    ['epoch', 'images_per_s', 'learning_rate']
    >>> bool(run.evaluate()["top1"] > 0.8)
    True
    >>> int(run.confusion_matrix().sum())
    359
    """

    def __init__(self, native: _native.Run, classes: npt.NDArray[Any] | None = None) -> None:
        self._native = native
        #: The classes, in the order of the network's outputs.
        self.classes: npt.NDArray[Any] = _arrays.classes_named(native.classes) if classes is None else classes

    # How it went.

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self._native.name

    @property
    def recipe(self) -> str:
        """The whole recipe, as TOML."""
        return self._native.toml

    @property
    def folder(self) -> Path | None:
        """The run folder, where there is one."""
        folder = self._native.folder
        return None if folder is None else Path(folder)

    @property
    def device(self) -> str:
        """Where it computes, in a few words."""
        return self._native.device

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels of an example."""
        return self._native.shape

    @property
    def parameters(self) -> int:
        """How many numbers were learned."""
        return self._native.parameters

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self._native.finished

    @property
    def best_epoch(self) -> int | None:
        """The epoch of the network that ``which="best"`` means, counted from 1."""
        return self._native.best_epoch

    @property
    def metrics(self) -> dict[str, npt.NDArray[Any]]:
        """One array a figure, one entry an epoch; accuracies are fractions of 1."""
        epochs = self._native.metrics
        return {name: np.array([epoch[name] for epoch in epochs]) for name in (epochs[0] if epochs else {})}

    def to_pandas(self) -> pandas.DataFrame:
        """The metrics as a table, by epoch."""
        import pandas

        return pandas.DataFrame(self.metrics).set_index("epoch")

    def plot(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """The learning curves; a notebook shows them, and ``path`` keeps them as PNG or SVG."""
        if not self._native.metrics:
            raise ValueError("there is nothing to draw: no epoch is finished")
        picture = Picture(self._native.svg(), self._native.png())
        if path is not None:
            picture.save(path)
        return picture

    def summary(self) -> str:
        """The network's layers, and how well it does, as text."""
        lines = [f"{self.name}: {self.parameters} parameters, {len(self.classes)} classes, on {self.device}"]
        for layer in _native.layers(self._native, "last"):
            channels, height, width = layer["output"]
            shape = str(channels) if height * width == 1 else f"{channels}×{height}×{width}"
            lines.append(f"  {layer['path']:>4}  {layer['description']:<32} {shape}")
        epochs = self._native.metrics
        if epochs:
            last = epochs[-1]
            best = self.best_epoch or len(epochs)
            chosen = f" (at the best epoch, {best}: {100 * epochs[best - 1]['test_top1']:.2f} %)"
            lines.append(
                f"after {len(epochs)} of {self._native.epochs} epochs: test accuracy {100 * last['test_top1']:.2f} %"
                f"{chosen if best < len(epochs) else ''}, train {100 * last['train_top1']:.2f} %"
            )
        return "\n".join(lines)

    # Using it.

    def logits(
        self,
        X: Any,
        *,
        which: Which = "best",
        channels: _arrays.Channels | None = None,
        out: npt.NDArray[np.float32] | None = None,
    ) -> npt.NDArray[np.float32]:
        """What the network says of each example: one row each, one number a class. ``out`` is filled if it is given.

        Values are those that it was trained on: bytes for bytes, and so on; it normalises them itself.
        """
        examples, _ = _arrays.examples(X, "X", channels, self.input_shape)
        room = _arrays.room_for(out, len(examples), len(self.classes))
        self._native.logits(examples, which, room)
        return room

    def predict(
        self, X: Any, *, which: Which = "best", channels: _arrays.Channels | None = None
    ) -> npt.NDArray[Any]:
        """The most likely class of each example."""
        predicted: npt.NDArray[Any] = self.classes[self.logits(X, which=which, channels=channels).argmax(axis=1)]
        return predicted

    def predict_proba(
        self, X: Any, *, which: Which = "best", channels: _arrays.Channels | None = None
    ) -> npt.NDArray[np.float64]:
        """The network's confidence in each class; rows sum to 1."""
        return _arrays.softmax(self.logits(X, which=which, channels=channels))

    def evaluate(
        self,
        X: Any = None,
        y: Any = None,
        *,
        part: Literal["train", "validation", "test"] = "test",
        which: Which = "best",
        channels: _arrays.Channels | None = None,
    ) -> dict[str, float]:
        """Loss, top-1 and top-5 accuracy: of these examples, or of a part of the data that it was trained on."""
        if X is None:
            loss, top1, top5 = self._native.evaluate_part(part, which)[0]
        else:
            examples, _ = _arrays.examples(X, "X", channels, self.input_shape)
            labels = _arrays.codes(_arrays.labels(y, len(examples)), self.classes)
            loss, top1, top5 = self._native.evaluate(examples, labels, which)
        return {"loss": loss, "top1": top1, "top5": top5}

    def confusion_matrix(
        self,
        X: Any = None,
        y: Any = None,
        *,
        part: Literal["train", "validation", "test"] = "test",
        which: Which = "best",
        channels: _arrays.Channels | None = None,
    ) -> npt.NDArray[np.int64]:
        """How often class i (row) was taken for class j (column); the classes are in the order of ``classes``."""
        count = len(self.classes)
        if X is None:
            counts = np.array(self._native.evaluate_part(part, which)[1], dtype=np.int64)
            return counts.reshape(count, count)
        predicted = self.logits(X, which=which, channels=channels).argmax(axis=1)
        true = _arrays.codes(_arrays.labels(y, len(predicted)), self.classes)
        matrix = np.zeros((count, count), np.int64)
        np.add.at(matrix, (true, predicted), 1)
        return matrix

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        format: Format | None = None,
        weights: Weights = "int8",
        which: Which = "best",
    ) -> Path:
        """Writes the network for other programs: a packed model (``.ftp``), ONNX (``.onnx``) or PyTorch's weights
        (``.safetensors``); by the name's ending, unless ``format`` says so."""
        path = Path(path)
        if format not in (None, "packed", "onnx", "torch"):
            raise ValueError(f'expected format="packed", "onnx" or "torch", found {format!r}')
        chosen = format or _ENDINGS.get(path.suffix, "packed")
        _native.Run.write(path, bytes(self._native.export(chosen, weights, which)))
        return path

    def __repr__(self) -> str:
        done = len(self._native.metrics)
        return f"Run({self.name!r}, {done} of {self._native.epochs} epochs, {len(self.classes)} classes)"

    def __reduce__(self) -> tuple[Any, ...]:
        native = self._native
        saved = (native.checkpoint("best"), native.checkpoint("last"), native.metrics_json())
        return _restored, (*saved, self.classes)


def _restored(best: bytes, last: bytes, metrics: str, classes: npt.NDArray[Any]) -> Run:
    return Run(_native.Run.restored(best, last, metrics, 0), classes)
