"""Piecewise quasi-polynomials taken apart once, so that they evaluate fast and exactly."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Affine:
    """floor((constant + sum coefficient*parameter + sum coefficient*floor) / denominator).

    Attributes
    ----------
    constant
        The integer part.
    parameters
        Name and coefficient of size parameters.
    floors
        Coefficients, and the floors that they multiply.
    denominator
        What all of that is divided by, rounding down.
    """

    constant: int
    parameters: tuple[tuple[str, int], ...]
    floors: tuple[tuple[int, Affine], ...]
    denominator: int = 1

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


@dataclass(frozen=True)
class Term:
    """A product of an integer, powers of size parameters, and powers of floors.

    Attributes
    ----------
    coefficient
        The integer.
    parameters
        Name and exponent of size parameters.
    floors
        Floors and their exponents.
    """

    coefficient: int
    parameters: tuple[tuple[str, int], ...]
    floors: tuple[tuple[Affine, int], ...]

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


@dataclass(frozen=True)
class Piece:
    """One polynomial with integer coefficients over a common denominator, and where it holds.

    Attributes
    ----------
    conditions
        Any of these conjunctions must hold, each with all of its (left-hand side, whether it must be 0 rather than
        at least 0).
    terms
        Their sum is the polynomial's numerator.
    denominator
        What the sum is divided by.
    """

    conditions: tuple[tuple[tuple[Affine, bool], ...], ...]
    terms: tuple[Term, ...]
    denominator: int

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


def read_affine(aff: Any, *, is_constraint: bool) -> Affine:
    """Read an isl.Aff (a floor's argument) or an isl.Constraint."""
    kinds = isl.dim_type
    # isl gives coefficients of an Aff as fractions over its denominator, those of a constraint as integers.
    denominator = 1 if is_constraint else aff.get_denominator_val().to_python()

    def whole(value: Any) -> int:
        return int(value.mul(isl.Val(denominator)).to_python())

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
    """Take apart one piece of an ``isl.PwQPolynomial``: the ``isl.Set`` it holds on, and the ``isl.QPolynomial``.

    Raises
    ------
    UnsupportedKernelError
        The polynomial is no number there, as after a division by zero.
    """
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
        numerator = int(coefficient.get_num_si())
        raw.append((numerator, int(coefficient.get_den_val().to_python()), parameters, floors))
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
    conditions = [
        [[*_affine_record(affine), is_equality] for affine, is_equality in conjunction]
        for conjunction in piece.conditions
    ]
    terms = [
        [term.coefficient, term.parameters, [[_affine_record(floor), exponent] for floor, exponent in term.floors]]
        for term in piece.terms
    ]
    return [conditions, terms, piece.denominator]


def _affine_record(affine: Affine) -> list[Any]:
    floors = [[coefficient, _affine_record(floor)] for coefficient, floor in affine.floors]
    return [affine.constant, affine.parameters, floors, affine.denominator]


def piece_from_record(record: list[Any]) -> Piece:
    """Return the piece of a record."""
    conditions, terms, denominator = record
    return Piece(
        tuple(
            tuple((_affine(*affine), is_equality) for *affine, is_equality in conjunction) for conjunction in conditions
        ),
        tuple(
            Term(
                coefficient,
                tuple(map(tuple, powers)),
                tuple((_affine(*floor), exponent) for floor, exponent in floors),
            )
            for coefficient, powers, floors in terms
        ),
        denominator,
    )


def _affine(constant: int, parameters: list[Any], floors: list[Any], denominator: int) -> Affine:
    return Affine(
        constant,
        tuple(map(tuple, parameters)),
        tuple((coefficient, _affine(*floor)) for coefficient, floor in floors),
        denominator,
    )
