#!/usr/bin/env python3
"""Time to proof: `ftprop solve` beside HiGHS and CP-SAT, one hidden unit, the fewest errors, taking turns.

    benches/vs_solvers.py target/release/ftprop [--tables FOLDER] [--limit SECONDS] [--rounds N] > results/exact.md

needs a Python with highspy, ortools and numpy. FOLDER may hold cryotherapy_90x6.csv, haberman_283x3.csv and
voicepath_704x2.csv, numbers with a label in the last column. Whatever ftprop calls proved is proved again by
`ftprop verify`, and a table whose certificate is not is an error.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from statistics import median

from cpu_name import cpu_name


def made(instances, inputs, changed, seed):
    """Points on both sides of a hyperplane, some labels changed."""
    rng = random.Random(seed)
    weights = [rng.gauss(0, 1) for _ in range(inputs)]
    rows = [[round(rng.gauss(0, 1), 2) for _ in range(inputs)] for _ in range(instances)]
    labels = [sum(w * x for w, x in zip(weights, row)) > 0 for row in rows]
    for at in rng.sample(range(instances), changed):
        labels[at] = not labels[at]
    return "".join(",".join(map(str, row)) + (",b" if label else ",a") + "\n" for row, label in zip(rows, labels))


def read(path):
    rows = [line.split(",") for line in Path(path).read_text().splitlines() if line.strip()]
    try:
        float(rows[0][0])
    except ValueError:
        rows = rows[1:]
    names = sorted({row[-1] for row in rows})
    return [[Fraction(x) for x in row[:-1]] for row in rows], [1 if row[-1] == names[1] else -1 for row in rows]


def here(program, table, limit):
    """Errors, whether they are proved, and seconds; and the seconds of verify."""
    with tempfile.TemporaryDirectory() as folder:
        proof = f"{folder}/proof.json"
        command = [program, "solve", "--data", table, "--hidden", "1", "--json", "--budget", f"{limit}s"]
        started = time.time()
        done = subprocess.run(command + ["--certificate", proof], capture_output=True, check=True)
        seconds = time.time() - started
        report = json.loads(done.stdout)
        started = time.time()
        code = subprocess.run([program, "verify", proof, table], capture_output=True).returncode
        if code != 0:
            sys.exit(f"{table}: the certificate of {report['train']['errors']} errors is not proved, exit code {code}")
        return report["train"]["errors"], report["proved"], seconds, time.time() - started


def highs(rows, signs, limit):
    """The usual model: t (w · x + b) + 1000 z ≥ 1, z binary, inputs standardised, weights between −100 and 100."""
    import highspy
    import numpy as np

    x = np.array([[float(v) for v in row] for row in rows])
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
    started = time.time()
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("time_limit", float(limit))
    model.setOptionValue("threads", 2)
    weights = [model.addVariable(-100, 100) for _ in range(x.shape[1] + 1)]
    errors = [model.addBinary() for _ in rows]
    for row, sign, error in zip(x, signs, errors):
        terms = [float(sign * v) * w for v, w in zip(row, weights)]
        model.addConstr(sum(terms) + float(sign) * weights[-1] + 1000.0 * error >= 1)
    model.minimize(sum(errors))
    done = model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return round(model.getInfo().objective_function_value), done, time.time() - started, f"HiGHS {model.version()}"


def cp_sat(rows, signs, limit):
    """Whole weights between −1000 and 1000 over inputs made whole; an instance is right or given up."""
    import ortools
    from ortools.sat.python import cp_model

    scales = [max(x.denominator for x in column) for column in zip(*rows)]
    whole = [[int(x * scale) for x, scale in zip(row, scales)] for row in rows]
    started = time.time()
    model = cp_model.CpModel()
    weights = [model.new_int_var(-1000, 1000, f"w{at}") for at in range(len(scales))]
    reach = 1000 * max(sum(map(abs, row)) for row in whole)
    bias = model.new_int_var(-reach, reach, "b")
    errors = [model.new_bool_var(f"z{at}") for at in range(len(rows))]
    for row, sign, error in zip(whole, signs, errors):
        total = sum(v * w for v, w in zip(row, weights)) + bias
        model.add(sign * total >= 1).only_enforce_if(error.negated())
    model.minimize(sum(errors))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    found = round(solver.objective_value) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
    return found, status == cp_model.OPTIMAL, time.time() - started, f"OR-Tools {ortools.__version__}"


def apart(side, table, limit):
    """A solver in a process of its own: the libraries of the two do not go together in one."""
    done = subprocess.run([sys.executable, __file__, side, table, str(limit)], capture_output=True, check=True)
    return json.loads(done.stdout)


def cell(results):
    found, done, seconds = results[0][0], all(r[1] for r in results), median(r[2] for r in results)
    figure = f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{found}, {figure}" if done else f"{found}, not in {figure}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    cases = [("100 × 10, 2 labels changed", made(100, 10, 2, 1)), ("200 × 10, 4 labels changed", made(200, 10, 4, 2)),
             ("150 × 8, 10 labels changed", made(150, 8, 10, 3)), ("100 × 10, 10 labels changed", made(100, 10, 10, 4)),
             ("200 × 5, 20 labels changed", made(200, 5, 20, 5)), ("100 × 4, 20 labels changed", made(100, 4, 20, 6)),
             ("200 × 3, 30 labels changed", made(200, 3, 30, 7)), ("190 × 2, random labels", made(190, 2, 95, 8))]
    for name, file in [("cryotherapy, 90 × 6", "cryotherapy_90x6.csv"), ("Haberman, 283 × 3", "haberman_283x3.csv"),
                       ("voice pathology, 704 × 2", "voicepath_704x2.csv")]:
        if arguments.tables and (arguments.tables / file).exists():
            cases.append((name, (arguments.tables / file).read_text()))
    load = f"{os.getloadavg()[0]:.1f}"
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        table = f"{folder}/table.csv"
        for name, text in cases:
            Path(table).write_text(text)
            turns = [(here(arguments.program, table, arguments.limit), apart("highs", table, arguments.limit),
                      apart("cp-sat", table, arguments.limit)) for _ in range(arguments.rounds)]
            ours, second, third = zip(*turns)
            lines.append(f"| {name} | {cell(ours)} | {median(r[3] for r in ours):.2f} s | {cell(second)} | {cell(third)} |")
            print(lines[-1], file=sys.stderr)
    version = subprocess.run([arguments.program, "--version"], capture_output=True, text=True).stdout.strip()
    print(f"""# Time to proof, one hidden unit

The fewest errors that one unit makes, and the time until that is proved, the whole program with reading the table; at most
{arguments.limit:.0f} s each. {cpu_name()}, {os.cpu_count()} cores, load {load} at the start and {os.getloadavg()[0]:.1f} at
the end, programs taking turns, rounds: {arguments.rounds}, median. {version}; {second[0][3]}; CP-SAT of
{third[0][3]}. HiGHS computes in floating point with weights between −100 and 100, CP-SAT with whole
weights between −1000 and 1000: where they call more errors optimal, their model has no better
network. What ftprop says is proved
again by `ftprop verify`, in exact arithmetic.

| | ftprop | verify | HiGHS | CP-SAT |
| --- | --- | --- | --- | --- |""")
    print("\n".join(lines))
    print("\n    benches/vs_solvers.py target/release/ftprop --tables FOLDER > results/exact.md")


if __name__ == "__main__":
    if sys.argv[1] in ("highs", "cp-sat"):
        print(json.dumps((highs if sys.argv[1] == "highs" else cp_sat)(*read(sys.argv[2]), float(sys.argv[3]))))
    else:
        main()
