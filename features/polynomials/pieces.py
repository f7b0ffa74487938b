"""Piecewise quasi-polynomials taken apart once, so that they evaluate fast and exactly."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from perflex.errors import UnsupportedKernelError
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Mapping


class Affine(Struct, frozen=True, array_like=True):
    """floor((constant + sum coefficient*parameter + sum coefficient*floor) / denominator)."""

    constant: int  # The integer part
    parameters: tuple[tuple[str, int], ...]  # Name and coefficient of size parameters
    floors: tuple[tuple[int, Affine], ...]  # Coefficients, and the floors that they multiply
    denominator: int = 1  # What all of that is divided by, rounding down

    def __call__(self, sizes: Mapping[str, Any]) -> Any:
        """Return the value at given sizes: numbers, or arrays of one shape."""
        value: Any = self.constant
        for name, coefficient in self.parameters:
            value = value + coefficient * sizes[name]
        for coefficient, floor in self.floors:
            value = value + coefficient * floor(sizes)
        # // rounds down for negative values, too, as isl's floor does and C's division does not.
        return value // self.denominator if self.denominator != 1 else value

    def names(self) -> set[str]:
        """Return the size parameters that it depends on."""
        return {name for name, _ in self.parameters}.union(*(floor.names() for _, floor in self.floors))


class Term(Struct, frozen=True, array_like=True):
    """A product of an integer, powers of size parameters, and powers of floors."""

    coefficient: int  # The integer
    parameters: tuple[tuple[str, int], ...]  # Name and exponent of size parameters
    floors: tuple[tuple[Affine, int], ...]  # Floors and their exponents

    def __call__(self, sizes: Mapping[str, Any]) -> Any:
        """Return the value at given sizes: numbers, or arrays of one shape."""
        value: Any = self.coefficient
        for name, exponent in self.parameters:
            value = _times_power(value, sizes[name], exponent)
        for floor, exponent in self.floors:
            value = _times_power(value, floor(sizes), exponent)
        return value


def _times_power(value: Any, base: Any, exponent: int) -> Any:
    # Several times as fast as ** on arrays for the small exponents there are.
    for _ in range(exponent):
        value = value * base
    return value


class Piece(Struct, frozen=True, array_like=True):
    """One polynomial with integer coefficients over a common denominator, and where it holds."""

    # Any of these conjunctions must hold, each with all of its (left-hand side, whether it must be 0 rather than at
    # least 0).
    conditions: tuple[tuple[tuple[Affine, bool], ...], ...]
    terms: tuple[Term, ...]  # Their sum is the polynomial's numerator
    denominator: int  # What the sum is divided by

    def holds(self, sizes: Mapping[str, Any]) -> Any:
        """Return whether the piece is the one for given sizes, element by element for arrays."""
        result: Any = False
        for conjunction in self.conditions:
            inside: Any = True
            for affine, is_equality in conjunction:
                value = affine(sizes)
                inside = inside & ((value == 0) if is_equality else (value >= 0))
            result = result | inside
        return result

    def names(self) -> set[str]:
        """Return the size parameters that its conditions and its value depend on."""
        affine = [part for conjunction in self.conditions for part, _ in conjunction]
        affine += [floor for term in self.terms for floor, _ in term.floors]
        names = {name for term in self.terms for name, _ in term.parameters}
        return names.union(*(part.names() for part in affine))

    def numerator(self, sizes: Mapping[str, Any]) -> Any:
        """Return the sum of the terms at given sizes, which is `denominator` times the value."""
        value: Any = 0
        for term in self.terms:
            value = value + term(sizes)
        return value


def _integer(value: Any) -> int:
    """Return an isl.Val that is whole as a number of Python; by its text, for `get_num_si` gives 0 beyond 64 bits."""
    try:
        return int(value.to_python())
    except ValueError:  # Python converts no more digits
        msg = "an extent, stride or count has a number of more than 4300 digits; give smaller ones"
        raise UnsupportedKernelError(msg) from None


def read_affine(aff: Any, *, is_constraint: bool) -> Affine:
    """Read an isl.Aff (a floor's argument) or an isl.Constraint."""
    kinds = isl.dim_type
    # isl gives coefficients of an Aff as fractions over its denominator, those of a constraint as integers.
    denominator = 1 if is_constraint else aff.get_denominator_val().to_python()

    def whole(value: Any) -> int:
        return _integer(value.mul(isl.Val(denominator)))

    parameters = []
    for i in range(aff.space.dim(kinds.param)):
        coefficient = whole(aff.get_coefficient_val(kinds.param, i))
        if coefficient:
            parameters.append((aff.space.get_dim_name(kinds.param, i), coefficient))
    floors = []
    for i in range(aff.dim(kinds.div)):
        coefficient = whole(aff.get_coefficient_val(kinds.div, i))
        if coefficient:
            floors.append((coefficient, read_affine(aff.get_div(i), is_constraint=False)))
    return Affine(whole(aff.get_constant_val()), tuple(parameters), tuple(floors), denominator)


def _conditions(domain: Any) -> tuple[tuple[tuple[Affine, bool], ...], ...]:
    return tuple(
        tuple(
            (read_affine(constraint, is_constraint=True), bool(constraint.is_equality()))
            for constraint in basic_set.get_constraints()
        )
        # Without compute_divs, existential variables may lack the floor that defines them.
        for basic_set in domain.compute_divs().get_basic_sets()
    )


def read_piece(domain: Any, polynomial: Any) -> Piece:
    """Take apart one piece of an ``isl.PwQPolynomial``: the ``isl.Set`` it holds on, and the ``isl.QPolynomial``."""
    if polynomial.is_nan() or polynomial.is_infty() or polynomial.is_neginfty():
        msg = f"an extent, stride or count is not finite where {domain}; write it without a division by zero"
        raise UnsupportedKernelError(msg)
    kinds = isl.dim_type
    terms: list[Any] = []
    polynomial.foreach_term(terms.append)  # isl prints what a callback raises: only collect in it
    raw: list[tuple[int, int, tuple[tuple[str, int], ...], tuple[tuple[Affine, int], ...]]] = []
    for term in terms:
        coefficient = term.get_coefficient_val()
        parameters = tuple(
            (polynomial.space.get_dim_name(kinds.param, i), term.get_exp(kinds.param, i))
            for i in range(term.dim(kinds.param))
            if term.get_exp(kinds.param, i)
        )
        floors = tuple(
            (read_affine(term.get_div(i), is_constraint=False), term.get_exp(kinds.div, i))
            for i in range(term.dim(kinds.div))
            if term.get_exp(kinds.div, i)
        )
        numerator = coefficient.mul(coefficient.get_den_val())
        raw.append((_integer(numerator), _integer(coefficient.get_den_val()), parameters, floors))
    # Integers over one denominator: values are exact, and summing them needs no fractions.
    denominator = lcm(*(den for _, den, _, _ in raw)) if raw else 1
    whole = tuple(Term(num * (denominator // den), params, floors) for num, den, params, floors in raw)
    return Piece(_conditions(domain), whole, denominator)


def bound_of(piece: Piece, magnitude: Mapping[str, float]) -> float:
    """Return an upper bound of every intermediate value of the piece's polynomial, given those of the parameters."""

    def of_affine(affine: Affine) -> float:
        # Not divided by the denominator: the numerator is an intermediate value as well.
        value = float(abs(affine.constant))
        value += sum(abs(c) * magnitude[name] for name, c in affine.parameters)
        value += sum(abs(c) * of_affine(floor) for c, floor in affine.floors)
        return value

    total = 0.0
    for term in piece.terms:
        value = float(abs(term.coefficient))
        for name, exponent in term.parameters:
            # At least 1: a small factor must not hide how large the product of the others becomes.
            value *= max(1.0, magnitude[name]) ** exponent
        for floor, exponent in term.floors:
            value *= max(1.0, of_affine(floor)) ** exponent
        total += value
    return total


def piece_record(piece: Piece) -> list[Any]:
    """Return a piece as nested lists of numbers and names, for JSON."""
    record: list[Any] = msgspec.to_builtins(piece)
    return record


def piece_from_record(record: list[Any]) -> Piece:
    """Return the piece of a record."""
    return msgspec.convert(record, Piece)
