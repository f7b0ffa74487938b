"""Quotients of two counts: as a short formula where there is one, and at given sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex._islpy import isl
from perflex.features._polynomial_pieces import read_piece
from perflex.features._rational import polynomial_of, quotient_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features._quasipolynomial import QuasiPolynomial

__all__ = ["Ratio"]

_MOST_CASES = 3


@dataclass(frozen=True)
class Ratio:
    """The quotient of two counts.

    Attributes
    ----------
    numerator, denominator
        The counts.
    assumptions
        isl parameter set of the sizes they are valid for.
    """

    numerator: QuasiPolynomial
    denominator: QuasiPolynomial
    assumptions: Any

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

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        """The formula, e.g. ``n/16``, or cases ``1 : n = 3; (7*n - 14)/(n + 4) : n >= 4``."""
        if self.numerator.deferred or self.denominator.deferred:
            return "counted at given sizes"
        cases: dict[str, Any] = {}
        for above, over in _pieces(self.numerator):
            for below, under in _pieces(self.denominator):
                both = over.intersect(under).intersect(self.assumptions)
                if both.is_empty():
                    continue
                text = quotient_text(_polynomial(above, both), _polynomial(below, both))
                cases[text] = cases[text].union(both) if text in cases else both
        if len(cases) > _MOST_CASES:
            return "differs by case; give sizes"
        shown = [(text, _condition(domain, self.assumptions)) for text, domain in cases.items()]
        return "; ".join(f"{text} : {condition}" if condition else text for text, condition in shown) or "nothing touched"


def _pieces(count: QuasiPolynomial) -> list[tuple[Any, Any]]:
    return [(polynomial, domain.params()) for domain, polynomial in count.isl_object.get_pieces()]


def _polynomial(polynomial: Any, domain: Any) -> Any:
    # Where the domain fixes a size, so does this.
    return polynomial_of(read_piece(domain, polynomial.gist_params(domain)))


def _condition(domain: Any, assumptions: Any) -> str:
    left = domain.coalesce().gist(assumptions)
    return str(left).partition(":")[2].strip(" }")
