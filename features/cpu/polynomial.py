"""Polynomials with rational coefficients in the sizes, as conditions of caches have them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from perflex.features.polynomials.affine import Affine
from perflex.features.polynomials.quasipolynomial import Piece

# Sorted pairs (name, exponent).
Monomial = tuple[tuple[str, int], ...]


class Polynomial:
    """A polynomial with rational coefficients, none of them zero; exponents may be negative."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, Fraction]) -> None:
        self.terms = {monomial: factor for monomial, factor in terms.items() if factor}

    @classmethod
    def constant(cls, value: float | Fraction) -> Polynomial:
        """Return the polynomial that is `value` everywhere."""
        return cls({(): Fraction(value)})

    @classmethod
    def power(cls, name: str, exponent: int = 1) -> Polynomial:
        """Return a power of a size."""
        return cls({((name, exponent),): Fraction(1)})

    @classmethod
    def of_piece(cls, piece: Piece) -> Polynomial:
        """Return the polynomial of one piece of a quasi-polynomial; floors become names such as ``floor(n/16)``."""
        total = cls({})
        for term in piece.terms:
            product = cls.constant(Fraction(term.coefficient, piece.denominator))
            for base, exponent in term.powers:
                product *= cls.power(base if isinstance(base, str) else floor_text(base), exponent)
            total += product
        return total

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for monomial, factor in other.terms.items():
            terms[monomial] = terms.get(monomial, Fraction(0)) + factor
        return Polynomial(terms)

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: dict[Monomial, Fraction] = {}
        for left, one in self.terms.items():
            for right, two in other.terms.items():
                powers = dict(left)
                for name, exponent in right:
                    powers[name] = powers.get(name, 0) + exponent
                monomial = tuple(sorted((name, exponent) for name, exponent in powers.items() if exponent))
                terms[monomial] = terms.get(monomial, Fraction(0)) + one * two
        return Polynomial(terms)

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

    def __str__(self) -> str:
        """Return e.g. ``2*n^2 + m - 2*n``: terms of the highest degree first."""
        text = ""
        for monomial, factor in sorted(self.terms.items(), key=lambda term: (-sum(p for _, p in term[0]), term[0])):
            parts = [name if exponent == 1 else f"{name}^{exponent}" for name, exponent in monomial]
            if abs(factor) != 1 or not parts:
                parts.insert(0, str(abs(factor)))
            sign = (" - " if factor < 0 else " + ") if text else ("-" if factor < 0 else "")
            text += sign + "*".join(parts)
        return text or "0"


def floor_text(floor: Affine) -> str:
    """Return a floor as text, e.g. ``floor((n + 15)/16)``."""
    inner = Polynomial.constant(floor.constant)
    for name, factor in (*floor.terms, *((floor_text(nested), factor) for nested, factor in floor.floors)):
        inner += Polynomial.power(str(name)) * Polynomial.constant(factor)
    top = f"({inner})" if len(inner.terms) > 1 else str(inner)
    return f"floor({top}/{floor.denominator})" if floor.denominator != 1 else f"floor({top})"
