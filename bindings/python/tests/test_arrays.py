"""What arrays are taken, and that they are not copied."""

from __future__ import annotations

import numpy as np
import pytest

import ftprop
from conftest import MLP

BYTES = np.arange(20 * 5 * 6 * 3, dtype=np.uint32).astype(np.uint8).reshape(20, 5, 6, 3)
LABELS = np.arange(20) % 2


def test_pictures_that_lie_right_are_not_copied() -> None:
    data = ftprop.Dataset(BYTES, LABELS)
    assert data._native.address() == BYTES.ctypes.data
    frozen = BYTES.copy()
    frozen.flags.writeable = False
    assert ftprop.Dataset(frozen, LABELS)._native.address() == frozen.ctypes.data
    # And they are kept, whoever lets go of them.
    address = frozen.ctypes.data
    data = ftprop.Dataset(frozen, LABELS)
    del frozen
    assert data._native.address() == address


def test_layouts_are_told_apart_or_asked_for() -> None:
    first = np.ascontiguousarray(BYTES.transpose(0, 3, 1, 2))
    for data in (ftprop.Dataset(BYTES, LABELS), ftprop.Dataset(first, LABELS), ftprop.Dataset(first, LABELS, channels="first")):
        assert data.shape == (5, 6, 3)
        np.testing.assert_array_equal(data._native.moments()[0], ftprop.Dataset(BYTES, LABELS)._native.moments()[0])
    assert ftprop.Dataset(BYTES[..., 0].copy(), LABELS).shape == (5, 6, 1)
    for unclear in ((20, 3, 8, 3), (20, 7, 8, 9)):
        with pytest.raises(ValueError, match='say channels="last"'):
            ftprop.Dataset(np.zeros(unclear, np.uint8), LABELS)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (BYTES[:, :, ::2], "C-contiguous"),
        (BYTES[::-1], "C-contiguous"),
        (np.asfortranarray(BYTES), "C-contiguous"),
        (BYTES[:0], "at least one example"),
        (BYTES[:, :, :, :0], "at least one"),
        (BYTES.astype(np.int32), "expected uint8"),
        (BYTES.astype(complex), "expected uint8"),
        (BYTES.astype(object), "expected uint8"),
        (BYTES.astype(np.longdouble), "at most 64 bits"),
        (BYTES[0, 0, 0], "expected a table"),
        (np.array(["a", "b"] * 10).reshape(20, 1), "expected bool, integers or floats"),
        (np.full((20, 2), np.nan, np.float32), "not a finite number"),
        (np.full((20, 4, 4), np.inf), "not a finite number"),
        (np.full((20, 2), 1e300), "not a finite number"),
        ([[1, 2], [3]], "expected an array of numbers"),
    ],
)
def test_other_arrays_are_refused_with_what_was_expected(wrong, words) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        ftprop.Dataset(wrong, LABELS)
    assert "\n" not in str(caught.value)


def test_the_same_of_predictions(digits_run, packed) -> None:
    X = np.zeros((5, 8, 8, 1), np.uint8)
    model = ftprop.load(packed, threads=1)
    for use in (digits_run, model):
        assert use.predict(X).shape == (5,)
        assert use.predict(X.transpose(0, 3, 1, 2).copy()).shape == (5,)
        assert use.predict(X[..., 0].copy()).shape == (5,)
        assert use.predict(X.reshape(5, 64)).shape == (5,)
        for wrong in (X[:, ::2], X[:, ::-1], X[:0], X.astype(np.int16), np.zeros((5, 9, 8, 1), np.uint8), X.astype(str)):
            with pytest.raises(ValueError, match="expected"):
                use.predict(wrong)
        out = np.empty((5, 10), np.float32)
        assert use.logits(X, out=out) is out
        out.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            use.logits(X, out=out)
        for wrong in (np.empty((4, 10), np.float32), np.empty((5, 10)), np.empty((10, 5), np.float32).T):
            with pytest.raises(ValueError, match="out: expected"):
                use.logits(X, out=wrong)
    with pytest.raises(ValueError, match="expected pictures of uint8"):
        model.predict(X.astype(np.float32))
    with pytest.raises(ValueError, match="not a finite number"):
        digits_run.predict(np.full((2, 8, 8, 1), np.nan))


def test_floats_are_the_bytes_that_they_are(digits_run) -> None:
    X = np.random.default_rng(1).integers(0, 17, (9, 8, 8, 1), dtype=np.uint8)
    np.testing.assert_array_equal(digits_run.logits(X), digits_run.logits(X.astype(np.float32)))
    np.testing.assert_array_equal(digits_run.logits(X), digits_run.logits(X.astype(np.float64)))


@pytest.mark.parametrize(
    "y, names",
    [
        (["b", "a"] * 10, ["a", "b"]),
        ([True, False] * 10, ["False", "True"]),
        (np.array([3, -7] * 10, np.int8), ["-7", "3"]),
        (np.array([1.0, 2.0] * 10), ["1", "2"]),
        (np.array([0.5, 1.5] * 10), ["0.5", "1.5"]),
        (np.array([b"x", b"y"] * 10), ["x", "y"]),
        (np.array(["x", "y"] * 10, dtype=object), ["x", "y"]),
    ],
)
def test_labels_of_any_kind_come_back(y, names, table) -> None:
    X = np.tile(table[0][:20], (1, 1))
    run = ftprop.train(MLP, (X, y), device="cpu")
    assert run._native.classes == names
    assert set(run.predict(X).tolist()) <= set(np.asarray(y).tolist())
    assert run.predict(X).dtype == np.asarray(y).dtype
    strange = {"U": "zebra", "O": "zebra", "S": b"zebra"}.get(np.asarray(y).dtype.kind, 99)
    with pytest.raises(ValueError, match="none of the classes"):
        run.evaluate(X[:1], np.array([strange]))


@pytest.mark.parametrize("y", [[1, 2, 3], [[1]] * 20, [np.nan] * 20, [1, "a", None] * 6 + [1, 2], [1j] * 20])
def test_other_labels_are_refused(y) -> None:
    with pytest.raises(ValueError, match="y: expected"):
        ftprop.Dataset(BYTES, y)
