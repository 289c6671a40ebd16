#!/usr/bin/env python3
"""A second checker of certificates, written apart from the first: Python's own fractions, nothing else.

    benches/check_certificate.py certificate.json table.csv

Exit code 0: all that is claimed is proved. 3: nothing is wrong, but part is on trust. 1: refused.
docs/exact.md describes the format. Listing takes seconds for two units and 60 instances in the plane, or three and ten.
"""

import csv
import json
import sys
from fractions import Fraction
from itertools import combinations
from math import lcm
from pathlib import Path

ON_TRUST = 3
sys.set_int_max_str_digits(100_000)


class Refused(Exception):
    """What is wrong with a certificate."""


def need(true, why):
    if not true:
        raise Refused(why)


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def number(text):
    try:
        return Fraction(text) if "/" not in text and "_" not in text else None
    except ValueError:
        return None


def read_table(path):
    """Rows of fractions, the class of each row, and the classes' names."""
    lines = [line for line in Path(path).read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    separator = max(",;\t", key=lines[0].count)
    cells = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator, skipinitialspace=True)]
    named = len(cells[0]) > 1 and all(number(cell) is None for cell in cells[0][:-1])
    if named and all(row[-1] != cells[0][-1] for row in cells[1:]):
        cells = cells[1:]
    rows = [[number(cell) for cell in row[:-1]] for row in cells]
    names = [row[-1] for row in cells]
    key = number if all(number(name) is not None for name in names) else str
    keys = sorted({key(name) for name in names})
    shortest = lambda one: min((name for name in names if key(name) == one), key=lambda name: (len(name), name))
    return rows, [keys.index(key(name)) for name in names], [shortest(one) for one in keys]


def fingerprint(rows, labels):
    scales = [lcm(*(row[column].denominator for row in rows)) for column in range(len(rows[0]))]
    numbers = scales + [int(x * scale) for row in rows for x, scale in zip(row, scales)]
    return fnv(("".join(f"{n}," for n in numbers) + "".join(f"{label};" for label in labels)).encode())


def fraction(text):
    """Only the one spelling that certificates use."""
    need(isinstance(text, str) and len(text) <= 100_000, "a number is not text of a reasonable length")
    above, _, below = text.partition("/")
    plain = text.isascii() and above.removeprefix("-").isdigit() and (below or "1").isdigit() and int(below or 1)
    need(plain and str(Fraction(text)) == text, f"{text[:40]!r} is not a fraction in lowest terms")
    return Fraction(text)


def keys_are(value, *names):
    need(isinstance(value, dict) and set(value) == set(names), f"the fields should be {names}")


def whole(value):
    need(type(value) is int and value >= 0, "a count is not a whole number")
    return value


def output(weights, row):
    need(len(weights) == len(row) + 1, "a unit has the wrong number of weights")
    return sum(w * x for w, x in zip(weights, row + [1]))


def check_unit(unit, rows, targets):
    keys_are(unit, "weights", "functional_margin")
    weights = [fraction(weight) for weight in unit["weights"]]
    need(len(targets) == len(rows), "there are not as many targets as instances")
    margin = min(target * output(weights, row) for row, target in zip(rows, targets))
    need(margin > 0, "an instance is not on its side")
    need(margin == fraction(unit["functional_margin"]), "the margin is another")
    return weights


def check_witness(terms, rows, targets):
    """Gordan: shares of at least zero, not all zero, with which the instances cancel. Returns who has a share."""
    shares = {}
    for term in terms:
        keys_are(term, "instance", "y")
        at, y = whole(term["instance"]) - 1, fraction(term["y"])
        need(0 <= at < len(rows) and at not in shares, "a witness names an instance that is not there, or twice")
        need(y >= 0 and y.denominator == 1, "a share is not a whole number of at least zero")
        shares[at] = y
    need(any(shares.values()), "a witness is zero")
    for column in range(len(rows[0]) + 1):
        entry = lambda at: rows[at][column] if column < len(rows[0]) else 1
        need(sum(y * targets[at] * entry(at) for at, y in shares.items()) == 0, "a witness does not cancel")
    return {at for at, y in shares.items() if y}


def count(rows, labels, classes):
    """For each distinct instance how many of each class there are."""
    counts = {tuple(row): [0] * classes for row in rows}
    for row, label in zip(rows, labels):
        counts[tuple(row)][label] += 1
    return counts


def forced(rows, labels, classes):
    return sum(sum(one) - max(one) for one in count(rows, labels, classes).values())


def hit(sets, weights, kept, room):
    """Whether something of weight `room` at most, and nothing of what is kept, hits all sets."""
    if not sets:
        return True
    smallest = min((one - kept for one in sets), key=len)
    for thing in sorted(smallest):
        rest, left = [one for one in sets if thing not in one], room - weights[thing]
        if left >= 0 and hit(rest, weights, kept, left):
            return True
        kept = kept | {thing}
    return False


def eliminate(rows):
    """Independent rows, each with a 1 at its pivot where all others have a 0."""
    kept = []
    for row in rows:
        for pivot, known in kept:
            row = [x - row[pivot] * y for x, y in zip(row, known)]
        pivot = next((at for at, x in enumerate(row) if x), None)
        if pivot is not None:
            row = [x / row[pivot] for x in row]
            kept = [(at, [x - known[pivot] * y for x, y in zip(known, row)]) for at, known in kept] + [(pivot, row)]
    return dict(kept)


def half_spaces(points):
    """All sets of points on one side of some hyperplane, as sets of places."""
    moved = lambda points: [[x - y for x, y in zip(point, points[0])] for point in points]
    pivots = sorted(eliminate(moved(points)))
    points, width = [[point[pivot] for pivot in pivots] for point in points], len(pivots)  # As few as tell them apart.
    if width == 0:
        return {frozenset(), frozenset([0])}
    found, seen = set(), set()
    for chosen in combinations(range(len(points)), width):
        rows = eliminate(moved([points[at] for at in chosen]))
        if len(rows) < width - 1:
            continue
        # Perpendicular to all rows: 1 in the column without a pivot.
        free = next(column for column in range(width) if column not in rows)
        normal = [-rows[column][free] if column in rows else 1 for column in range(width)]
        level = sum(n * x for n, x in zip(normal, points[chosen[0]]))
        signs = [sum(n * x for n, x in zip(normal, point)) - level for point in points]
        on = tuple(at for at, sign in enumerate(signs) if sign == 0)
        if on in seen:
            continue
        seen.add(on)
        above = frozenset(at for at, sign in enumerate(signs) if sign > 0)
        below = frozenset(range(len(points))) - above - frozenset(on)
        for part in half_spaces([points[at] for at in on]):
            touched = frozenset(on[at] for at in part)
            found |= {above | touched, below | touched}
    return found


def fewest(rows, labels, units):
    """The fewest errors of one to three hidden units, by looking at everything."""
    counts = count(rows, labels, 2)
    inner_sets = {sum(1 << at for at in side) for side in half_spaces(list(counts))}
    sides, best = sorted(inner_sets), len(rows)
    if units > 1:  # Up to signs, one class is where one unit says +1, or both do;
        inner_sets |= {a & b for a, b in combinations(sides, 2)}
    if units > 2:  # or all three; one, and one of two; two of three.
        inner_sets |= {a & b for a in sides for b in inner_sets | {c | d for c, d in combinations(sides, 2)}}
        inner_sets |= {a & b | a & c | b & c for a, b, c in combinations(sides, 3)}
    for inner in (0, 1):
        planes = {}  # What it costs more if a point is inside; then what all cost outside.
        for at, one in enumerate(counts.values()):
            planes[one[1 - inner] - one[inner]] = planes.get(one[1 - inner] - one[inner], 0) | 1 << at
        outside = sum(one[inner] for one in counts.values())
        for inside in inner_sets:
            best = min(best, outside + sum(cost * (inside & mask).bit_count() for cost, mask in planes.items()))
    return best


def check_bound(bound, rows, labels, classes, shape, errors):
    """Returns whether the bound is proved, and not only trusted."""
    keys_are(bound, "at_least", "proof")
    at_least, proof = whole(bound["at_least"]), bound["proof"]
    by = proof.get("by") if isinstance(proof, dict) else None
    need(by in ("labels", "enumeration", "witnesses", "search"), "the proof is of no known kind")
    keys_are(proof, *(["by", "witnesses"] if by == "witnesses" else ["by"]))
    need(at_least <= errors, "the bound is above what the network does")
    by_labels = at_least <= forced(rows, labels, classes)
    if by == "labels":
        need(by_labels, "the labels do not force so many errors")
        return True
    if by == "search":
        return by_labels
    # What is there must hold, also where the labels would do, but for a listing, in which there is nothing that could be wrong.
    need(classes == 2 and shape in ([1], [2], [3]), "the bound is for other networks")
    if by == "enumeration":
        need(by_labels or fewest(rows, labels, shape[0]) >= at_least, "there is a better network")
        return True
    need(shape == [1], "the bound is for one unit")
    kinds = [(tuple(row), label) for row, label in zip(rows, labels)]
    weights = {kind: kinds.count(kind) for kind in set(kinds)}
    targets = [2 * label - 1 for label in labels]
    sets = [frozenset(kinds[at] for at in check_witness(terms, rows, targets)) for terms in proof["witnesses"]]
    need(at_least == 0 or not hit(sets, weights, frozenset(), at_least - 1), "fewer instances hit every witness")
    return True


def check_network(claim, rows, labels, classes):
    keys_are(claim, "kind", "hidden", "outputs", "errors", "loss", "bound")
    need(claim["hidden"] and all(claim["hidden"]), "there are no hidden units")
    need(len(claim["outputs"]) == (1 if classes == 2 else classes), "the number of output units is wrong")
    inputs = rows
    for layer in claim["hidden"]:
        signs = []
        for unit in layer:
            keys_are(unit, "targets", "unit")
            need(set(unit["targets"]) <= set("+-"), "targets are not signs")
            signs.append([1 if sign == "+" else -1 for sign in unit["targets"]])
            check_unit(unit["unit"], inputs, signs[-1])
        inputs = [list(column) for column in zip(*signs)]
    scores, hinge = [], Fraction(0)
    for at, unit in enumerate(claim["outputs"]):
        keys_are(unit, "weights", "verdict")
        positive = 1 if classes == 2 else at
        targets = [1 if label == positive else -1 for label in labels]
        answer = unit["verdict"].get("answer")
        need(answer in ("separable", "not-separable", "unknown"), "a verdict is of no known kind")
        field = {"separable": ["unit"], "not-separable": ["witness"], "unknown": []}[answer]
        keys_are(unit["verdict"], "answer", *field)
        if answer != "unknown":
            (check_unit if answer == "separable" else check_witness)(unit["verdict"][field[0]], inputs, targets)
        weights = [fraction(weight) for weight in unit["weights"]]
        scores.append([output(weights, row) for row in inputs])
        hinge += sum(max(Fraction(0), 1 - target * score) for target, score in zip(targets, scores[-1]))
    best = lambda scores: max(range(classes), key=lambda at: (scores[at], -at)) if classes > 2 else int(scores[0] > 0)
    found = [best([unit[i] for unit in scores]) for i in range(len(rows))]
    errors = sum(a != b for a, b in zip(found, labels))
    need(errors == whole(claim["errors"]), f"the network makes {errors} errors")
    loss, proved = claim["loss"], True
    need(loss["kind"] in ("zero-one", "hinge"), "the loss is of no known kind")
    keys_are(loss, *(["kind", "value", "least"] if loss["kind"] == "hinge" else ["kind"]))
    if loss["kind"] == "hinge":
        need(isinstance(loss["least"], bool) and fraction(loss["value"]) == hinge, "the hinge loss is another")
        proved = not loss["least"]
    shape = [len(layer) for layer in claim["hidden"]]
    return check_bound(claim["bound"], rows, labels, classes, shape, errors) and proved


def once(pairs):
    need(len(dict(pairs)) == len(pairs), "a field is there twice")
    return dict(pairs)


def check(certificate_path, table_path):
    """Whether everything is proved; raises Refused if something is wrong."""
    certificate = json.loads(Path(certificate_path).read_text(encoding="utf-8"), object_pairs_hook=once)
    keys_are(certificate, "format", "data", "claim", "checksum")
    need(certificate["format"] == "ftprop-certificate-2", "the format is another")
    plain = json.dumps({**certificate, "checksum": ""}, separators=(",", ":"), ensure_ascii=False)
    need(fnv(plain.encode()) == certificate["checksum"], "the checksum does not fit")
    rows, labels, names = read_table(table_path)
    identity = {"instances": len(rows), "inputs": len(rows[0]), "classes": names, "fingerprint": fingerprint(rows, labels)}
    need(certificate["data"] == identity, "it is about other data")
    claim, targets = certificate["claim"], [2 * label - 1 for label in labels]
    if claim["kind"] == "network":
        return check_network(claim, rows, labels, len(names))
    need(len(names) == 2 and claim["kind"] in ("separable", "not-separable"), "the claim is of no known kind")
    name = "unit" if claim["kind"] == "separable" else "witness"
    keys_are(claim, "kind", name)
    return bool({"unit": check_unit, "witness": check_witness}[name](claim[name], rows, targets))


if __name__ == "__main__":
    try:
        complete = check(sys.argv[1], sys.argv[2])
    except (Refused, KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as why:
        sys.exit(f"refused: {why}")
    print("all that it claims is proved" if complete else "nothing is wrong, but part of it is on trust")
    sys.exit(0 if complete else ON_TRUST)
