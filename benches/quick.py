"""Seconds to 70 % on CIFAR-10 with sign units on a CPU: the recipe quick-sign, several seeds, on a machine with nothing else to do.

    python benches/quick.py --program target/release/ftprop --data cifar-10-batches-bin --threads 2 --seeds 3
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--program", default="ftprop")
parser.add_argument("--data", default="cifar-10-batches-bin")
parser.add_argument("--threads", default="2")
parser.add_argument("--seeds", type=int, default=3)
args = parser.parse_args()
for seed in range(1, args.seeds + 1):
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = [args.program, "train", "--recipe", "quick-sign", "--data", args.data, "--device", "cpu", "--quiet"]
        began = time.perf_counter()
        subprocess.run(
            [*command, "--threads", args.threads, "--seed", str(seed), "--out", run], check=True, stdout=subprocess.DEVNULL
        )
        whole = time.perf_counter() - began
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    training = sum(50_000 / row["images_per_s"] for row in rows)
    print(f"seed {seed}: {100 * rows[-1]['test']['top1']:.2f} %, {training:.1f} s of training, {whole:.1f} s in all")
