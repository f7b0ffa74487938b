"""Barriers: how often they are reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl

if TYPE_CHECKING:
    from perflex.features.scop.scop import Barrier, Scop


def reached_by_groups(scop: Scop, barrier: Barrier) -> QuasiPolynomial:
    """Return how many times work-groups reach a barrier, over the launch."""
    launch = scop.launches[barrier.launch]
    # All work-items of a group reach it together: once for each group, not for each item.
    per_group = barrier.domain.project_out(isl.dim_type.set, len(launch.groups), len(launch.items))
    return QuasiPolynomial.points(per_group, scop.assumptions) * barrier.weight()


def reached_by_each(scop: Scop, barrier: Barrier, by_groups: QuasiPolynomial) -> QuasiPolynomial | None:
    """Return how many times each work-item reaches a barrier that work-groups reach `by_groups` times in all.

    None where work-groups differ in that.
    """
    launch = scop.launches[barrier.launch]
    # The loops' iterations over all groups together: these are each group's own only if the totals agree.
    sequential = barrier.domain.project_out(isl.dim_type.set, 0, len(launch.groups) + len(launch.items))
    alike = QuasiPolynomial.points(sequential, scop.assumptions) * barrier.weight()
    difference = alike * launch.group_count + by_groups * -1
    # isl subtracts exactly, but only where both are known to hold: on the sizes the kernel is valid for.
    symbolic = difference.isl_object.gist_params(scop.assumptions)
    return alike if QuasiPolynomial(symbolic, difference.deferred).is_zero else None
