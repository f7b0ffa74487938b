"""Piecewise quasi-polynomials taken apart once, so that they evaluate fast and exactly."""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm, prod
from typing import Any

from msgspec import Struct

from perflex.errors import UnsupportedKernelError
from perflex.isl import isl


class Affine(Struct, frozen=True, array_like=True):
    """floor((constant + sum coefficient*parameter + sum coefficient*floor) / denominator)."""

    constant: int
    parameters: tuple[tuple[str, int], ...]  # name and coefficient of size parameters
    floors: tuple[tuple[int, Affine], ...]  # coefficients, and the floors that they multiply
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

    def bound(self, magnitude: Mapping[str, float]) -> float:
        """Return an upper bound of its intermediate values, of which the numerator is one, given those of the sizes."""
        value = abs(self.constant) + sum(abs(factor) * magnitude[name] for name, factor in self.parameters)
        return float(value + sum(abs(factor) * floor.bound(magnitude) for factor, floor in self.floors))


class Term(Struct, frozen=True, array_like=True):
    """A product of an integer, powers of size parameters, and powers of floors."""

    coefficient: int
    parameters: tuple[tuple[str, int], ...]  # name and exponent of size parameters
    floors: tuple[tuple[Affine, int], ...]  # floors and their exponents

    def __call__(self, sizes: Mapping[str, Any]) -> Any:
        """Return the value at given sizes: numbers, or arrays of one shape."""
        value: Any = self.coefficient
        for base, exponent in self._powers(sizes):
            # Several times as fast as ** on arrays for the small exponents there are.
            for _ in range(exponent):
                value = value * base
        return value

    def _powers(self, sizes: Mapping[str, Any]) -> list[tuple[Any, int]]:
        powers = [(sizes[name], exponent) for name, exponent in self.parameters]
        return powers + [(floor(sizes), exponent) for floor, exponent in self.floors]

    def bound(self, magnitude: Mapping[str, float]) -> float:
        """Return an upper bound of its intermediate values."""
        powers = [(magnitude[name], exponent) for name, exponent in self.parameters]
        powers += [(floor.bound(magnitude), exponent) for floor, exponent in self.floors]
        # At least 1: a small factor must not hide how large the product of the others becomes.
        return prod((max(1.0, base) ** exponent for base, exponent in powers), start=float(abs(self.coefficient)))


class Piece(Struct, frozen=True, array_like=True):
    """One polynomial with integer coefficients over a common denominator, and where it holds."""

    # Any of these conjunctions must hold, each with all of its (left-hand side, whether it must be 0 rather than at
    # least 0).
    conditions: tuple[tuple[tuple[Affine, bool], ...], ...]
    terms: tuple[Term, ...]  # their sum is the polynomial's numerator
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

    def bound(self, magnitude: Mapping[str, float]) -> float:
        """Return an upper bound of every intermediate value of the polynomial, given those of the sizes."""
        return sum(term.bound(magnitude) for term in self.terms)


def _integer(value: Any) -> int:
    """Return an isl.Val that is whole as a number of Python; by its text, for `get_num_si` gives 0 beyond 64 bits."""
    try:
        return int(value.to_python())
    except ValueError:  # Python converts no more digits
        msg = "an extent, stride or count has a number of more than 4300 digits; give smaller ones"
        raise UnsupportedKernelError(msg) from None


def _read_affine(aff: Any, denominator: int = 1) -> Affine:
    """Read an isl.Constraint, or an isl.Aff with its denominator: isl gives its coefficients as fractions over that."""
    kinds = isl.dim_type

    def coefficients(kind: Any, count: int) -> list[tuple[int, int]]:
        values = ((i, aff.get_coefficient_val(kind, i)) for i in range(count))
        return [(i, _integer(value.mul(isl.Val(denominator)))) for i, value in values if not value.is_zero()]

    sizes = coefficients(kinds.param, aff.space.dim(kinds.param))
    return Affine(
        _integer(aff.get_constant_val().mul(isl.Val(denominator))),
        tuple((aff.space.get_dim_name(kinds.param, i), factor) for i, factor in sizes),
        tuple((factor, _read_floor(aff.get_div(i))) for i, factor in coefficients(kinds.div, aff.dim(kinds.div))),
        denominator,
    )


def _read_floor(aff: Any) -> Affine:
    return _read_affine(aff, aff.get_denominator_val().to_python())


def read_piece(domain: Any, polynomial: Any) -> Piece:
    """Take apart one piece of an ``isl.PwQPolynomial``: the ``isl.Set`` it holds on, and the ``isl.QPolynomial``."""
    if polynomial.is_nan() or polynomial.is_infty() or polynomial.is_neginfty():
        msg = f"an extent, stride or count is not finite where {domain}; write it without a division by zero"
        raise UnsupportedKernelError(msg)
    kinds = isl.dim_type
    terms: list[Any] = []
    polynomial.foreach_term(terms.append)  # isl prints what a callback raises: only collect in it
    raw: list[tuple[int, int, Term]] = []
    for term in terms:
        coefficient = term.get_coefficient_val()
        denominator = coefficient.get_den_val()
        sizes, floors = ([(i, term.get_exp(kind, i)) for i in range(term.dim(kind)) if term.get_exp(kind, i)]
                         for kind in (kinds.param, kinds.div))  # fmt: skip
        product = Term(
            _integer(coefficient.mul(denominator)),
            tuple((polynomial.space.get_dim_name(kinds.param, i), exponent) for i, exponent in sizes),
            tuple((_read_floor(term.get_div(i)), exponent) for i, exponent in floors),
        )
        raw.append((product.coefficient, _integer(denominator), product))
    # Integers over one denominator: values are exact, and summing them needs no fractions.
    common = lcm(*(below for _, below, _ in raw)) if raw else 1
    whole = tuple(Term(above * (common // below), one.parameters, one.floors) for above, below, one in raw)
    conditions = tuple(
        tuple((_read_affine(one), bool(one.is_equality())) for one in conjunction.get_constraints())
        # Without compute_divs, existential variables may lack the floor that defines them.
        for conjunction in domain.compute_divs().get_basic_sets()
    )
    return Piece(conditions, whole, common)
