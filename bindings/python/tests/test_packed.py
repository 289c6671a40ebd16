"""Packed models from several threads, in any batch."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ftprop


def test_any_batch_gives_the_same_answers(packed, digits_run, digits) -> None:
    X = digits[0]
    model = ftprop.load(packed, threads=2)
    whole = model.logits(X)
    for batch in (1, 2, 7, 64):
        parts = [model.logits(X[i : i + batch]) for i in range(0, 128, batch)]
        np.testing.assert_array_equal(np.concatenate(parts), whole[: sum(map(len, parts))])
    np.testing.assert_array_equal(model.logits(X[3]), whole[3:4])
    # A pixel counts as a byte, whose 255 is the digits' 16: see docs/deploy.md.
    assert model.predict(X).dtype.kind == "i"
    np.testing.assert_allclose(model.predict_proba(X[:9]).sum(axis=1), 1)


def test_threads_do_not_disturb_each_other(packed, digits) -> None:
    X = digits[0]
    model = ftprop.load(packed, threads=2)
    expected = model.logits(X)
    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(lambda i: (i, model.logits(X[i : i + 1 + i % 5])), range(400)):
            np.testing.assert_array_equal(got[1], expected[got[0] : got[0] + len(got[1])])


def test_runs_are_used_by_several_threads_too(digits_run, digits) -> None:
    X = digits[0][:200]
    expected = digits_run.logits(X)
    with ThreadPoolExecutor(4) as pool:
        for i, got in enumerate(pool.map(lambda i: digits_run.logits(X[i : i + 10]), range(100))):
            np.testing.assert_allclose(got, expected[i : i + 10], rtol=1e-5, atol=1e-5)


def test_a_packed_model_is_pickled(packed, digits) -> None:
    model = ftprop.load(packed, threads=1)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.logits(digits[0][:5]), again.logits(digits[0][:5]))


@pytest.mark.parametrize("threads", [-1, 5000, "two"])
def test_threads_are_a_number(packed, threads) -> None:
    with pytest.raises(ValueError, match="threads: expected"):
        ftprop.load(packed, threads=threads)


def test_a_forked_process_goes_on(packed, digits_run, digits) -> None:
    import multiprocessing

    X = digits[0][:40]
    model = ftprop.load(packed, threads=2)
    expected = model.predict(X).tolist(), digits_run.predict(X).tolist()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put((model.predict(X).tolist(), digits_run.predict(X).tolist())))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert queue.get() == expected


def test_a_packed_table_takes_rows(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(3.0, 2.0, (200, 5)).astype(np.float32)
    y = np.where(X[:, 0] > X[:, 1], "more", "less")
    recipe = {"network": {"preset": "mlp", "widths": [16]}, "train": {"epochs": 10, "batch": 16}}
    run = ftprop.train(recipe, (X, y), device="cpu")
    model = ftprop.load(run.export(tmp_path / "table.ftp"))
    assert isinstance(model, ftprop.PackedModel)
    assert (model.predict(X) == run.predict(X)).mean() >= 0.98
    np.testing.assert_array_equal(model.logits(X[3]), model.logits(X)[3:4])
    np.testing.assert_array_equal(model.logits(X.astype(np.float64)[::-1].copy()), model.logits(X)[::-1])
    assert "rows of 5" in repr(model)
    for wrong, what in ((X[:, :4].copy(), "expected examples of shape"), (X * np.nan, "finite"), (X[:0], "at least one")):
        with pytest.raises(ValueError, match=what):
            model.predict(wrong)
