"""Quotients of two counts: as a short formula where there is one, and at given sizes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.polynomials.late_values import computed_once
from perflex.features.polynomials.pieces import Polynomial, read_piece, sum_text
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.scop.scop import Scop

_MOST_CASES = 3
# Longer formulas tell people nothing.
_LONGEST = 160
# Pairs of pieces that are looked at; more hardly ever make few cases.
_MOST_PAIRS = 12


@dataclass(frozen=True)
class Ratio:
    """The quotient of two counts.

    Attributes
    ----------
    numerator, denominator
        The counts.
    scop
        The kernel they belong to, which says for which sizes they are valid.
    """

    numerator: QuasiPolynomial
    denominator: QuasiPolynomial
    scop: Scop

    @classmethod
    def of(cls, count: QuasiPolynomial, scop: Scop) -> Ratio:
        """Return a count as a ratio to one, for its formula."""
        return cls(count, QuasiPolynomial.constant(1), scop)

    def evaluate(self, sizes: Mapping[str, Any]) -> Any:
        """Return the value at given sizes; nan where the denominator is zero.

        Parameters
        ----------
        sizes
            An integer per size parameter, or integer arrays of one shape.

        Returns
        -------
        float or numpy.ndarray

        Raises
        ------
        MissingSizeError
            A parameter has no value.
        """
        above, below = self.numerator.evaluate(sizes), self.denominator.evaluate(sizes)
        if not np.ndim(above) and not np.ndim(below):
            # Integers beyond 2**53 divide exactly.
            return float(above / below) if below else float("nan")
        above, below = np.broadcast_arrays(np.asarray(above, dtype=float), np.asarray(below, dtype=float))
        return np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0)

    @property
    def is_symbolic(self) -> bool:
        """Whether the text is a formula, rather than what stands for it."""
        return 0 < len(self._cases) <= _MOST_CASES and max(map(len, self._cases)) <= _LONGEST

    def __str__(self) -> str:
        """Return the formula, e.g. ``n/16``, or cases such as ``1 : n = 3; (7*n - 14)/(n + 4) : n >= 4``."""
        if self.numerator.deferred or self.denominator.deferred:
            return "counted at given sizes"
        if self.denominator.is_zero:
            return "nothing touched"
        if not self.is_symbolic:
            return "long formula" if 0 < len(self._cases) <= _MOST_CASES else "differs by case"
        shown = [(text, _condition(domain, self._sizes)) for text, domain in self._cases.items()]
        return "; ".join(f"{text} : {condition}" if condition else text for text, condition in shown)

    @computed_once
    def _sizes(self) -> Any:
        """The sizes that formulas are for: the valid ones above zero, so that ``n > 0`` goes without saying."""
        names = dict.fromkeys((*self.numerator.parameters, *self.denominator.parameters))
        above_zero = " and ".join(f"{name} >= 1" for name in names)
        return isl.Set(f"[{', '.join(names)}] -> {{ : {above_zero} }}").params().intersect(self.scop.assumptions)

    @computed_once
    def _cases(self) -> dict[str, Any]:
        """Formulas, each with the isl parameter set of the sizes it holds for."""
        cases: dict[str, Any] = {}
        if self.numerator.deferred or self.denominator.deferred:
            return cases
        if self.numerator.is_zero and not self.denominator.is_zero:
            return {"0": self._sizes}
        above, below = _domains(self.numerator), _domains(self.denominator)
        if len(above) * len(below) > _MOST_PAIRS:
            return cases
        for over in above:
            for under in below:
                both = over.intersect(under).intersect(self._sizes)
                if both.is_empty():
                    continue
                text = quotient_text(_polynomial(self.numerator, both), _polynomial(self.denominator, both))
                # Different pieces of isl's may give one formula: equal texts are one case.
                cases[text] = cases[text].union(both) if text in cases else both
        return cases


def _domains(count: QuasiPolynomial) -> list[Any]:
    return [domain.params() for domain, _ in count.isl_object.get_pieces()]


def _polynomial(count: QuasiPolynomial, domain: Any) -> Polynomial:
    """Return the polynomial on a part of one piece; where that fixes a size, so does the polynomial."""
    pieces = count.isl_object.intersect_params(domain).gist_params(domain).get_pieces()
    return Polynomial.of_piece(read_piece(*pieces[0])) if pieces else Polynomial({})


def _condition(domain: Any, sizes: Any) -> str:
    left = domain.coalesce().gist(sizes)
    return str(left).partition(":")[2].strip(" }")


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
