"""Proofs, with numbers of any length."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import ftprop

SQUARE = [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_separable_says_yes_with_weights_and_no_with_a_witness() -> None:
    yes = ftprop.separable(SQUARE, ["no", "no", "no", "yes"])
    assert yes and yes.margin > 0 and yes.witness is None
    for row, sign in zip(SQUARE, (-1, -1, -1, 1)):
        assert sign * (sum(w * x for w, x in zip(yes.weights, row)) + yes.weights[-1]) > 0
    no = ftprop.separable(SQUARE, [0, 1, 1, 0])
    assert not no and no.weights is None and no.witness == [0, 1, 2, 3]
    for verdict, y in ((yes, ["no", "no", "no", "yes"]), (no, [0, 1, 1, 0])):
        proof = verdict.certificate.verify(SQUARE, y)
        assert proof and proof.proved and not proof.trusted
        with pytest.raises(ftprop.SearchError):
            verdict.certificate.verify(SQUARE, [y[-1], *y[:-1]])


@pytest.mark.parametrize("kind", [int, Fraction, Decimal])
def test_numbers_are_exact(kind) -> None:
    # Apart by less than a float could show.
    big = 10**40
    X = [[kind(big)], [kind(big + 1)], [kind(big + 2)]]
    assert ftprop.separable(X, [0, 0, 1])
    assert not ftprop.separable(X, [0, 1, 0])


def test_a_third_is_a_third() -> None:
    X = [[Fraction(1, 3)], [Decimal("0.3333333333333333333333333333")]]
    verdict = ftprop.separable(X, ["third", "less"])
    assert verdict and verdict.certificate.verify(X, ["third", "less"])
    with pytest.raises(ftprop.SearchError):
        verdict.certificate.verify([[1 / 3], [0.25]], ["third", "less"])
    floats = np.array([[0.1], [0.2]])
    assert ftprop.separable(floats, [0, 1]).certificate.verify([[Fraction(0.1)], [Fraction(0.2)]], [0, 1])


def test_solve_proves_and_saves(tmp_path) -> None:
    y = ["even", "odd", "odd", "even"]
    solution = ftprop.solve(SQUARE, y, hidden=(2,), search="exhaustive")
    assert (solution.status, solution.errors, solution.proved) == ("optimal", 0, True)
    assert solution.predict(SQUARE).tolist() == y
    assert len(solution.weights) == 2 and isinstance(solution.weights[0][0][0], Fraction)
    path = solution.certificate.save(tmp_path / "xor.json")
    again = ftprop.Certificate.load(path)
    assert again.verify(SQUARE, y) and "network" in repr(again)
    assert pickle.loads(pickle.dumps(again)).to_json() == again.to_json()
    on = ftprop.solve(SQUARE, y, hidden=2, resume=again)
    assert on.errors == 0
    changed = json.loads(again.to_json())
    changed["claim"]["errors"] = 3
    with pytest.raises(ftprop.SearchError, match="checksum"):
        ftprop.Certificate.from_json(json.dumps(changed)).verify(SQUARE, y)
    one = ftprop.solve(SQUARE, y, hidden=1)
    assert one.errors == 1 and "1" in str(one)


@pytest.mark.parametrize(
    "X, y, words",
    [
        ([[float("nan")], [1.0]], [0, 1], "expected finite"),
        ([[Decimal("Infinity")], [1]], [0, 1], "expected finite"),
        ([["a"], ["b"]], [0, 1], "expected ints, floats"),
        ([[object()], [1]], [0, 1], "expected ints, floats"),
        ([], [], "at least one"),
        ([[1], [2]], [0], "expected 2 labels"),
        ([[1], [2], [3]], [0, 1, 2], "two classes"),
    ],
)
def test_what_is_no_problem_is_refused(X, y, words) -> None:
    with pytest.raises(ValueError, match=words):
        ftprop.separable(X, y)


def test_what_solve_refuses() -> None:
    with pytest.raises(ValueError, match="hidden: expected"):
        ftprop.solve(SQUARE, [0, 1, 1, 0], hidden=())
    with pytest.raises(ftprop.SearchError):
        ftprop.solve(SQUARE, [0, 1, 1, 0], search="guessing")
    with pytest.raises(ftprop.SearchError):
        ftprop.solve(SQUARE, [0, 1, 1, 0], budget="0s")
    with pytest.raises(ValueError, match="expected instances with 2 inputs"):
        ftprop.solve(SQUARE, [0, 1, 1, 0]).predict([[1, 2, 3]])
