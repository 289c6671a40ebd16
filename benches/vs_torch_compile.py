#!/usr/bin/env python3
"""Training on a GPU: ftprop against PyTorch at its fastest, torch.compile replayed as one CUDA graph, in one run.

    benches/vs_torch_compile.py [--python PYTHON_WITH_TORCH] [--ftprop target/release/ftprop] [--device cuda:0]
                                [--mode compile|graph|eager] [--out FILE.json] [CASE...]

A CASE is network/batch/precision, such as convnet8/64/tf32. Of each case ftprop runs, then PyTorch, then ftprop once
more; ours is the median of the two processes' medians, PyTorch's is the median of seven rounds. What is done at first use
goes before and is not counted: PyTorch compiles all cases side by side into its cache, ftprop chooses kernels case by case.
Both times are printed after the table, which is in Markdown.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

CASES = ["convnet4/64/tf32", "convnet8/64/tf32", "convnet4/1024/bf16", "convnet8/1024/bf16", "bireal18/256/bf16",
         "alexnet/128/tf32", "alexnet/128/bf16", "resnet18/256/bf16"]
HERE = os.path.dirname(os.path.abspath(__file__))


def run(command, seconds):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer after {seconds} s"}
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"}
    # Ours is spread over lines, PyTorch may write something before.
    return json.loads(done.stdout[done.stdout.index("{"):])


def arguments(case):
    network, batch, precision = case.split("/")
    return ["--network", network, "--activation", "sign", "--batch", batch, "--precision", precision]


def theirs(case, steps, a):
    return run([a.python, os.path.join(HERE, "torch_train.py"), *arguments(case), "--device", "cuda", "--mode", a.mode,
                "--steps", steps], 240)


def timed(work):
    begun = time.monotonic()
    return work(), time.monotonic() - begun


def measure(case, a):
    steps = "200" if case.split("/")[1] == "64" else "30"
    ours = lambda count: run([a.ftprop, "bench", "train", *arguments(case), "--steps", count, "--device", a.device, "--json"], 120)
    _, first_use = timed(lambda: ours("5"))
    first = ours(steps)
    peer = theirs(case, steps, a)
    second = ours(steps)
    return {"case": case, "ours": [first, second], "theirs": peer, "first_use_s": first_use}


def row(found):
    wrong = [side["error"] for side in [*found["ours"], found["theirs"]] if "error" in side]
    network, batch, precision = found["case"].split("/")
    name = f"{network}, batch {batch}, {precision}"
    if wrong:
        return f"| {name} | failed: {wrong[0]} | | |"
    ours = statistics.median(side["ms_per_step"] for side in found["ours"])
    theirs = found["theirs"]["ms_per_step"]
    return f"| {name} | {ours:.3f} | {theirs:.3f} | {theirs / ours:.2f}× |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ftprop", default="target/release/ftprop")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--mode", default="compile", choices=("compile", "graph", "eager"))
    parser.add_argument("--out", help="where everything that was measured is kept, as JSON")
    a = parser.parse_args()
    found = []
    print(f"{datetime.date.today()}, PyTorch's mode: {a.mode}\n")
    print("| step | ftprop, ms | PyTorch, ms | ratio |\n| --- | --- | --- | --- |", flush=True)
    with ThreadPoolExecutor(8) as pool:
        compiled = list(pool.map(lambda case: timed(lambda: theirs(case, "1", a)), a.cases))
    for case in a.cases:
        found.append(measure(case, a))
        print(row(found[-1]), flush=True)
        if a.out:
            with open(a.out, "w") as file:
                json.dump(found, file, indent=1)
    print("\nSeconds of the first process of each case, ftprop alone and PyTorch with up to eight side by side:")
    for one, (_, seconds) in zip(found, compiled):
        print(f"  {one['case']}: {one['first_use_s']:.1f}, {seconds:.1f}")


if __name__ == "__main__":
    main()
