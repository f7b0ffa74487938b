"""Numbers that know how they follow from the sizes: a polynomial with its value at some sizes.

Conditions are computed once with plain numbers or arrays, for speed, and once with these, for people: a comparison
is decided by the value, so the polynomial is the one that holds around the sizes given.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.polynomials.pieces import Affine
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial

__all__ = ["Traced", "at_least", "inequality", "is_multiple", "larger", "polynomial_text", "select", "smaller", "trace"]

Monomial = tuple[tuple[str, int], ...]


class Traced:
    """A polynomial over named sizes, and its value at the sizes that were given.

    Attributes
    ----------
    terms
        Coefficient of each monomial.
    value
        The value.
    known
        Value of each name.
    """

    __slots__ = ("known", "terms", "value")

    def __init__(
        self, terms: Mapping[Monomial, Fraction], value: float, known: Mapping[str, float] | None = None
    ) -> None:
        self.terms = {monomial: factor for monomial, factor in terms.items() if factor}
        self.value = value
        self.known = known or {}

    @classmethod
    def symbol(cls, name: str, value: float, power: int = 1) -> Traced:
        """Return a power of a size."""
        return cls({((name, power),): Fraction(1)}, value**power, {name: value})

    def _other(self, other: Any) -> Traced:
        return other if isinstance(other, Traced) else Traced({(): Fraction(other)}, float(other))

    def __add__(self, other: Any) -> Traced:
        more = self._other(other)
        terms = dict(self.terms)
        for monomial, factor in more.terms.items():
            terms[monomial] = terms.get(monomial, Fraction(0)) + factor
        return Traced(terms, self.value + more.value, {**self.known, **more.known})

    __radd__ = __add__

    def __neg__(self) -> Traced:
        return self * -1

    def __sub__(self, other: Any) -> Traced:
        return self + self._other(other) * -1

    def __rsub__(self, other: Any) -> Traced:
        return self._other(other) - self

    def __mul__(self, other: Any) -> Traced:
        more = self._other(other)
        terms: dict[Monomial, Fraction] = {}
        for left, one in self.terms.items():
            for right, two in more.terms.items():
                powers = dict(left)
                for name, exponent in right:
                    powers[name] = powers.get(name, 0) + exponent
                monomial = tuple(sorted((name, exponent) for name, exponent in powers.items() if exponent))
                terms[monomial] = terms.get(monomial, Fraction(0)) + one * two
        return Traced(terms, self.value * more.value, {**self.known, **more.known})

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Traced:
        return self * (1 / Fraction(other))

    def __ge__(self, other: Any) -> bool:
        return self.value >= self._other(other).value

    def __gt__(self, other: Any) -> bool:
        return self.value > self._other(other).value

    def __le__(self, other: Any) -> bool:
        return self.value <= self._other(other).value

    def __lt__(self, other: Any) -> bool:
        return self.value < self._other(other).value

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names it depends on, those of the highest power first."""
        power: dict[str, int] = {}
        for monomial in self.terms:
            for name, exponent in monomial:
                power[name] = max(power.get(name, 0), exponent)
        return tuple(sorted(power, key=lambda name: (-power[name], name)))

    def at(self, values: Mapping[str, Fraction]) -> Fraction:
        """Return its value where the names have these values."""
        total = Fraction(0)
        for monomial, factor in self.terms.items():
            product = factor
            for name, exponent in monomial:
                product *= values[name] ** exponent
            total += product
        return total


def select(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where the condition holds, else `no`; element by element for arrays."""
    return np.where(condition, yes, no) if isinstance(condition, np.ndarray) else (yes if condition else no)


def is_multiple(number: Any, of: int) -> Any:
    """Return whether a number is a multiple, for traced ones at the sizes given."""
    return (number.value if isinstance(number, Traced) else number) % of == 0


def smaller(one: Any, two: Any) -> Any:
    """Return the smaller of two numbers, element by element for arrays."""
    return select(one <= two, one, two)


def larger(one: Any, two: Any) -> Any:
    """Return the larger of two numbers, element by element for arrays."""
    return select(one >= two, one, two)


def at_least(number: Any, least: float) -> Any:
    """Return the number, or the least value it can have."""
    return select(number >= least, number, least)


def trace(polynomial: QuasiPolynomial, sizes: Mapping[str, Any]) -> Any:
    """Return a size of the kernel as a traced number: the piece that holds at the sizes given."""
    for piece in polynomial.pieces:
        if not piece.holds(sizes):
            continue
        total: Any = Traced({}, 0.0)
        for term in piece.terms:
            factor = Fraction(term.coefficient, piece.denominator)
            product: Any = Traced({(): factor}, float(factor))
            for name, exponent in term.parameters:
                for _ in range(exponent):
                    product = product * Traced.symbol(name, sizes[name])
            for floor, exponent in term.floors:
                for _ in range(exponent):
                    product = product * Traced.symbol(_floor_text(floor), floor(sizes))
            total = total + product
        return total
    return Traced({}, 0.0)


def _floor_text(floor: Affine) -> str:
    terms: dict[Monomial, Fraction] = {(): Fraction(floor.constant)}
    for name, factor in floor.parameters:
        terms[((name, 1),)] = Fraction(factor)
    for factor, inner in floor.floors:
        terms[((_floor_text(inner), 1),)] = Fraction(factor)
    return f"floor(({_sum_text(Traced(terms, 0.0).terms)})/{floor.denominator})"


def inequality(needed: Traced, available: int, *, strict: bool) -> str:
    """Return ``needed <= available`` in bytes as text, with the common factor taken out.

    >>> n = Traced.symbol("N", 100)
    >>> inequality(48 * n - 32, 32768, strict=False)
    '3*N <= 2050'
    """
    left = {monomial: factor for monomial, factor in needed.terms.items() if monomial}
    right = Fraction(available) - needed.terms.get((), Fraction(0))
    scale = lcm(*(factor.denominator for factor in (*left.values(), right)))
    whole = reduce(gcd, (int(factor * scale) for factor in (*left.values(), right)), 0) or 1
    left = {monomial: factor * scale / whole for monomial, factor in left.items()}
    return f"{_sum_text(left)} {'<' if strict else '<='} {int(right * scale / whole)}"


def polynomial_text(number: Any) -> str:
    """Return a traced number, or a plain one, as text."""
    return _sum_text(number.terms) if isinstance(number, Traced) else f"{number:g}"


def _sum_text(terms: Mapping[Monomial, Fraction]) -> str:
    def degree(monomial: Monomial) -> tuple[int, Monomial]:
        return -sum(exponent for _, exponent in monomial), monomial

    text = ""
    for monomial in sorted(terms, key=degree):
        factor = terms[monomial]
        size = abs(factor)
        parts = [name if exponent == 1 else f"{name}^{exponent}" for name, exponent in monomial]
        if size != 1 or not parts:
            parts.insert(0, str(size))
        sign = ("-" if factor < 0 else "") if not text else (" - " if factor < 0 else " + ")
        text += sign + "*".join(parts)
    return text or "0"
