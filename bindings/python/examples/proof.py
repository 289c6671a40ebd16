"""Prove that two classes cannot be told apart by one unit, and that two hidden units are enough."""

from __future__ import annotations

from fractions import Fraction

import ftprop


def main() -> None:
    """Exclusive or, with a third for a one, so that no float could hold it."""
    one = Fraction(1, 3)
    X = [[0, 0], [0, one], [one, 0], [one, one]]
    y = ["even", "odd", "odd", "even"]
    verdict = ftprop.separable(X, y)
    assert not verdict and verdict.certificate is not None
    print("not separable: instances", verdict.witness, "cancel each other")
    solution = ftprop.solve(X, y, hidden=2, search="exhaustive")
    print(solution)
    proof = solution.certificate.verify(X, y)
    print("\n".join(proof.proved))
    assert proof and solution.errors == 0


if __name__ == "__main__":
    main()
