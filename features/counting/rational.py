"""Quotients of polynomials as short text.

Only what access-to-footprint ratios need: common factors are cancelled when one polynomial divides the other,
when both are in one variable, or when they are numbers and powers. Importing sympy for this would take longer
than all else that ``perflex features`` does.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING

from perflex.features.polynomials.polynomial import sum_text

if TYPE_CHECKING:
    from perflex.features.polynomials.polynomial import Polynomial

# Coefficients by exponents in the order of a list of variables, as division needs them.
_Dense = dict[tuple[int, ...], Fraction]


def quotient_text(above: Polynomial, below: Polynomial) -> str:
    """Return the quotient of two polynomials as text, e.g. ``n/16`` or ``(7*n - 14)/(n + 4)``; `below` is not zero."""
    if not above.terms:
        return "0"
    variables = sorted({*above.symbols, *below.symbols})
    numerator, denominator = _cancelled(_dense(above, variables), _dense(below, variables), len(variables))
    top = _sum_text(numerator, variables)
    if denominator == {(0,) * len(variables): 1}:
        return top
    bottom = _sum_text(denominator, variables)
    top = f"({top})" if len(numerator) > 1 else top
    return f"{top}/({bottom})" if len(denominator) > 1 or "*" in bottom else f"{top}/{bottom}"


def _dense(polynomial: Polynomial, variables: list[str]) -> _Dense:
    return {
        tuple(dict(monomial).get(name, 0) for name in variables): coefficient
        for monomial, coefficient in polynomial.terms.items()
    }


def _cancelled(above: _Dense, below: _Dense, variables: int) -> tuple[_Dense, _Dense]:
    quotient, rest = _divide(above, below)
    if not rest:
        return _whole(quotient, {(0,) * variables: Fraction(1)})
    if variables == 1:
        # Of polynomials in several variables, a common factor is rare and takes long to find.
        factor = _common_factor(above, below)
        above, below = _divide(above, factor)[0], _divide(below, factor)[0]
    # In several variables at least common powers cancel: n*m/(n^2 + n) is m/(n + 1).
    lowest = [min(powers[axis] for powers in (*above, *below)) for axis in range(variables)]
    above, below = _lowered(above, lowest), _lowered(below, lowest)
    return _whole(above, below)


def _divide(above: _Dense, below: _Dense) -> tuple[_Dense, _Dense]:
    """Return (quotient, rest); with several variables the rest only says whether the division is exact."""
    quotient: _Dense = {}
    rest = dict(above)
    # Tuples of exponents compare lexicographically, which is a monomial order: the largest is the leading term.
    lead = max(below)
    while rest:
        top = max(rest)
        powers = tuple(a - b for a, b in zip(top, lead, strict=True))
        if min(powers, default=0) < 0:
            break
        factor = rest[top] / below[lead]
        quotient[powers] = factor
        for other, coefficient in below.items():
            place = tuple(a + b for a, b in zip(other, powers, strict=True))
            rest[place] = rest.get(place, Fraction(0)) - factor * coefficient
            if not rest[place]:
                del rest[place]
    return quotient, rest


def _common_factor(one: _Dense, two: _Dense) -> _Dense:
    """Return the greatest common divisor of polynomials in one variable (Euclid)."""
    while two:
        one, two = two, _divide(one, two)[1]
    return one


def _lowered(polynomial: _Dense, by: list[int]) -> _Dense:
    return {
        tuple(a - b for a, b in zip(powers, by, strict=True)): coefficient for powers, coefficient in polynomial.items()
    }


def _whole(above: _Dense, below: _Dense) -> tuple[_Dense, _Dense]:
    """Scale both to integers without a common divisor, the leading one below positive."""
    coefficients = [*above.values(), *below.values()]
    scale = Fraction(lcm(*(c.denominator for c in coefficients)))
    scale /= gcd(*(int(c * scale) for c in coefficients))
    if below[max(below)] < 0:
        scale = -scale
    return ({powers: c * scale for powers, c in above.items()}, {powers: c * scale for powers, c in below.items()})


def _sum_text(polynomial: _Dense, variables: list[str]) -> str:
    return sum_text(
        [
            (tuple((name, power) for name, power in zip(variables, powers, strict=True) if power), polynomial[powers])
            for powers in sorted(polynomial, reverse=True)
        ]
    )
