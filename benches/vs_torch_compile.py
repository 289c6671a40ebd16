#!/usr/bin/env python3
"""Training on a GPU: ftprop against PyTorch at its fastest, torch.compile replayed as one CUDA graph, in one run.

    benches/vs_torch_compile.py [--python PYTHON_WITH_TORCH] [--ftprop target/release/ftprop] [--device cuda:0]
                                [--mode compile|graph|eager] [--out FILE.json] [CASE...]

A CASE is network/batch/precision, such as convnet8/64/tf32. Of each case ftprop runs, then PyTorch, then ftprop once
more; ours is the median of the two processes' medians. PyTorch's process compiles once and takes the median of seven rounds. The
first run of ftprop on a machine also chooses kernels, so one goes before that is not counted. Prints a table in Markdown.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys

CASES = ["convnet4/64/tf32", "convnet8/64/tf32", "convnet4/1024/tf32", "convnet4/1024/bf16", "convnet8/1024/tf32",
         "convnet8/1024/bf16", "resnet18/256/bf16"]
HERE = os.path.dirname(os.path.abspath(__file__))


def run(command, seconds):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer after {seconds} s"}
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(case, a):
    network, batch, precision = case.split("/")
    common = ["--network", network, "--activation", "sign", "--batch", batch, "--precision", precision]
    steps = "200" if int(batch) <= 64 else "30"
    ours = lambda count: run([a.ftprop, "bench", "train", *common, "--steps", count, "--device", a.device, "--json"], 120)
    ours("5")
    first = ours(steps)
    theirs = run([a.python, os.path.join(HERE, "torch_train.py"), *common, "--device", "cuda", "--mode", a.mode,
                  "--steps", steps], 180)
    second = ours(steps)
    return {"case": case, "ours": [first, second], "theirs": theirs}


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
    for case in a.cases or CASES:
        found.append(measure(case, a))
        print(row(found[-1]), flush=True)
        if a.out:
            with open(a.out, "w") as file:
                json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
