"""NestValues that know how they follow from the sizes: a polynomial with its value at some sizes.

Conditions are computed once with plain numbers or arrays, for speed, and once with these, for people: a comparison
is decided by the value, so the polynomial is the one that holds around the sizes given.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.polynomials.polynomial import Polynomial, floor_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial


class Traced:
    """A polynomial over named sizes, and its value at the sizes that were given.

    Attributes
    ----------
    polynomial
        How it follows from the sizes.
    value
        The value.
    known
        Value of each name.
    """

    __slots__ = ("known", "polynomial", "value")

    def __init__(self, polynomial: Polynomial, value: float, known: Mapping[str, float] | None = None) -> None:
        self.polynomial = polynomial
        self.value = value
        self.known = known or {}

    @classmethod
    def symbol(cls, name: str, value: float, power: int = 1) -> Traced:
        """Return a power of a size."""
        return cls(Polynomial.power(name, power), value**power, {name: value})

    @classmethod
    def of(cls, number: Any) -> Traced:
        """Return a traced number as it is, and a plain one as a constant."""
        return number if isinstance(number, Traced) else cls(Polynomial.constant(number), float(number))

    def __add__(self, other: Any) -> Traced:
        more = self.of(other)
        return Traced(self.polynomial + more.polynomial, self.value + more.value, {**self.known, **more.known})

    __radd__ = __add__

    def __neg__(self) -> Traced:
        return self * -1

    def __sub__(self, other: Any) -> Traced:
        return self + self.of(other) * -1

    def __rsub__(self, other: Any) -> Traced:
        return self.of(other) - self

    def __mul__(self, other: Any) -> Traced:
        more = self.of(other)
        return Traced(self.polynomial * more.polynomial, self.value * more.value, {**self.known, **more.known})

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Traced:
        return self * (1 / Fraction(other))

    def __ge__(self, other: Any) -> bool:
        return self.value >= self.of(other).value

    def __gt__(self, other: Any) -> bool:
        return self.value > self.of(other).value

    def __le__(self, other: Any) -> bool:
        return self.value <= self.of(other).value

    def __lt__(self, other: Any) -> bool:
        return self.value < self.of(other).value

    def __str__(self) -> str:
        return str(self.polynomial)


def select(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where the condition holds, else `no`; element by element for arrays."""
    return np.where(condition, yes, no) if isinstance(condition, np.ndarray) else (yes if condition else no)


def is_multiple(number: Any, of: int) -> Any:
    """Return whether a number is a multiple, for traced ones at the sizes given."""
    return (number.value if isinstance(number, Traced) else number) % of == 0


def common_divisor(one: Any, other: Any) -> Any:
    """Return the greatest common divisor of two whole numbers, for traced ones at the sizes given."""
    plain = [round(number.value) if isinstance(number, Traced) else number for number in (one, other)]
    if any(isinstance(number, np.ndarray) for number in plain):
        return np.gcd(*(np.asarray(number).astype(np.int64) for number in plain))
    return gcd(*(round(number) for number in plain))


def smaller(one: Any, two: Any) -> Any:
    """Return the smaller of two numbers, element by element for arrays."""
    return select(one <= two, one, two)


def larger(one: Any, two: Any) -> Any:
    """Return the larger of two numbers, element by element for arrays."""
    return select(one >= two, one, two)


def at_least(number: Any, least: float) -> Any:
    """Return the number, or the least value it can have."""
    return select(number >= least, number, least)


def trace(polynomial: QuasiPolynomial, sizes: Mapping[str, Any]) -> Traced:
    """Return a size of the kernel as a traced number: the piece that holds at the sizes given."""
    # Comparisons of traced numbers are decided by their values, so one piece is enough: the one at these sizes.
    piece = next((piece for piece in polynomial.pieces if piece.holds(sizes)), None)
    if piece is None:
        return Traced.of(0)
    known: dict[str, float] = {}
    for term in piece.terms:
        known |= {name: sizes[name] for name, _ in term.parameters}
        known |= {floor_text(floor): floor(sizes) for floor, _ in term.floors}
    return Traced(Polynomial.of_piece(piece), float(polynomial.evaluate(sizes)), known)


def inequality(needed: Traced, available: int, *, strict: bool) -> str:
    """Return ``needed <= available`` in bytes as text, with the common factor taken out.

    >>> n = Traced.symbol("N", 100)
    >>> inequality(48 * n - 32, 32768, strict=False)
    '3*N <= 2050'
    """
    terms = needed.polynomial.terms
    left = Polynomial({monomial: factor for monomial, factor in terms.items() if monomial})
    right = Fraction(available) - terms.get((), Fraction(0))
    coefficients = [*left.terms.values(), right]
    scale = Fraction(lcm(*(factor.denominator for factor in coefficients)))
    # Whole numbers without a common factor read best; `or 1` is for an inequality of zeros.
    scale /= Fraction(reduce(gcd, (int(factor * scale) for factor in coefficients), 0) or 1)
    return f"{left * Polynomial.constant(scale)} {'<' if strict else '<='} {int(right * scale)}"
