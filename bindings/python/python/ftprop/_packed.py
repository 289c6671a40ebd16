"""Packed models, and loading what was saved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _arrays, _native
from ._run import Run


class PackedModel:
    """A packed model, ready for pictures of bytes or rows of numbers. :func:`ftprop.load` gives one.

    Several threads may use it at once: their calls take turns, and each uses all of the model's threads.
    """

    def __init__(self, data: bytes, *, threads: int = 0, name: str = "the model") -> None:
        self._data = data
        self._threads = threads
        self._name = name
        self._open()
        #: The classes, in the order of the outputs.
        self.classes: npt.NDArray[Any] = _arrays.classes_named(self._native.classes)
        #: Rows, columns and channels of a picture; of a table's row 1, 1 and its numbers.
        self.input_shape: tuple[int, int, int] = self._native.shape

    def _open(self) -> None:
        self._native = _native.Packed(self._data, self._name, self._threads)
        self._process = os.getpid()

    @property
    def name(self) -> str:
        """What its network is called."""
        return self._native.name

    @property
    def threads(self) -> int:
        """How many threads it uses."""
        return self._native.threads

    @property
    def memory(self) -> int:
        """Bytes that it takes for weights and buffers."""
        return self._native.memory

    def logits(
        self,
        X: Any,
        *,
        channels: _arrays.Channels | None = None,
        out: npt.NDArray[np.float32] | None = None,
    ) -> npt.NDArray[np.float32]:
        """What the model says of each example: one row each, one number a class. ``out`` is filled if it is given.

        Any number of examples will do, also a single one without the first axis.
        """
        examples = X
        single = self.input_shape[2:] if self._native.takes_rows else self.input_shape
        if isinstance(examples, np.ndarray) and examples.shape == single:
            examples = examples[np.newaxis]
        if not (
            isinstance(examples, np.ndarray)
            and examples.dtype == np.uint8
            and examples.flags.c_contiguous
            and examples.shape[1:] == self.input_shape
            and len(examples) > 0
            and channels is None
            and not self._native.takes_rows
        ):
            examples = self._checked(examples, channels)
        room = _arrays.room_for(out, len(examples), len(self.classes))
        if self._process != os.getpid():
            # A forked process has none of its parent's threads; to let go of them would wait for them.
            self._parents = self._native
            self._open()
        self._native.logits(examples, room)
        return room

    def _checked(self, X: Any, channels: _arrays.Channels | None) -> npt.NDArray[Any]:
        if self._native.takes_rows:
            rows, _ = _arrays.examples(X, "X", channels, self.input_shape)
            if not np.isfinite(rows).all():
                raise ValueError("X: expected finite numbers, found NaN or infinity")
            return rows
        if np.asarray(X).dtype != np.uint8:
            raise ValueError(
                f"X: expected pictures of uint8 (0 to 255), found {np.asarray(X).dtype}; "
                "for floats between 0 and 1 pass numpy.rint(255 * X).astype(numpy.uint8)"
            )
        examples, _ = _arrays.examples(X, "X", channels, self.input_shape)
        return examples if examples.dtype == np.uint8 else examples.astype(np.uint8)

    def predict(self, X: Any, *, channels: _arrays.Channels | None = None) -> npt.NDArray[Any]:
        """The most likely class of each example."""
        predicted: npt.NDArray[Any] = self.classes[self.logits(X, channels=channels).argmax(axis=1)]
        return predicted

    def predict_proba(self, X: Any, *, channels: _arrays.Channels | None = None) -> npt.NDArray[np.float64]:
        """The model's confidence in each class; rows sum to 1."""
        return _arrays.softmax(self.logits(X, channels=channels))

    def __repr__(self) -> str:
        height, width, depth = self.input_shape
        takes = f"rows of {depth}" if self._native.takes_rows else f"{height}×{width}×{depth} bytes"
        return f"PackedModel({self.name!r}, {takes}, {len(self.classes)} classes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._data, self._threads, self._name)


def _unpickled(data: bytes, threads: int, name: str) -> PackedModel:
    return PackedModel(data, threads=threads, name=name)


def load(path: str | os.PathLike[str], *, threads: int = 0, device: str = "cpu") -> Run | PackedModel:
    """A packed model (``.ftp``), a run folder or a checkpoint file; 0 threads are one a core.

    >>> import tempfile, os, numpy as np, ftprop
    >>> run = ftprop.train("digits", settings={"train.epochs": 1}, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = ftprop.load(run.export(os.path.join(folder, "digits.ftp")), threads=1)
    >>> model
    PackedModel('digits', 8×8×1 bytes, 10 classes)
    >>> model.predict(np.zeros((3, 8, 8, 1), np.uint8)).shape
    (3,)
    """
    path = Path(path)
    if not isinstance(threads, int) or not 0 <= threads <= 1024:
        raise ValueError(f"threads: expected a number from 0 to 1024, found {threads!r}")
    if path.suffix == ".ftp" and not path.is_dir():
        return PackedModel(bytes(_native.Packed.read(path)), threads=threads, name=str(path))
    return Run(_native.load_run(path, device, threads))
