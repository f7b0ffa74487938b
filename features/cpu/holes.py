"""Iterations that loops leave out: steps of more than one, and guards with ``%``."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def loop_strides(domain: Any, places: Sequence[int]) -> list[int]:
    """Return by how much the loops at some dimensions grow per iteration."""
    return [max(1, int(domain.get_stride(place).to_python())) for place in places]


def per_iteration(extent: QuasiPolynomial, stride: int) -> QuasiPolynomial:
    """Return the iterations of a loop from the values between its first and last, both counted."""
    if stride == 1:
        return extent
    return (extent + QuasiPolynomial.constant(stride - 1)) * Fraction(1, stride)


def without_holes(domain: Any) -> Any:
    """Return a domain with the iterations that constraints with ``%`` or ``//`` of its loops leave out."""
    if not any(True for _ in _divided(domain)):
        return domain
    return domain.remove_divs_involving_dims(isl.dim_type.set, 0, domain.dim(isl.dim_type.set))


def holes_of(domain: Any, sequential: range) -> bool:
    """Return whether iterations are left out by more than the steps of sequential loops."""
    return any(len(involved) != 1 or involved[0] not in sequential for involved in _divided(domain))


def _divided(domain: Any) -> Iterator[list[int]]:
    """Return, for each constraint with a division of loops, the dimensions of these."""
    kinds = isl.dim_type
    dims = range(domain.dim(kinds.set))
    for conjunction in domain.compute_divs().get_basic_sets():
        for constraint in conjunction.get_constraints():
            affine = constraint.get_aff()
            used = [
                affine.get_div(place)
                for place in range(affine.dim(kinds.div))
                if not affine.get_coefficient_val(kinds.div, place).is_zero()
            ]
            involved = [place for place in dims if any(one.involves_dims(kinds.in_, place, 1) for one in used)]
            if involved:
                yield involved
