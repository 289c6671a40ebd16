"""Training: the same bytes as the program, callbacks, Ctrl-C, resuming."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import ftprop
from conftest import MLP


def program(*arguments: object) -> None:
    """The program's own command line."""
    subprocess.run([sys.executable, "-m", "ftprop", *map(str, arguments)], check=True, capture_output=True)


def files(folder: Path) -> dict[str, bytes]:
    """What a run leaves that must not differ: its networks and its recipe."""
    return {name: (folder / name).read_bytes() for name in ("best.safetensors", "checkpoint.safetensors", "recipe.toml")}


def tensors(path: Path) -> bytes:
    """All numbers of a checkpoint, without what it says beside them."""
    content = path.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little") :]


def test_the_same_recipe_and_seed_give_the_bytes_of_the_program(tmp_path) -> None:
    program("train", "--out", tmp_path / "program", "--epochs", 2, "--seed", 5, "--device", "cpu", "--quiet")
    settings = {"train.epochs": 2, "train.seed": 5}
    run = ftprop.train("digits", out=tmp_path / "python", settings=settings, device="cpu")
    assert files(tmp_path / "program") == files(tmp_path / "python")
    assert (tmp_path / "python" / "curves.png").exists() and run.folder == tmp_path / "python"
    # And in memory the same network.
    memory = ftprop.train("digits", settings=settings, device="cpu", threads=1)
    assert memory._native.checkpoint("best") == (tmp_path / "program" / "best.safetensors").read_bytes()
    loaded = ftprop.load(tmp_path / "program")
    X = np.arange(640, dtype=np.uint8).reshape(10, 8, 8, 1) % 17
    np.testing.assert_array_equal(loaded.logits(X), memory.logits(X))
    np.testing.assert_array_equal(loaded.logits(X, which="last"), memory.logits(X, which="last"))
    np.testing.assert_array_equal(loaded.metrics["test_top1"], memory.metrics["test_top1"])


def test_arrays_give_the_bytes_of_the_program_on_the_same_table(tmp_path, table) -> None:
    X, y = table
    lines = [",".join([*(repr(float(x)) for x in row), label]) for row, label in zip(X, y)]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    recipe = {**MLP, "name": "table", "data": {"source": "csv", "path": str(tmp_path / "table.csv"), "validation": 0.1}}
    text = ftprop._native.recipe_toml(recipe)
    (tmp_path / "recipe.toml").write_text(text)
    program("train", "--recipe", tmp_path / "recipe.toml", "--out", tmp_path / "program", "--quiet", "--device", "cpu")
    data = ftprop.Dataset(X, y, source="csv")
    ftprop.train(recipe, data, out=tmp_path / "python", device="cpu")
    # The program's also say what becomes of a file's cells, which arrays have none of.
    for name in ("best.safetensors", "checkpoint.safetensors"):
        assert tensors(tmp_path / "program" / name) == tensors(tmp_path / "python" / name), name


def _tensors(checkpoint: bytes) -> bytes:
    """What follows the header of a safetensors file."""
    return checkpoint[8 + int.from_bytes(checkpoint[:8], "little") :]


def test_arrays_give_the_bytes_of_the_program_on_the_digits(tmp_path, digits) -> None:
    X, y = digits
    data = ftprop.Dataset(X, y, scale=16, mean=[0.305], std=[0.376], test_fraction=359 / 1797, source="digits")
    settings = {"train.epochs": 1}
    from_arrays = ftprop.train("digits", data, settings=settings, device="cpu")
    plain = ftprop.train("digits", settings=settings, device="cpu")
    assert from_arrays._native.checkpoint("last") == plain._native.checkpoint("last")
    # Floats are divided by the same number.
    floats = ftprop.Dataset(
        X.astype(np.float32), y, scale=16, mean=[0.305], std=[0.376], test_fraction=359 / 1797, source="digits"
    )
    from_floats = ftprop.train("digits", floats, settings=settings, device="cpu")
    # Their header tells them apart, for the data are known again as what they are; all numbers are the same.
    numbers = [_tensors(run._native.checkpoint("last")) for run in (from_floats, plain)]
    assert numbers[0] == numbers[1] and len(numbers[0]) > 10_000


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch, table) -> None:
    monkeypatch.chdir(tmp_path)
    ftprop.train(MLP, table, device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_callbacks_see_each_epoch_and_can_stop(table) -> None:
    seen: list[ftprop.Epoch] = []
    threads = []

    def watch(epoch: ftprop.Epoch) -> bool:
        seen.append(epoch)
        threads.append(threading.current_thread())
        return epoch.epoch == 2

    run = ftprop.train({**MLP, "data": {"validation": 0.2}}, table, device="cpu", callbacks=[watch])
    assert [(epoch.epoch, epoch.epochs) for epoch in seen] == [(1, 3), (2, 3)] and not run.finished
    assert len(run.metrics["epoch"]) == 2 and seen[1].validation_top1 == run.metrics["validation_top1"][1]
    # Where they were called from, so that they may use what belongs to that thread.
    assert set(threads) == {threading.current_thread()}


def test_an_exception_in_a_callback_ends_the_run_in_order(tmp_path, table) -> None:
    def fail(epoch: ftprop.Epoch) -> None:
        if epoch.epoch == 2:
            raise KeyError("no paper left")

    with pytest.raises(KeyError, match="no paper left") as caught:
        ftprop.train(MLP, table, device="cpu", callbacks=[fail], out=tmp_path / "run")
    assert len(caught.value.run.metrics["epoch"]) == 2
    # All is saved: it goes on to what it would have been at once.
    on = ftprop.resume(tmp_path / "run", table, device="cpu")
    whole = ftprop.train(MLP, table, device="cpu")
    assert on.finished and on._native.checkpoint("last") == whole._native.checkpoint("last")


def test_ctrl_c_saves_as_the_program_does(tmp_path) -> None:
    script = (
        "import ftprop, os, signal, sys, threading\n"
        # A shell's background jobs begin with Ctrl-C ignored, and the tests may run in one.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        "    ftprop.train('digits', settings={'train.epochs': 10000}, device='cpu', out=sys.argv[1])\n"
        "except KeyboardInterrupt as interrupt:\n"
        "    assert not interrupt.run.finished\n"
        "    sys.exit(77)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "run")], timeout=60)
    assert ended.returncode == 77
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()
    stopped = ftprop.resume(tmp_path / "run", device="cpu", callbacks=[lambda epoch: True])
    assert len(stopped.metrics["epoch"]) >= 1


def test_a_run_is_pickled_with_its_labels(table) -> None:
    run = ftprop.train(MLP, table, device="cpu")
    again = pickle.loads(pickle.dumps(run))
    np.testing.assert_array_equal(run.logits(table[0]), again.logits(table[0]))
    np.testing.assert_array_equal(run.predict(table[0]), again.predict(table[0]))
    np.testing.assert_array_equal(run.metrics["train_loss"], again.metrics["train_loss"])


def test_what_a_run_tells(digits_run, digits, tmp_path) -> None:
    X, y = digits
    scores = digits_run.evaluate(X, y)
    matrix = digits_run.confusion_matrix(X, y)
    assert matrix.shape == (10, 10) and matrix.sum() == len(X)
    assert scores["top1"] == pytest.approx(matrix.trace() / len(X))
    assert (digits_run.predict(X) == y).mean() == pytest.approx(scores["top1"])
    np.testing.assert_allclose(digits_run.predict_proba(X).sum(axis=1), 1)
    assert digits_run.evaluate()["top1"] == pytest.approx(digits_run.metrics["test_top1"][-1])
    assert digits_run.confusion_matrix(part="train").sum() == 1438
    assert "conv 32" in digits_run.summary()
    picture = digits_run.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG") and picture.svg.startswith("<svg")
    pandas = pytest.importorskip("pandas")
    frame = digits_run.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and frame.index.name == "epoch"
    for name in ("a.onnx", "b.safetensors", "c.ftp"):
        assert digits_run.export(tmp_path / name).stat().st_size > 1000


def test_data_by_a_path_and_recipes_by_a_file(tmp_path, table) -> None:
    X, y = table
    lines = ["a,b,c,label", *(",".join([*map(str, row), label]) for row, label in zip(X, y))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    (tmp_path / "r.toml").write_text('[network]\npreset = "mlp"\nwidths = [8]\n[train]\nepochs = 1\nbatch = 8\n')
    run = ftprop.train(tmp_path / "r.toml", str(tmp_path / "t.csv"), device="cpu")
    assert run.classes.tolist() == ["down", "up"]


def test_float_pictures_are_augmented_and_packed(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((64, 3, 8, 8))
    y = (X[:, 0].mean(axis=(1, 2)) > 0.5).astype(int)
    recipe = {
        "network": {"layers": [{"kind": "conv", "out": 8, "kernel": 3}, {"kind": "act"}, {"kind": "fc"}]},
        "data": {"pad": 1, "random_crop": True, "flip": True},
        "train": {"epochs": 1, "batch": 8},
    }
    run = ftprop.train(recipe, (X, y), device="cpu")
    model = ftprop.load(run.export(tmp_path / "m.ftp"), threads=1)
    assert model.input_shape == (8, 8, 3)
    bytes_ = np.rint(X * 255).astype(np.uint8)
    agree = (model.predict(bytes_) == run.predict(bytes_.astype(np.float32) / 255)).mean()
    assert agree > 0.9


def test_a_bar_is_drawn_where_asked_for(table, capsys) -> None:
    pytest.importorskip("tqdm")
    ftprop.train(MLP, table, device="cpu", progress=True)
    assert "3/3" in capsys.readouterr().err
    ftprop.train(MLP, table, device="cpu")
    assert capsys.readouterr().err == ""


def test_epochs_scale_the_schedule_as_the_program_does(tmp_path) -> None:
    recipe = {**MLP, "schedule": {"kind": "step", "decay_at": [11, 31]}, "train": {"epochs": 40, "batch": 64}}
    (tmp_path / "recipe.toml").write_text(ftprop._native.recipe_toml({**recipe, "data": {"source": "digits"}}))
    program(
        "train", "--recipe", tmp_path / "recipe.toml", "--epochs", "4", "--out", tmp_path / "program", "--quiet",
        "--device", "cpu",
    )
    ftprop.train(tmp_path / "recipe.toml", epochs=4, out=tmp_path / "python", device="cpu")
    assert files(tmp_path / "program") == files(tmp_path / "python")
    assert re.search(r"decay_at = \[\s*2,\s*4,?\s*\]", (tmp_path / "python" / "recipe.toml").read_text())
    # A setting is only that.
    plain = ftprop.train(recipe, settings={"train.epochs": 1, "data.source": "digits"}, device="cpu")
    assert re.search(r"decay_at = \[\s*11,\s*31,?\s*\]", plain.recipe)


def test_what_a_run_should_be_told_of_is_a_warning(table) -> None:
    X, y = table
    norms = [{"kind": "fc", "out": 6}, {"kind": "batch_norm"}, {"kind": "act"}, {"kind": "fc"}]
    recipe = {"network": {"layers": norms}, "train": {"epochs": 1, "batch": 7}}
    with pytest.warns(UserWarning, match="the last batch of each epoch has 1 example"):
        ftprop.train(recipe, (X[:43], y[:43], X, y), device="cpu")
    with pytest.raises(ftprop.FtpropError, match="single value a channel"):
        ftprop.train({**recipe, "train": {"batch": 1}}, (X, y), device="cpu")
