"""Quasi-polynomials as JSON: what isl prints, and the pieces that are evaluated, so that nothing is parsed again."""

from __future__ import annotations

from typing import Any

from perflex.features.polynomials.pieces import piece_record
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl


def polynomial_record(polynomial: QuasiPolynomial) -> list[Any]:
    """Return a quasi-polynomial as a list of texts, numbers and lists; `polynomial_from_record` restores it."""
    pieces = [piece_record(piece) for piece in polynomial.pieces]
    deferred = [[polynomial_record(factor), [str(one) for one in sets]] for factor, sets in polynomial.deferred]
    return [polynomial.text, list(polynomial.parameters), pieces, deferred]


def polynomial_from_record(record: list[Any]) -> QuasiPolynomial:
    """Return the quasi-polynomial of a record."""
    text, names, pieces, deferred = record
    return QuasiPolynomial.unparsed(
        text,
        parameters=tuple(names),
        piece_records=pieces,
        deferred=tuple((polynomial_from_record(factor), tuple(map(isl.Set, sets))) for factor, sets in deferred),
    )
