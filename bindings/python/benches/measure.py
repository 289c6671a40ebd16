#!/usr/bin/env python3
"""What the Python package costs: against the program, on the same machine, in turn.

usage: measure.py [import] [packed] [train] [thread] [memory] [wheel=FILE]      (nothing: all but the wheel)

Each line says what was measured and what is wanted. Needs no data: pictures are random, in CIFAR-10's format where the
program reads them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import ftprop

NETWORK: dict[str, Any] = {
    "name": "bench",
    "network": {
        "layers": [
            {"kind": "conv", "out": 16, "kernel": 3, "pad": 1},
            {"kind": "max_pool", "kernel": 2},
            {"kind": "act"},
            {"kind": "conv", "out": 32, "kernel": 3, "pad": 1},
            {"kind": "max_pool", "kernel": 2},
            {"kind": "act"},
            {"kind": "fc"},
        ]
    },
    "data": {"pad": 4, "random_crop": True, "flip": True},
}
MEAN, STD = [0.49139968, 0.48215841, 0.44653091], [0.24703223, 0.24348513, 0.26158784]


def program(*arguments: object) -> str:
    """The program's own command line, from this package."""
    command = [sys.executable, "-m", "ftprop", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def say(what: str, value: str, wanted: str) -> None:
    print(f"{what:<64} {value:>16}   wanted: {wanted}", flush=True)


def measure_import() -> None:
    """The least of several, as nothing else should count; numpy is most of it."""
    for what, clock in (("import ftprop", "perf_counter"), ("the same by the processor's time", "process_time")):
        timed = f"from time import {clock} as now; t = now(); import ftprop; print(now() - t)"
        runs = [subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True) for _ in range(9)]
        say(what, f"{min(float(run.stdout) for run in runs):.3f} s", "< 0.15 s")


def measure_packed(folder: Path) -> None:
    """Predictions of a packed convnet8 against `ftprop bench infer`, in turn."""
    run = ftprop.untrained("convnet8-sign-ftpsh", (32, 32, 3))
    path = run.export(folder / "c8.ftp")
    rng = np.random.default_rng(0)
    for threads in (1, 2):
        model = ftprop.load(path, threads=threads)
        assert isinstance(model, ftprop.PackedModel)
        for batch, steps, wanted in ((64, 30, 0.95), (1, 600, 0.8)):
            X = rng.integers(0, 256, (batch, 32, 32, 3), dtype=np.uint8)
            ratios = []
            for _ in range(5):
                words = ("bench", "infer", path, "--batch", batch, "--threads", threads, "--steps", steps, "--json")
                theirs = json.loads(program(*words))["images_per_s"]
                times = []
                for number in range(steps + 3):
                    started = time.perf_counter()
                    model.predict(X)
                    if number >= 3:
                        times.append(time.perf_counter() - started)
                ratios.append(batch / statistics.median(times) / theirs)
            listed = " ".join(f"{r:.3f}" for r in sorted(ratios))
            say(f"packed predict, batch {batch}, {threads} thread(s) ({listed})", f"{statistics.median(ratios):.3f}x", f">= {wanted}x")


def cifar(folder: Path) -> tuple[Any, Any, Any, Any]:
    """Random pictures as arrays and as CIFAR-10's files."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (60_000, 32, 32, 3), dtype=np.uint8)
    y = rng.integers(0, 10, 60_000).astype(np.uint8)
    files = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    for number, name in enumerate(files):
        part = slice(10_000 * number, 10_000 * (number + 1))
        rows = np.concatenate([y[part, None], X[part].transpose(0, 3, 1, 2).reshape(10_000, -1)], axis=1)
        (folder / name).write_bytes(rows.tobytes())
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    (folder / "batches.meta.txt").write_text("\n".join(names) + "\n")
    labels = np.array(names)[y]
    return X[:50_000], labels[:50_000], X[50_000:], labels[50_000:]


def measure_train(folder: Path) -> None:
    """Training from arrays against the program on the same pictures, in turn."""
    data = folder / "cifar"
    data.mkdir()
    X, y, X_test, y_test = cifar(data)
    recipe = {**NETWORK, "data": {**NETWORK["data"], "source": "cifar10"}, "train": {"epochs": 1, "batch": 64}}
    (folder / "recipe.toml").write_text(ftprop._native.recipe_toml(recipe))
    arrays = ftprop.Dataset(X, y, test=(X_test, y_test), mean=MEAN, std=STD, source="cifar10")
    speeds: list[list[float]] = [[], []]
    costs: list[list[float]] = [[], []]
    for turn in range(5):
        out = folder / f"program-{turn}"
        words = ("--recipe", folder / "recipe.toml", "--data", data, "--out", out, "--device", "cpu", "--json", "--quiet")
        before = os.times()
        speeds[0].append(json.loads(program("train", *words))["images_per_s"])
        between = os.times()
        run = ftprop.train(recipe, arrays, device="cpu", out=folder / f"python-{turn}")
        after = os.times()
        speeds[1].append(float(run.metrics["images_per_s"].mean()))
        costs[0].append(between.children_user + between.children_system - before.children_user - before.children_system)
        costs[1].append(after.user + after.system - between.user - between.system)
        for name in ("best.safetensors", "checkpoint.safetensors"):
            assert (out / name).read_bytes() == (folder / f"python-{turn}" / name).read_bytes(), name
    # Other work on the machine only ever slows one of them down, so the best of each counts.
    listed = f"best of 5, {max(speeds[1]):.0f} and {max(speeds[0]):.0f} images/s"
    say(f"training from arrays, same bytes ({listed})", f"{max(speeds[1]) / max(speeds[0]):.3f}x", ">= 0.97x")
    listed = f"{min(costs[1]):.1f} and {min(costs[0]):.1f} s"
    say(f"the same by the processor's time ({listed})", f"{min(costs[0]) / min(costs[1]):.3f}x", ">= 0.97x")


def measure_thread() -> None:
    """How much of its counting another Python thread gets done while one thread trains: of what it counts alone, and, where
    other programs are about, of what it counts while the program trains in a process of its own."""
    counted = 0
    going = True

    def count() -> None:
        nonlocal counted
        while going:
            counted += 1

    def rate(seconds: float) -> float:
        before, started = counted, time.perf_counter()
        time.sleep(seconds)
        return (counted - before) / (time.perf_counter() - started)

    X = np.random.default_rng(0).integers(0, 256, (4096, 32, 32, 3), dtype=np.uint8)
    data = ftprop.Dataset(X, np.arange(4096) % 10)
    recipe = {**NETWORK, "train": {"epochs": 1000, "batch": 64}, "data": {"workers": 0}}
    thread = threading.Thread(target=count)
    thread.start()
    shares, beside = [], []
    for _ in range(5):
        alone = rate(1.5)
        words = ["bench", "train", "--network", "convnet4", "--threads", "1", "--steps", "100000", "--device", "cpu"]
        other = subprocess.Popen([sys.executable, "-m", "ftprop", *words], stdout=subprocess.DEVNULL)
        time.sleep(1.0)
        with_program = rate(2.0)
        other.kill()
        other.wait()
        seen: list[tuple[int, float]] = []

        def watch(epoch: ftprop.Epoch) -> bool:
            seen.append((counted, time.perf_counter()))
            return seen[-1][1] - seen[0][1] > 3.0

        ftprop.train(recipe, data, device="cpu", threads=1, callbacks=[watch])
        together = (seen[-1][0] - seen[0][0]) / (seen[-1][1] - seen[0][1])
        shares.append(together / alone)
        beside.append(together / with_program)
    going = False
    thread.join()
    listed = " ".join(f"{s:.2f}" for s in beside)
    say(f"the same, of what it counts beside the program ({listed})", f"{statistics.median(beside):.2f}", ">= 0.80")
    listed = " ".join(f"{s:.2f}" for s in shares)
    say(f"another Python thread counts while training ({listed})", f"{statistics.median(shares):.2f}", ">= 0.80")


MEMORY = """
import json, sys
import numpy as np
import ftprop
def peak():
    return next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmHWM')) / 1024
X = np.random.default_rng(0).integers(0, 256, (50_000, 32, 32, 3), dtype=np.uint8)
y = np.arange(50_000) % 10
before = peak()
recipe = json.loads(sys.argv[1])
ftprop.train(recipe, (X, y), device='cpu', callbacks=[lambda e: True])
print(peak() - before)
"""


def measure_memory() -> None:
    """The most memory above the array itself, in a process of its own."""
    for name, recipe in (
        ("a small network", {**NETWORK, "train": {"epochs": 1, "batch": 64}}),
        ("convnet4", {"network": {"preset": "convnet4"}, "train": {"epochs": 1, "batch": 64}, "data": {"validation": 0.9}}),
    ):
        done = subprocess.run([sys.executable, "-c", MEMORY, json.dumps(recipe)], capture_output=True, text=True, check=True)
        say(f"peak memory above an array of 50,000 pictures, {name}", f"{float(done.stdout):.0f} MB", "<= 100 MB")


def main(arguments: list[str]) -> None:
    """What was asked for, or all."""
    wheels = [argument.removeprefix("wheel=") for argument in arguments if argument.startswith("wheel=")]
    asked = set(arguments) - {f"wheel={wheel}" for wheel in wheels} or {"import", "packed", "train", "thread", "memory"}
    for wheel in wheels:
        say("wheel", f"{os.path.getsize(wheel) / 1e6:.1f} MB", "<= 12 MB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "import" in asked:
            measure_import()
        if "packed" in asked:
            measure_packed(folder)
        if "train" in asked:
            measure_train(folder)
        if "thread" in asked:
            measure_thread()
        if "memory" in asked:
            measure_memory()


if __name__ == "__main__":
    main(sys.argv[1:])
