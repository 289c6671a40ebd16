"""Data sets of arrays."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _arrays, _native


class Dataset:
    """Examples to learn from and to measure by, from arrays that are not copied.

    ``X`` is a table (N×F) or pictures (N×H×W, N×H×W×C or N×C×H×W) of bytes or floats, C-contiguous. Bytes and 32-bit
    floats with the channels last are used where they lie, so do not write to them while they are in use; anything else
    is converted once. ``y`` has a label for each, of any kind.

    ``test`` is another ``(X, y)`` to measure by; without it a fifth of the examples is held out, the same ones every
    time. Values are divided by ``scale`` (255 for bytes, else 1) and then normalised by ``mean`` and ``std`` of each
    channel, which are taken from the training part unless they are given.

    >>> import numpy as np, ftprop
    >>> X = np.arange(40, dtype=np.float32).reshape(20, 2)
    >>> data = ftprop.Dataset(X, ["low"] * 10 + ["high"] * 10)
    >>> data
    Dataset(16 training and 4 test examples of 2, classes high, low)
    >>> ftprop.Dataset(X[:, ::-1], ["low"] * 10 + ["high"] * 10)
    Traceback (most recent call last):
    ValueError: X: expected a C-contiguous array, found strides (8, -4) for shape (20, 2); pass numpy.ascontiguousarray(X)
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        test: tuple[Any, Any] | None = None,
        test_fraction: float = 0.2,
        channels: _arrays.Channels | None = None,
        scale: float | None = None,
        mean: Any = None,
        std: Any = None,
        sample_weight: Any = None,
        source: str = "arrays",
    ) -> None:
        examples, shape = _arrays.examples(X, "X", channels)
        labels = _arrays.labels(y, len(examples))
        parts = [labels]
        if test is not None:
            if not isinstance(test, tuple) or len(test) != 2:
                raise ValueError("test: expected a pair of examples and labels")
            test_examples, _ = _arrays.examples(test[0], "test X", channels, shape)
            test_labels = _arrays.labels(test[1], len(test_examples), "test y")
            parts.append(test_labels)
        elif not 0.0 <= test_fraction < 1.0:
            raise ValueError(f"test_fraction: expected a share of at least 0 and below 1, found {test_fraction}")
        #: The classes, in the order of a network's outputs.
        self.classes: npt.NDArray[Any] = _arrays.classes_of(np.concatenate(parts))
        names = _arrays.names_of(self.classes)
        if len(set(names)) < len(names):
            raise ValueError("y: expected labels of which no two are written alike")
        if (mean is None) != (std is None):
            raise ValueError("expected both mean and std, or neither")
        moments = None
        if mean is not None:
            moments = ([float(x) for x in np.atleast_1d(mean)], [float(x) for x in np.atleast_1d(std)])
            if len(moments[0]) != shape[2] or len(moments[1]) != shape[2]:
                raise ValueError(f"mean and std: expected one number for each of {shape[2]} channels")
            if not np.isfinite(moments).all() or min(moments[1]) <= 0:
                raise ValueError("mean and std: expected finite means and positive deviations")
        if scale is None:
            scale = 255.0 if examples.dtype == np.uint8 else 1.0
        if not (np.isfinite(scale) and scale > 0):
            raise ValueError(f"scale: expected a positive number, found {scale}")
        repeat = None
        if sample_weight is not None:
            if test is None and test_fraction > 0:
                raise ValueError("sample_weight: expected a test part of its own, or test_fraction=0")
            repeat = repeats(sample_weight, len(examples))
        self._native = _native.Data(
            shape,
            names,
            (examples, _arrays.codes(labels, self.classes)),
            None if test is None else (test_examples, _arrays.codes(test_labels, self.classes)),
            float(test_fraction),
            repeat,
            float(scale),
            moments,
            source,
        )
        #: Rows, columns and channels of an example.
        self.shape: tuple[int, int, int] = shape

    def __repr__(self) -> str:
        train, test = self._native.counts()
        height, width, channels = self.shape
        each = str(channels) if height * width == 1 else f"{height}×{width}×{channels}"
        names = _arrays.names_of(self.classes)
        listed = ", ".join(names[:4]) + (f", … ({len(names)} in all)" if len(names) > 4 else "")
        return f"Dataset({train} training and {test} test examples of {each}, classes {listed})"


def repeats(weights: Any, count: int) -> npt.NDArray[np.uint32]:
    """Which examples an epoch goes through: each as often as its weight says.

    Whole weights are taken as they are; others are scaled so that an epoch has as many examples as before, and rounded
    so that the share of every run of examples is right.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim == 0:
        w = np.full(count, float(w))
    if w.shape != (count,):
        raise ValueError(f"sample_weight: expected {count} weights, as many as examples, found shape {w.shape}")
    if not np.isfinite(w).all() or (w < 0).any():
        raise ValueError("sample_weight: expected weights that are finite and not negative")
    if not w.any():
        raise ValueError("sample_weight: expected at least one weight above zero")
    if np.array_equal(w, np.rint(w)) and w.sum() <= max(16 * count, 1024):
        times = w.astype(np.int64)
    else:
        upto = np.floor(np.cumsum(w) / w.sum() * count + 0.5).astype(np.int64)
        times = np.diff(upto, prepend=0)
    return np.repeat(np.arange(count, dtype=np.uint32), times)


def taken(data: Any) -> tuple[Any, npt.NDArray[Any] | None]:
    """Data as the native side takes it, and the classes where they are known."""
    if data is None:
        return None, None
    if isinstance(data, (str, os.PathLike)):
        return data, None
    if isinstance(data, tuple) and len(data) == 2:
        data = Dataset(*data)
    elif isinstance(data, tuple) and len(data) == 4:
        data = Dataset(data[0], data[1], test=(data[2], data[3]))
    if not isinstance(data, Dataset):
        raise TypeError("data: expected a path, a Dataset, (X, y) or (X, y, X_test, y_test)")
    return data._native, data.classes
