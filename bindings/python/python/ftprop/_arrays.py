"""Arrays as ftprop takes them: checked with words for people, and not copied where they lie right."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

#: Where the channels of a picture are.
Channels = Literal["first", "last"]
#: Rows, columns, channels.
Shape = tuple[int, int, int]

#: Numbers of channels that pictures usually have.
_USUAL = (1, 3, 4)


def _in_one_piece(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise ValueError(
            f"{name}: expected a C-contiguous array, found strides {array.strides} for shape {array.shape}; "
            f"pass numpy.ascontiguousarray({name})"
        )
    return array


def _array(values: Any, name: str) -> npt.NDArray[Any]:
    if isinstance(values, np.ndarray):
        return _in_one_piece(values, name)
    try:
        return np.ascontiguousarray(values)
    except (ValueError, TypeError) as why:
        raise ValueError(f"{name}: expected an array of numbers, all rows alike ({why})") from None


def _floats(array: npt.NDArray[Any], name: str) -> npt.NDArray[np.float32]:
    if array.dtype == np.float32 and array.dtype.isnative:
        floats: npt.NDArray[np.float32] = array
    else:
        with np.errstate(over="ignore"):
            floats = array.astype(np.float32)
    return floats


def _channels_of(shape: tuple[int, ...], name: str) -> Channels:
    first, last = shape[1] in _USUAL, shape[3] in _USUAL
    if first == last:
        raise ValueError(
            f"{name}: shape {shape} does not tell where the channels are; "
            'say channels="last" (N×H×W×C) or channels="first" (N×C×H×W)'
        )
    return "first" if first else "last"


def examples(
    values: Any, name: str = "X", channels: Channels | None = None, shape: Shape | None = None
) -> tuple[npt.NDArray[Any], Shape]:
    """Examples as bytes or 32-bit floats, channels last, and the shape of one.

    With ``shape`` they must be of it; a table of as many numbers will do.
    """
    array = _array(values, name)
    if channels not in (None, "first", "last"):
        raise ValueError(f'expected channels="first" or channels="last", found {channels!r}')
    if array.ndim not in (2, 3, 4):
        raise ValueError(
            f"{name}: expected a table (N×F) or pictures (N×H×W, N×H×W×C or N×C×H×W), found shape {array.shape}"
        )
    if array.size == 0:
        raise ValueError(f"{name}: expected at least one example with at least one number, found shape {array.shape}")
    is_table = array.ndim == 2
    wanted = "bool, integers or floats" if is_table else "uint8 (0 to 255) or floats"
    if array.dtype.kind not in ("biuf" if is_table else "f") and array.dtype != np.uint8:
        raise ValueError(f"{name}: expected {wanted}, found {array.dtype}")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        raise ValueError(f"{name}: expected {wanted} of at most 64 bits, found {array.dtype}")
    if shape is not None:
        return _fitting(array, name, channels, shape)
    if is_table:
        return _floats(array, name), (1, 1, array.shape[1])
    if array.ndim == 3:
        found: Shape = (array.shape[1], array.shape[2], 1)
    elif (channels or _channels_of(array.shape, name)) == "first":
        array = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
        found = (array.shape[1], array.shape[2], array.shape[3])
    else:
        found = (array.shape[1], array.shape[2], array.shape[3])
    return (array if array.dtype == np.uint8 else _floats(array, name)), found


def _fitting(
    array: npt.NDArray[Any], name: str, channels: Channels | None, shape: Shape
) -> tuple[npt.NDArray[Any], Shape]:
    height, width, depth = shape
    first = (depth, height, width)
    rest = array.shape[1:]
    if rest == first and (channels == "first" or (channels is None and rest != shape)):
        array = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    elif rest != shape and not (depth == 1 and rest == shape[:2]) and rest != (height * width * depth,):
        flat = f"N×{height * width * depth}"
        whole = flat if height * width == 1 else f"N×{height}×{width}×{depth} or N×{depth}×{height}×{width}"
        raise ValueError(f"{name}: expected examples of shape {whole}, found {array.shape}")
    if array.dtype == np.uint8 and height * width > 1:
        return array, shape
    return _floats(array, name), shape


def labels(values: Any, count: int | None, name: str = "y") -> npt.NDArray[Any]:
    """Labels as a one-dimensional array of any kind, as many as there are examples."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one label an example, found shape {array.shape}")
    if count is not None and len(array) != count:
        raise ValueError(f"{name}: expected {count} labels, as many as examples, found {len(array)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name}: expected labels, found one that is not a finite number")
    if array.dtype.kind not in "biufUSO":
        raise ValueError(f"{name}: expected numbers or strings, found {array.dtype}")
    return array


def classes_of(array: npt.NDArray[Any], name: str = "y") -> npt.NDArray[Any]:
    """The classes that occur, sorted."""
    try:
        return np.unique(array)
    except TypeError:
        raise ValueError(f"{name}: expected labels of one kind, found some that cannot be compared") from None


def codes(array: npt.NDArray[Any], classes: npt.NDArray[Any], name: str = "y") -> npt.NDArray[np.uint32]:
    """For each label its place among the classes."""
    try:
        order = np.argsort(classes, kind="stable")
        place = np.clip(np.searchsorted(classes, array, sorter=order), 0, len(classes) - 1)
        found = order[place]
        unknown = classes[found] != array
    except TypeError:
        raise ValueError(f"{name}: expected labels of one kind, found some that cannot be compared") from None
    if np.any(unknown):
        raise ValueError(f"{name}: {array[np.flatnonzero(unknown)[0]]!r} is none of the classes {names_of(classes)}")
    return found.astype(np.uint32)


def names_of(classes: npt.NDArray[Any]) -> list[str]:
    """Classes as a model's file has them."""
    if classes.dtype.kind == "f" and np.array_equal(classes, np.trunc(classes)) and np.abs(classes).max() < 2**53:
        return [str(int(value)) for value in classes]
    if classes.dtype.kind == "S":
        return [value.decode("utf-8", "replace") for value in classes]
    return [str(value) for value in classes.tolist()]


def classes_named(names: list[str]) -> npt.NDArray[Any]:
    """The classes that a model's file names: whole numbers where all of them are, else strings."""
    if names == ["False", "True"]:
        return np.array([False, True])
    if all(len(name) < 19 and name.lstrip("-").isdecimal() and str(int(name)) == name for name in names):
        return np.array([int(name) for name in names])
    return np.array(names)


def softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Confidences, each row of which sums to 1."""
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(axis=1, keepdims=True)
    return z


def room_for(logits: npt.NDArray[np.float32] | None, count: int, classes: int) -> npt.NDArray[np.float32]:
    """The caller's array for logits, checked, or a new one."""
    if logits is None:
        return np.empty((count, classes), np.float32)
    if not isinstance(logits, np.ndarray) or logits.dtype != np.float32 or logits.shape != (count, classes):
        raise ValueError(f"out: expected an array of float32 of shape ({count}, {classes})")
    if not logits.flags.writeable:
        raise ValueError("out: expected an array that can be written to, this one is read-only")
    return _in_one_piece(logits, "out")
