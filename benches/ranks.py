#!/usr/bin/env python3
"""Two ranks of one thread each beside one process of two threads: images/s on the CPU, alternating, and their ratio.

    benches/ranks.py PATH/TO/ftprop CIFAR-FOLDER [ROUNDS]

Wants Open MPI's mpirun and a machine that does nothing else. Trains convnet8 at batch 128 for one epoch each time, on a tenth of
CIFAR-10; what `exchanged` says is printed beside.
"""

import json
import os
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile


def epoch(command, folder, environment):
    subprocess.run([*command, "--out", str(folder)], check=True, env=environment, stdout=subprocess.DEVNULL)
    line = (folder / "metrics.jsonl").read_text().splitlines()[-1]
    return json.loads(line)


def main():
    program, data = os.path.abspath(sys.argv[1]), sys.argv[2]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    environment = dict(os.environ, FTPROP_TOKEN=secrets.token_hex(16))
    settings = ["--set", "train.batch=128", "--set", "data.validation=45000", "--set", "train.checkpoint_seconds=1e6"]
    train = [program, "train", "--recipe", "convnet8-sign-ftpsh", "--data", data, "--epochs", "1", "--quiet",
             "--device", "cpu", *settings]
    ranks = ["mpirun", "-n", "2", "--bind-to", "core", "-x", "FTPROP_TOKEN"]
    if os.geteuid() == 0:
        ranks.insert(1, "--allow-run-as-root")
    rates = {"one process of two threads": [], "two ranks of one thread": []}
    with tempfile.TemporaryDirectory() as temp:
        for number in range(rounds):
            folder = pathlib.Path(temp)
            one = epoch([*train, "--threads", "2"], folder / f"one{number}", environment)
            two = epoch([*ranks, *train, "--threads", "1"], folder / f"two{number}", environment)
            rates["one process of two threads"].append(one["images_per_s"])
            rates["two ranks of one thread"].append(two["images_per_s"])
            print(f"{one['images_per_s']:.0f} and {two['images_per_s']:.0f} images/s, "
                  f"{100 * two['exchanged']:.1f} % of the time exchanging", flush=True)
    one, two = (statistics.median(values) for values in rates.values())
    print(f"medians {one:.0f} and {two:.0f} images/s: {two / one:.3f}")


if __name__ == "__main__":
    main()
