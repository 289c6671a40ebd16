#!/usr/bin/env python3
"""A second checker of `ftprop robust --certificate`, with nothing but whole numbers and fractions.

    benches/check_robustness.py CERTIFICATE

It proves every answer about the network and the instances that are in the file, or says what is wrong; that these are the
ones that are meant, the reader compares, or `ftprop verify --model` does. The format is described in docs/exact.md.
"""

import json
import math
import re
import sys
from fractions import Fraction

FORMAT = "ftprop-robustness-1"
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(/[1-9][0-9]*)?")


class Refused(Exception):
    pass


def need(holds, why):
    if not holds:
        raise Refused(why)


def fields(value, *names):
    need(isinstance(value, dict) and set(value) == set(names), f"the fields are not {', '.join(names)}")
    return [value[name] for name in names]


def number(text):
    need(isinstance(text, str) and NUMBER.fullmatch(text) and text != "-0", f"{text!r} is no number")
    value = Fraction(text)
    need(str(value) == text, f"{text} is not in lowest terms")
    return value


def count(value):
    need(type(value) is int and value >= 0, f"{value!r} is no count")
    return value


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def read_network(layers):
    network, inputs = [], None
    need(isinstance(layers, list) and layers, "there are no layers")
    for depth, layer in enumerate(layers):
        rows = [[number(weight) for weight in unit] for unit in layer]
        need(rows and all(len(row) == (inputs or len(rows[0]) - 1) + 1 > 1 for row in rows), "layers do not fit")
        need(all(weight.denominator == 1 for row in rows for weight in row), "a weight is not whole")
        rows = [[weight.numerator for weight in row] for row in rows]
        # What all weights of a hidden unit, or of all outputs, have in common is divided out.
        for group in [rows] if depth == len(layers) - 1 else [[row] for row in rows]:
            need(math.gcd(*[weight for row in group for weight in row]) in (0, 1), "weights have a common factor")
        inputs = len(rows)
        network.append(rows)
    need(len(network[-1]) > 1, "there are no two classes")
    return network


def dot(row, values):
    return sum(w * x for w, x in zip(row, values)) + row[-1]


def classify(network, values):
    for layer in network[:-1]:
        values = [1 if dot(row, values) > 0 else -1 for row in layer]
    scores = [dot(row, values) for row in network[-1]]
    return scores.index(max(scores))


def over_box(row, low, high):
    """The least and the greatest of a sum over the box."""
    least = most = row[-1]
    for w, l, h in zip(row, low, high):
        least, most = least + w * (l if w > 0 else h), most + w * (h if w > 0 else l)
    return least, most


def over_sides(row, sides):
    middle = row[-1] + sum(w * side for w, side in zip(row, sides))
    spread = sum(abs(w) for w, side in zip(row, sides) if side == 0)
    return middle - spread, middle + spread


def side(interval):
    return 1 if interval[0] > 0 else 0 if interval[1] > 0 else -1


def bounded(network, low, high, sides, own):
    """No other class can win where first-layer units are on these sides; 0 is either."""
    for layer in network[1:-1]:
        sides = [side(over_sides(row, sides)) for row in layer]
    for other, row in enumerate(network[-1]):
        if other != own:
            lead = [k - c for k, c in zip(row, network[-1][own])]
            most = (over_sides(lead, sides) if len(network) > 1 else over_box(lead, low, high))[1]
            if most > 0 or (most == 0 and other < own):
                return False
    return True


def check_conflict(first, low, high, conflict):
    units = [unit for unit, _ in conflict]
    need(units == sorted(set(units)), "the units of a conflict are not in order")
    total = [0] * len(first[0]) if first else []
    for unit, e in conflict:
        need(count(unit) < len(first) and type(e) is int and 0 < abs(e) < 2**63, "a conflict names no unit")
        total = [t + e * w for t, w in zip(total, first[unit])]
    need(total, "a conflict without units")
    most = over_box(total, low, high)[1]
    need(most < 0 or (most == 0 and any(e > 0 for _, e in conflict)), "a conflict is none")


def check_tree(network, low, high, own, conflicts, tree):
    first = network[0] if len(network) > 1 else []
    for conflict in conflicts:
        check_conflict(first, low, high, conflict)
    sides = [side(over_box(row, low, high)) for row in first]
    path, nodes = [], tree.split(" ")
    for at, node in enumerate(nodes):
        if re.fullmatch(r"0|[1-9][0-9]*", node):
            unit = int(node)
            need(unit < len(sides) and sides[unit] == 0, "a unit that is not free is split")
            sides[unit] = 1
            path.append(unit)
            continue
        if node == "b":
            need(bounded(network, low, high, sides, own), "another class may win in a branch")
        else:
            need(re.fullmatch(r"c(0|[1-9][0-9]*)", node) and int(node[1:]) < len(conflicts), "a node is unknown")
            need(all(sides[u] == (1 if e > 0 else -1) for u, e in conflicts[int(node[1:])]), "a conflict is not there")
        while path and sides[path[-1]] == -1:
            sides[path.pop()] = 0
        if not path:
            need(at + 1 == len(nodes), "there is more behind the tree")
            return
        sides[path[-1]] = -1
    raise Refused("the tree ends too early")


def check(path):
    with open(path, encoding="utf-8") as file:
        certificate = json.load(file)
    form, layers, ball, instances, checksum = fields(
        certificate, "format", "network", "ball", "instances", "checksum")
    need(form == FORMAT, f"the format is not {FORMAT}")
    plain = json.dumps({**certificate, "checksum": ""}, separators=(",", ":"), ensure_ascii=False)
    need(fnv(plain.encode()) == checksum, "the checksum does not fit")
    network = read_network(layers)
    inputs = len(network[0][0]) - 1
    radius, moving, reach = fields(ball, "radius", "inputs", "range")
    radius = number(radius)
    need(radius > 0, "the radius is not above zero")
    moving = set(range(inputs)) if moving is None else {count(i) - 1 for i in moving}
    need(moving, "no input may move")
    need(all(0 <= i < inputs for i in moving), "an input is not there")
    ends = None if reach is None else [number(end) for end in reach]
    need(ends is None or len(ends) == 2, "a range has two ends")
    need(instances, "there are no instances")
    numbers = [claim["instance"] for claim in instances]
    need(len(set(numbers)) == len(numbers), "an instance is named twice")
    tally = {"robust": 0, "changes": 0, "undecided": 0}
    for claim in instances:
        which, row, own, answer = fields(claim, "instance", "input", "class", "answer")
        count(which)
        row = [number(x) for x in row]
        need(len(row) == inputs, "an instance has other inputs")
        need(ends is None or all(ends[0] <= x <= ends[1] for x in row), "an instance lies outside of the range")
        low = [x - radius if i in moving else x for i, x in enumerate(row)]
        high = [x + radius if i in moving else x for i, x in enumerate(row)]
        if ends:
            low, high = [max(x, ends[0]) for x in low], [min(x, ends[1]) for x in high]
        need(classify(network, row) == count(own), "an instance has another class")
        kind = answer.get("kind") if isinstance(answer, dict) else None
        need(kind in tally, "an answer is unknown")
        tally[kind] += 1
        if kind == "robust":
            _, conflicts, tree = fields(answer, "kind", "conflicts", "tree")
            # Whole numbers are quicker than fractions, and the same.
            scale = math.lcm(*[x.denominator for x in low + high])
            scaled = [[*row[:-1], row[-1] * scale] for row in network[0]]
            low, high = [int(x * scale) for x in low], [int(x * scale) for x in high]
            check_tree([scaled, *network[1:]], low, high, own, conflicts, tree)
        elif kind == "changes":
            _, point, other = fields(answer, "kind", "input", "class")
            point = [number(x) for x in point]
            need(len(point) == inputs and all(l <= x <= h for l, x, h in zip(low, point, high)), "it is not in the ball")
            need(other != own and classify(network, point) == count(other), "a counterexample is none")
        else:
            fields(answer, "kind")
    return tally


if __name__ == "__main__":
    try:
        print("proved:", ", ".join(f"{n} {what}" for what, n in check(sys.argv[1]).items()))
    except (Refused, KeyError, TypeError, ValueError, AttributeError, IndexError) as why:
        sys.exit(f"refused: {why}")
