"""Quasi-polynomials as JSON: what isl prints, and the pieces that are evaluated, so that nothing is parsed again."""

from __future__ import annotations

from typing import Any

from perflex._islpy import isl
from perflex.features._polynomial_pieces import Affine, Piece, Term
from perflex.features._quasipolynomial import QuasiPolynomial

__all__ = ["polynomial_from_record", "polynomial_record"]


def polynomial_record(polynomial: QuasiPolynomial) -> list[Any]:
    """Return a quasi-polynomial as a list of texts, numbers and lists; `polynomial_from_record` restores it."""
    pieces = [
        [
            [
                [[*_affine_record(affine), is_equality] for affine, is_equality in conjunction]
                for conjunction in piece.conditions
            ],
            [
                [
                    term.coefficient,
                    [list(power) for power in term.parameters],
                    [[_affine_record(floor), exponent] for floor, exponent in term.floors],
                ]
                for term in piece.terms
            ],
            piece.denominator,
        ]
        for piece in polynomial.pieces
    ]
    deferred = [[polynomial_record(factor), [str(one) for one in sets]] for factor, sets in polynomial.deferred]
    return [polynomial.text, list(polynomial.parameters), pieces, deferred]


def _affine_record(affine: Affine) -> list[Any]:
    floors = [[coefficient, _affine_record(floor)] for coefficient, floor in affine.floors]
    return [affine.constant, [list(entry) for entry in affine.parameters], floors, affine.denominator]


def polynomial_from_record(record: list[Any]) -> QuasiPolynomial:
    """Return the quasi-polynomial of a record."""
    text, names, pieces, deferred = record
    return QuasiPolynomial.kept(
        text,
        parameters=tuple(names),
        pieces=tuple(_piece(*piece) for piece in pieces),
        deferred=tuple((polynomial_from_record(factor), tuple(map(isl.Set, sets))) for factor, sets in deferred),
    )


def _piece(conditions: list[Any], terms: list[Any], denominator: int) -> Piece:
    return Piece(
        tuple(
            tuple((_affine(*affine), is_equality) for *affine, is_equality in conjunction) for conjunction in conditions
        ),
        tuple(
            Term(
                coefficient,
                tuple((name, exponent) for name, exponent in powers),
                tuple((_affine(*floor), exponent) for floor, exponent in floors),
            )
            for coefficient, powers, floors in terms
        ),
        denominator,
    )


def _affine(constant: int, parameters: list[Any], floors: list[Any], denominator: int) -> Affine:
    return Affine(
        constant,
        tuple((name, coefficient) for name, coefficient in parameters),
        tuple((coefficient, _affine(*floor)) for coefficient, floor in floors),
        denominator,
    )
