#!/usr/bin/env python3
"""Training on the CPU: ftprop against PyTorch, alternating on the same machine in the same run.

    benches/vs_torch.py --python PYTHON_WITH_TORCH [--ftprop target/release/ftprop] [--rounds 5] [--threads 2]
                        [--out results/cpu-training.md] [CASE...]

A CASE is network/activation/batch, such as convnet8/qrelu:3/64. Each round runs ftprop, then PyTorch, once each;
the ratio of a round is PyTorch's time over ftprop's, and the table gives the median of the ratios and their spread.
Memory is the whole process's peak.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys

from cpu_name import cpu_name

CASES = ["convnet4/sign/64", "convnet8/sign/64", "convnet8/qrelu:3/64", "resnet18/sign/16", "alexnet/sign/16"]
HERE = os.path.dirname(os.path.abspath(__file__))


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def measure(case, a):
    network, activation, batch = case.rsplit("/", 2)
    steps = str(a.steps if int(batch) > 16 else max(3, a.steps // 4))
    common = ["--network", network, "--activation", activation, "--batch", batch, "--threads", str(a.threads), "--steps", steps]
    rounds = []
    for number in range(a.rounds):
        ours = run([a.ftprop, "bench", "train", *common, "--device", "cpu", "--json"])
        peers = [run([a.python, os.path.join(HERE, "torch_train.py"), *common, "--layout", layout])
                 for layout in ("channels_last", "contiguous")]
        theirs = min(peers, key=lambda p: p["ms_per_step"])
        rounds.append((ours, theirs))
        print(f"{case} round {number + 1}: ftprop {ours['ms_per_step']:.1f} ms, {theirs['peer']} "
              f"{theirs['ms_per_step']:.1f} ms ({theirs['layout']}), ratio "
              f"{theirs['ms_per_step'] / ours['ms_per_step']:.2f}", file=sys.stderr, flush=True)
    return rounds


def row(case, rounds):
    median = lambda values: statistics.median(values)
    ratios = [t["ms_per_step"] / o["ms_per_step"] for o, t in rounds]
    ours, theirs = median([o["images_per_s"] for o, _ in rounds]), median([t["images_per_s"] for _, t in rounds])
    memory = median([o["peak_rss_mb"] / t["peak_rss_mb"] for o, t in rounds])
    first = median([o["first_step_s"] for o, _ in rounds])
    network, activation, batch = case.rsplit("/", 2)
    return (f"| {network} {activation}, batch {batch} | {ours:.0f} | {theirs:.0f} | {median(ratios):.2f}× "
            f"({min(ratios):.2f} to {max(ratios):.2f}) | {memory:.2f}× | {first:.2f} s |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="a Python that has torch")
    parser.add_argument("--ftprop", default=os.path.join(HERE, "..", "target", "release", "ftprop"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", help="write the table here, too")
    parser.add_argument("cases", nargs="*", default=CASES)
    a = parser.parse_args()
    measured = [(case, measure(case, a)) for case in a.cases]
    ours, theirs = measured[0][1][0]
    lines = [
        "# Training on the CPU, against PyTorch", "",
        f"{cpu_name()}, {a.threads} threads, {ours['isa']}; {theirs['peer']}, the better of its two layouts; "
        f"{datetime.date.today().isoformat()}. Made by `benches/vs_torch.py`: {a.rounds} alternations, median of the "
        "ratios and their spread; soft hinge, Adam, no data loading.", "",
        "| | ftprop, images/s | PyTorch, images/s | speed ratio | peak memory ratio | ftprop's first step after |",
        "| --- | --- | --- | --- | --- | --- |", *[row(case, rounds) for case, rounds in measured]]
    text = "\n".join(lines) + "\n"
    print(text)
    if a.out:
        os.makedirs(os.path.dirname(a.out) or ".", exist_ok=True)
        with open(a.out, "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
