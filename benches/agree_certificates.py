#!/usr/bin/env python3
"""Two checkers, one verdict: `ftprop verify` and check_certificate.py on the same certificates, true and forged, and the
same for check_robustness.py and those of `ftprop robust`.

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
import check_robustness as third

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
    elif old is None:
        new = [1]
    elif " " in old:
        words = old.split(" ")
        words[rng.randrange(len(words))] = rng.choice(["b", "c0", "c1", "0", "1"])
        new = " ".join(words[: rng.choice([len(words), len(words) - 1])])
    else:
        new = rng.choice([old + "0", old[1:], "-" + old, "1", "labels", "search", "enumeration", "+" * len(old)])
    place[path[-1]] = new
    return seal(forged)


# Witnesses that are none.
NO_WITNESSES = [[], [(999, "1")], [(0, "1")], [(1, "0")], [(1, "1")], [(1, "1"), (1, "1")], [(1, "1"), (2, "1")]]


def proofs(certificate):
    """Proofs of other kinds, for as much and for nothing: those that nobody needs must hold too."""
    if certificate["claim"]["kind"] != "network":
        return
    as_terms = lambda witness: [{"instance": instance, "y": y} for instance, y in witness]
    others = [{"by": "witnesses", "witnesses": [as_terms(witness)]} for witness in NO_WITNESSES]
    others += [{"by": "witnesses", "witnesses": []}, {"by": "enumeration"}, {"by": "labels"}, {"by": "search"}]
    for at_least in {0, certificate["claim"]["bound"]["at_least"]}:
        for proof in others:
            forged = copy.deepcopy(certificate)
            forged["claim"]["bound"] = {"at_least": at_least, "proof": proof}
            yield seal(forged)


def robust(rng, folder, counts):
    """Certificates of `robust` are on trust to the one that has no model, and proved to the other."""
    table, run, file = f"{folder}/robust.csv", f"{folder}/run", f"{folder}/robust.json"
    rows = [[str(rng.randrange(16) / 8) for _ in range(2)] + [rng.choice("abc")] for _ in range(12)]
    Path(table).write_text("".join(",".join(row) + "\n" for row in rows))
    make = [PROGRAM, "solve", "--data", table, "--hidden", "5,4", "--budget", "1s", "--search", "settled", "--save", run]
    subprocess.run(make, check=True, capture_output=True)
    subprocess.run([PROGRAM, "robust", run, "--radius", "0.3", "--certificate", file], check=True, capture_output=True)
    verify = [PROGRAM, "verify", file]
    if subprocess.run([*verify, "--model", run], capture_output=True).returncode != 0:
        sys.exit("a certificate of robust as it was made is not proved")
    true = json.loads(Path(file).read_text())
    # About nothing, or about one thing again and again, or about what the model's inputs cannot be.
    ball, claims = true["ball"], true["instances"]
    hollow = [{"ball": {**ball, "inputs": []}}, {"instances": []}, {"instances": claims + claims[:1]}]
    hollow = [seal({**true, **change}) for change in hollow + [{"ball": {**ball, "range": ["0", "2"]}}]]
    Path(file).write_text(json.dumps(hollow[-1]))
    if subprocess.run([*verify, "--model", run], capture_output=True).returncode != 1:
        sys.exit("a certificate about another range than the model's is not refused")
    for forged in [true, *hollow] + [forge(true, rng) for _ in range(4 * FORGED)]:
        Path(file).write_text(json.dumps(forged, ensure_ascii=False))
        try:
            other = second.ON_TRUST if third.check(file) else 1
        except (third.Refused, KeyError, TypeError, ValueError, AttributeError, IndexError):
            other = 1
        # What has the format of no certificate of robust is asked for its data, which is a refusal too.
        code = subprocess.run(verify, capture_output=True).returncode
        verdicts = 1 if code == 2 else code, other
        if verdicts[0] != verdicts[1]:
            sys.exit(f"the checkers of robustness disagree, {verdicts}: {json.dumps(forged)}")
        counts[verdicts[0]] += 1


def main():
    rng = random.Random(1)
    counts = {0: 0, 1: 0, second.ON_TRUST: 0}
    with tempfile.TemporaryDirectory() as folder:
        table, file = f"{folder}/table.csv", f"{folder}/certificate.json"
        cases = [(2, 14, "1"), (2, 12, "2"), (3, 12, "1"), (5, 14, "1"), (1, 10, "2"), (2, 9, "3"), (2, 8, "1,2"), (4, 10, None)]
        # Too wide to be listed.
        cases.append((20, 60, "2"))
        for inputs, instances, hidden in cases:
            rows = [[str(rng.randrange(60) / 10) for _ in range(inputs)] + [rng.choice("ab")] for _ in range(instances)]
            Path(table).write_text("".join(",".join(row) + "\n" for row in rows))
            if hidden:
                make = [PROGRAM, "solve", "--data", table, "--hidden", hidden, "--budget", "20s"]
            else:
                make = [PROGRAM, "separable", table]
            subprocess.run(make + ["--certificate", file], check=True, capture_output=True)
            true = json.loads(Path(file).read_text())
            for forged in [true, *proofs(true)] + [forge(true, rng) for _ in range(FORGED)]:
                Path(file).write_text(json.dumps(forged, indent=2, ensure_ascii=False))
                verdicts = first(file, table), other(file, table)
                if verdicts[0] != verdicts[1]:
                    sys.exit(f"the checkers disagree, {verdicts}: {json.dumps(forged)[:2000]}\n{Path(table).read_text()}")
                counts[verdicts[0]] += 1
            if hidden != "1,2" and (Path(file).write_text(json.dumps(true)), first(file, table))[1] != 0:
                sys.exit("a certificate as it was made is not proved")
        robust(rng, folder, counts)
    print(f"the checkers agree: {counts[0]} proved, {counts[second.ON_TRUST]} on trust, {counts[1]} refused")


if __name__ == "__main__":
    main()
