"""Vectors: their elements are a last dimension of a statement's domain."""

from __future__ import annotations

from typing import Any

from perflex.isl import isl

_SET = isl.dim_type.set


def in_lanes(domain: Any, lanes: int) -> Any:
    """Return instances for each of a vector's elements, enumerated by a last dimension."""
    last = domain.dim(_SET)
    return (
        domain.add_dims(_SET, 1).lower_bound_val(_SET, last, isl.Val(0)).upper_bound_val(_SET, last, isl.Val(lanes - 1))
    )


def lane_of(space: Any) -> Any:
    """Return the number of the element as a function of instances."""
    return isl.PwAff.var_on_domain(isl.LocalSpace.from_space(space), _SET, space.dim(_SET) - 1)
