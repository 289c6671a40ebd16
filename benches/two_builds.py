#!/usr/bin/env python3
"""Training steps of two builds of ftprop in turn, on one device in one run.

    benches/two_builds.py OLD NEW [--device cuda:0] [--rounds 2] [--words late,inline] [CASE...]

OLD and NEW are programs, a CASE is network/batch/precision, such as convnet8/64/tf32. Each build has a cache of its own, which
its first process of a case fills: how long that took until its first step stands at the end of the row. Then the builds take
turns. With --words NEW runs once more with each of these words of FTPROP_CUDA_TRY, which docs/performance.md lists. The
table is in Markdown.
"""
import argparse
import os
import statistics
import tempfile

from vs_torch_compile import CASES, arguments, run


class Build:
    def __init__(self, program, cache, device):
        self.program, self.cache, self.device = os.path.abspath(program), cache, device

    def bench(self, case, words=""):
        command = [self.program, "bench", "train", *arguments(case), "--device", self.device, "--json"]
        found = run(["env", f"FTPROP_CACHE={self.cache}", f"FTPROP_CUDA_TRY={words}", *command], 180)
        if "error" in found:
            raise SystemExit(f"{self.program}, {case}: {found['error']}")
        return found


def listed(values):
    return ", ".join(f"{value:.3f}" for value in values)


def row(case, builds, rounds, words):
    first = [build.bench(case)["first_step_s"] for build in builds]
    times = [[], []]
    for _ in range(rounds):
        for build, found in zip(builds, times):
            found.append(build.bench(case)["ms_per_step"])
    old, new = times
    with_words = [f"{builds[1].bench(case, word)['ms_per_step']:.3f}" for word in words]
    ratio = statistics.median(old) / statistics.median(new)
    cells = [case, listed(old), listed(new), f"{ratio:.3f}×", *with_words, " / ".join(f"{seconds:.1f}" for seconds in first)]
    return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--words", default="")
    a = parser.parse_args()
    words = [word for word in a.words.split(",") if word]
    head = ["step", "old, ms", "new, ms", "old / new", *(f"new, `{word}`" for word in words), "first step, s"]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        builds = [Build(program, os.path.join(folder, name), a.device) for program, name in ((a.old, "old"), (a.new, "new"))]
        for case in a.cases:
            print(row(case, builds, a.rounds, words), flush=True)


if __name__ == "__main__":
    main()
