"""Proofs about small problems, in exact arithmetic."""

from __future__ import annotations

import json
import numbers
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _arrays, _native


def _fraction(value: Any) -> str:
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Decimal) or (isinstance(value, float) and not isinstance(value, np.floating)):
        if not (value.is_finite() if isinstance(value, Decimal) else np.isfinite(value)):
            raise ValueError(f"X: expected finite numbers, found {value}")
        return str(Fraction(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, np.floating):
        return _fraction(float(value))
    raise ValueError(f"X: expected ints, floats, Fractions or Decimals, found {type(value).__name__}")


def _instances(X: Any) -> npt.NDArray[np.float64] | list[list[str]]:
    """Floats as they are; anything else as fractions, which lose nothing."""
    array = np.asarray(X)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"X: expected rows of numbers, at least one, found shape {array.shape}")
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        floats = np.ascontiguousarray(array, dtype=np.float64)
        if not np.isfinite(floats).all():
            raise ValueError("X: expected finite numbers, found one that is not")
        return floats
    if array.dtype.kind in "biu":
        return [[str(int(value)) for value in row] for row in array]
    if array.dtype.kind != "O":
        raise ValueError(f"X: expected ints, floats, Fractions or Decimals, found {array.dtype}")
    return [[_fraction(value) for value in row] for row in array]


def _problem(X: Any, y: Any) -> tuple[Any, npt.NDArray[np.uint32], npt.NDArray[Any]]:
    instances = _instances(X)
    labels = _arrays.labels(y, len(instances))
    classes = _arrays.classes_of(labels)
    return instances, _arrays.codes(labels, classes), classes


@dataclass(frozen=True)
class Verification:
    """What proving a certificate again established."""

    #: Whether everything that it claims was proved.
    complete: bool
    #: What was proved, exactly.
    proved: list[str]
    #: What it claims but its content cannot prove.
    trusted: list[str]

    def __bool__(self) -> bool:
        return self.complete


class Certificate:
    """A proof that anyone who has the data can check again."""

    def __init__(self, native: _native.Certificate) -> None:
        self._native = native

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Certificate:
        """Reads a certificate's file."""
        return Certificate(_native.Certificate.read(Path(path)))

    @staticmethod
    def from_json(text: str) -> Certificate:
        """Reads a certificate from its text."""
        return Certificate(_native.Certificate(text))

    def to_json(self) -> str:
        """The text of the certificate's file."""
        return self._native.json

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the certificate, for ``ftprop verify`` and for :meth:`load`."""
        self._native.save(Path(path))
        return Path(path)

    def verify(self, X: Any, y: Any) -> Verification:
        """Proves its claims again for these instances; raises :class:`SearchError` if they do not hold."""
        instances, codes, classes = _problem(X, y)
        return Verification(*self._native.verify(instances, codes, _arrays.names_of(classes)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Certificate.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        claim = json.loads(self.to_json())["claim"]
        return f"Certificate({claim['kind']})"


@dataclass(frozen=True)
class Verdict:
    """Whether two classes are linearly separable. It is true or false as the answer is."""

    #: None where the budget was not enough.
    separable: bool | None
    #: Exact weights of a unit that separates them, the bias last.
    weights: list[Fraction] | None = field(repr=False)
    #: How far the nearest instance is from its boundary.
    margin: float | None
    #: Instances that cancel each other, counted from 0: no unit can have all of them right.
    witness: list[int] | None = field(repr=False)
    #: Why nothing is known.
    why: str | None
    #: The proof; none where nothing is known.
    certificate: Certificate | None = field(repr=False)

    def __bool__(self) -> bool:
        if self.separable is None:
            raise ValueError(f"it is not known whether the classes are separable: {self.why}")
        return self.separable


def separable(X: Any, y: Any, *, budget: str = "10m") -> Verdict:
    """Decides whether two classes are linearly separable, with proof.

    ``X`` has floats, which are taken exactly as they are, or ints, ``Fraction`` and ``Decimal``, of any length.

    >>> import ftprop
    >>> X = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> both = ftprop.separable(X, [0, 0, 0, 1])
    >>> bool(both), both.margin > 0
    (True, True)
    >>> xor = ftprop.separable(X, [0, 1, 1, 0])
    >>> bool(xor), xor.witness
    (False, [0, 1, 2, 3])
    >>> bool(xor.certificate.verify(X, [0, 1, 1, 0]))
    True
    """
    instances, codes, classes = _problem(X, y)
    if len(classes) != 2:
        raise ValueError(f"y: expected two classes, found {len(classes)}")
    answer, weights, margin, witness, why, proof = _native.separable(
        instances, codes, _arrays.names_of(classes), budget
    )
    return Verdict(
        answer,
        None if weights is None else [Fraction(weight) for weight in weights],
        margin,
        None if witness is None else sorted(instance - 1 for instance in witness),
        why,
        None if proof is None else Certificate(proof),
    )


class Solution:
    """A small network that a search found, with what is proved about it."""

    def __init__(self, native: _native.Solution, classes: npt.NDArray[Any]) -> None:
        self._native = native
        self.classes = classes
        report = json.loads(native.json)
        #: ``optimal``, ``feasible`` or ``stopped``.
        self.status: str = report["status"]
        #: Whether no network of this shape can do better; proved.
        self.proved: bool = report["proved"]
        #: Training instances that it has wrong.
        self.errors: int = report["train"]["errors"]
        #: No network of this shape has a lower loss.
        self.at_least: float = report["at_least"]
        #: Settings of targets that were looked at.
        self.nodes: int = report["nodes"]
        self.seconds: float = report["seconds"]
        self.report: dict[str, Any] = report

    @property
    def weights(self) -> list[list[list[Fraction]]]:
        """Exact weights, layer by layer and unit by unit, the bias last."""
        return [[[Fraction(w) for w in unit] for unit in layer] for layer in self._native.weights]

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class of each instance."""
        predicted: npt.NDArray[Any] = self.classes[self._native.predict(_instances(X))]
        return predicted

    @property
    def certificate(self) -> Certificate:
        """What can be proved again."""
        return Certificate(self._native.certificate())

    def __str__(self) -> str:
        return self._native.text

    def __repr__(self) -> str:
        return f"Solution({self.status}, {self.errors} errors, at least {self.at_least:g})"


def solve(
    X: Any,
    y: Any,
    hidden: Sequence[int] | int = (2,),
    *,
    search: str | None = None,
    learner: str | None = None,
    loss: str = "zero-one",
    budget: str = "60s",
    nodes: int | None = None,
    seed: int = 1,
    threads: int = 0,
    resume: Certificate | None = None,
) -> Solution:
    """Learns a small network by searching for feasible targets of its hidden units, with proof.

    ``hidden`` has the widths of the hidden layers; the other settings are those of ``ftprop solve``. Numbers are exact,
    as for :func:`separable`.

    >>> import ftprop
    >>> X, y = [[0, 0], [0, 1], [1, 0], [1, 1]], ["even", "odd", "odd", "even"]
    >>> solution = ftprop.solve(X, y, hidden=2, search="exhaustive")
    >>> solution
    Solution(optimal, 0 errors, at least 0)
    >>> solution.predict(X).tolist()
    ['even', 'odd', 'odd', 'even']
    >>> bool(solution.certificate.verify(X, y))
    True
    """
    instances, codes, classes = _problem(X, y)
    widths = [hidden] if isinstance(hidden, int) else [int(width) for width in hidden]
    if not widths or min(widths) < 1:
        raise ValueError(f"hidden: expected widths of at least 1, found {hidden!r}")
    native = _native.solve(
        instances,
        codes,
        _arrays.names_of(classes),
        widths,
        search,
        learner,
        loss,
        budget,
        nodes,
        seed,
        threads,
        None if resume is None else resume._native,
    )
    return Solution(native, classes)
