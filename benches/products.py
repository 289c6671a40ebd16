#!/usr/bin/env python3
"""What each product of a training step takes on a GPU by each kind of kernel: cuDNN's and cuBLASLt's, our tiles and patches, and our
products by shifts, as timing finds it before the first step.

    benches/products.py [--ftprop target/release/ftprop] [--device cuda:0] [--words cuts] [CASE...]
    benches/products.py --log FILE

A CASE is network/batch/precision, such as convnet8/1024/bf16. Microseconds, the fastest of each kind, with which one it was; bold is
what is chosen. A library's are a twentieth longer than they were, which is what it has to save to be chosen. --words adds
words of FTPROP_CUDA_TRY, which docs/performance.md lists. With --log what `FTPROP_CUDA_TRY=tell` wrote before is read
instead. The table is in Markdown.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

from vs_torch_compile import CASES, arguments

LINE = re.compile(r"^([\d.]+) ms for (\d+) times (.+) by (.+)$")
PRODUCT = re.compile(r"^(\w+) (\w+) n(\d+) (\d+x\d+x\d+) to (\d+) kernel (\S+) stride (\d+) pad (\d+) .* adds (\d)$")
KINDS = {"libraries": ("cudnn", "cublas"), "by shifts": ("shifted",), "our others": ("",)}


def kind_of(algorithm):
    return next(kind for kind, starts in KINDS.items() if algorithm.startswith(starts))


def products(lines):
    """The fastest of each kind for each product: {product: {kind: (microseconds, algorithm)}}."""
    found = {}
    for line in lines:
        match = LINE.match(line.strip())
        if match:
            total, times, product, algorithm = match.groups()
            kinds = found.setdefault(product, {})
            one = (1000 * float(total) / int(times), algorithm)
            kind = kind_of(algorithm)
            kinds[kind] = min(kinds.get(kind, one), one)
    return found


def name_of(product):
    match = PRODUCT.match(product)
    if not match:
        return product
    mode, precision, n, shape, out, window, stride, _, adds = match.groups()
    what = {"Forward": "forward", "Input": "slopes", "Weights": "gradient"}[mode]
    more = (f", stride {stride}" if stride != "1" else "") + (", added" if adds == "1" else "")
    return f"{shape} to {out}, {window}{more}, {n}, {precision}, {what}"


def row(product, kinds):
    best = min(kinds.values())

    def cell(kind):
        if kind not in kinds:
            return ""
        us, algorithm = kinds[kind]
        text = f"{us:.1f}" if us < 1000 else f"{us:.0f}"
        return f"{f'**{text}**' if kinds[kind] == best else text} {algorithm}"

    return f"| {name_of(product)} | {' | '.join(cell(kind) for kind in KINDS)} |"


def told(case, a):
    words = ",".join(["tell", *(word for word in a.words.split(",") if word)])
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "FTPROP_CACHE": cache, "FTPROP_CUDA_TRY": words}
        command = [a.ftprop, "bench", "train", *arguments(case), "--steps", "1", "--device", a.device]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{case}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
    return done.stderr.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--ftprop", default="target/release/ftprop")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--words", default="")
    parser.add_argument("--log")
    a = parser.parse_args()
    print(f"| product, µs | {' | '.join(KINDS)} |\n| --- |{' --- |' * len(KINDS)}", flush=True)
    logs = [open(a.log)] if a.log else (told(case, a) for case in a.cases)
    for lines in logs:
        for product, kinds in products(lines).items():
            print(row(product, kinds), flush=True)


if __name__ == "__main__":
    main()
