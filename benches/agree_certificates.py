#!/usr/bin/env python3
"""Two checkers, one verdict: `ftprop verify` and check_certificate.py on the same certificates, true and forged.

    benches/agree_certificates.py target/release/ftprop
"""

import copy
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import check_certificate as second

PROGRAM = sys.argv[1]
FORGED = 40


def first(certificate, table):
    return subprocess.run([PROGRAM, "verify", certificate, table], capture_output=True).returncode


def other(certificate, table):
    try:
        return 0 if second.check(certificate, table) else second.ON_TRUST
    except (second.Refused, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return 1


def seal(certificate):
    plain = json.dumps({**certificate, "checksum": ""}, separators=(",", ":"), ensure_ascii=False)
    return {**certificate, "checksum": second.fnv(plain.encode())}


def leaves(value, path=()):
    if isinstance(value, (dict, list)):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, path + (key,))
    elif path != ("checksum",):
        yield path


def forge(certificate, rng):
    forged = copy.deepcopy(certificate)
    path = rng.choice(list(leaves(forged)))
    place = forged
    for key in path[:-1]:
        place = place[key]
    old = place[path[-1]]
    if isinstance(old, bool):
        new = not old
    elif isinstance(old, int):
        new = max(0, old + rng.choice([-1, 1, 2]))
    else:
        new = rng.choice([old + "0", old[1:], "-" + old, "1", "labels", "search", "enumeration", "+" * len(old)])
    place[path[-1]] = new
    return seal(forged)


def main():
    rng = random.Random(1)
    counts = {0: 0, 1: 0, second.ON_TRUST: 0}
    with tempfile.TemporaryDirectory() as folder:
        table, file = f"{folder}/table.csv", f"{folder}/certificate.json"
        cases = [(2, 14, "1"), (2, 12, "2"), (3, 12, "1"), (5, 14, "1"), (1, 10, "2"), (2, 8, "1,2"), (4, 10, None)]
        for inputs, instances, hidden in cases:
            rows = [[str(rng.randrange(60) / 10) for _ in range(inputs)] + [rng.choice("ab")] for _ in range(instances)]
            Path(table).write_text("".join(",".join(row) + "\n" for row in rows))
            if hidden:
                make = [PROGRAM, "solve", "--data", table, "--hidden", hidden, "--budget", "20s"]
            else:
                make = [PROGRAM, "separable", table]
            subprocess.run(make + ["--certificate", file], check=True, capture_output=True)
            true = json.loads(Path(file).read_text())
            for forged in [true] + [forge(true, rng) for _ in range(FORGED)]:
                Path(file).write_text(json.dumps(forged, indent=2, ensure_ascii=False))
                verdicts = first(file, table), other(file, table)
                if verdicts[0] != verdicts[1]:
                    sys.exit(f"the checkers disagree, {verdicts}: {json.dumps(forged)[:2000]}\n{Path(table).read_text()}")
                counts[verdicts[0]] += 1
            if hidden != "1,2" and (Path(file).write_text(json.dumps(true)), first(file, table))[1] != 0:
                sys.exit("a certificate as it was made is not proved")
    print(f"the checkers agree: {counts[0]} proved, {counts[second.ON_TRUST]} on trust, {counts[1]} refused")


if __name__ == "__main__":
    main()
