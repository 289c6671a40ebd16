#!/usr/bin/env python3
"""Two ranks of one thread each beside one process of two threads: images/s on the CPU, alternating, and their ratio.

    benches/ranks.py PATH/TO/ftprop [ROUNDS]

Wants Open MPI's mpirun and a machine that does nothing else. Trains convnet8 at a batch of 128 in all, by `ftprop bench train
--devices`: whole epochs of the trainer on made-up pictures. A program that was built with `--features mpi` is measured by MPI and
over TCP, another over TCP twice.
"""

import json
import os
import secrets
import statistics
import subprocess
import sys


def measured(command, environment):
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["rows"][-1]


def main():
    program = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    environment = dict(os.environ, FTPROP_TOKEN=secrets.token_hex(16))
    train = [program, "bench", "train", "--network", "convnet8", "--steps", "30", "--json"]
    ranks = ["mpirun", "-n", "2", "--bind-to", "core", "-x", "FTPROP_TOKEN"]
    if os.geteuid() == 0:
        ranks.insert(1, "--allow-run-as-root")
    two = [*ranks, *train, "--devices", "cpu,cpu", "--batch", "64", "--threads", "1"]
    ways = {
        "one process of two threads": [*train, "--devices", "cpu", "--batch", "128", "--threads", "2"],
        "two ranks, --exchange tcp": [*two, "--exchange", "tcp"],
        "two ranks, --exchange auto": two,
    }
    rates = {way: [] for way in ways}
    for _ in range(rounds):
        for way, command in ways.items():
            row = measured(command, environment)
            rates[way].append(row["images_per_s"])
            print(f"{way}: {row['images_per_s']:.0f} images/s, {100 * row['exchanged']:.1f} % exchanging", flush=True)
    one, *others = rates
    for way in others:
        ratios = [ours / alone for ours, alone in zip(rates[way], rates[one])]
        print(f"{way}: median {statistics.median(rates[way]):.0f} images/s, {statistics.median(ratios):.3f} of {one} "
              f"({statistics.median(rates[one]):.0f}); ratios {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
