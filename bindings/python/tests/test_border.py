"""Errors, panics, the interpreter's lock, memory: what crosses the border."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ftprop
from ftprop import _native


def test_a_panic_becomes_a_runtime_error() -> None:
    with pytest.raises(RuntimeError, match="a wall fell over; please report it") as caught:
        _native.panic_for_test()
    assert "\n" not in str(caught.value)


def test_errors_are_a_small_hierarchy_with_one_line_each(tmp_path) -> None:
    with pytest.raises(ftprop.RecipeError, match="train.epochs must be at least 1"):
        ftprop.train("digits", settings={"train.epochs": 0})
    with pytest.raises(ftprop.RecipeError, match="the recipe's train.epoch: unknown key") as caught:
        ftprop.train({"train": {"epoch": 3}})
    assert isinstance(caught.value, ValueError) and "\n" not in str(caught.value)
    with pytest.raises(ftprop.FileError, match="no such file or folder") as missing:
        ftprop.load(tmp_path / "nothing.ftp")
    assert isinstance(missing.value, OSError)
    (tmp_path / "bad.ftp").write_bytes(b"not a model")
    with pytest.raises(ftprop.ModelError, match="bad.ftp: "):
        ftprop.load(tmp_path / "bad.ftp")
    with pytest.raises(ftprop.DeviceError, match="device 'gpu'"):
        ftprop.train("digits", device="gpu")
    with pytest.raises(ftprop.DataError, match="single class"):
        ftprop.train({"network": {"preset": "mlp", "widths": [4]}}, (np.ones((9, 2), np.float32), np.ones(9)))
    with pytest.raises(ftprop.TrainingError, match="no longer a number"):
        ftprop.train("digits", settings={"optimizer.lr": 1e30}, device="cpu")
    for error in ("RecipeError", "DataError", "ModelError", "FileError", "DeviceError", "TrainingError", "SearchError"):
        assert issubclass(getattr(ftprop, error), ftprop.FtpropError)


def test_the_lock_is_free_while_training() -> None:
    counted = 0
    going = True

    def count() -> None:
        nonlocal counted
        while going:
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    started = time.perf_counter()
    ftprop.train("digits", settings={"train.epochs": 4}, device="cpu", threads=1)
    took = time.perf_counter() - started
    seen = counted - before
    going = False
    thread.join()
    # At least one count in ten milliseconds, however busy the machine is.
    assert seen > took * 100, f"{seen} counts in {took:.2f} s"


def test_importing_is_quick_and_touches_no_gpu() -> None:
    program = (
        "import sys, ftprop\n"
        "maps = open('/proc/self/maps').read()\n"
        "assert 'libcuda' not in maps and 'nvrtc' not in maps and 'cudnn' not in maps\n"
        "assert 'sklearn' not in sys.modules and 'torch' not in sys.modules and 'tqdm' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_command_is_the_program() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "ftprop", *arguments], capture_output=True, text=True)

    version = run("--version")
    assert version.returncode == 0 and version.stdout.startswith(f"ftprop {ftprop.__version__}")
    wrong = run("trian")
    assert wrong.returncode == 2 and "'train'" in wrong.stderr
    missing = run("eval", "no-such-run")
    assert missing.returncode == 1 and missing.stderr.startswith("ftprop: cannot")


def test_a_recipe_that_holds_itself_is_refused() -> None:
    dict_: dict[str, object] = {}
    dict_["network"] = dict_
    list_: list[object] = []
    list_.append(list_)
    for endless in (dict_, {"network": {"layers": list_}}):
        with pytest.raises(ftprop.RecipeError, match="within each other"):
            ftprop.train(endless)


def test_a_network_without_end_is_refused_before_it_is_made() -> None:
    with pytest.raises(ftprop.FtpropError) as caught:
        ftprop.untrained({"network": {"preset": "mlp", "widths": [10**12, 10**12]}}, (10,))
    assert "\n" not in str(caught.value)
