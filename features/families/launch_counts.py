"""Features of launches: barriers that a work-item meets (paper Sections 5 and 6.1.3), launches, and their sizes."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from perflex.features.counting.scop_counts import counts_of
from perflex.features.counting.touched import Certainty, certainty_of_statement
from perflex.features.families.feature import Family, Remarks, Sizes, any_of
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import Scop
from perflex.features.target import Target

_BARRIER = "f_sync_barrier_"
_UNITS = {
    "f_sync_kernel_launch": "launch",
    "f_thread_groups": "work-group",
    "f_thread_items": "work-item",
    "f_sub_groups": "sub-group",
}


def _count(scop: Scop, _sizes: Sizes, target: Target, name: str) -> QuasiPolynomial:
    counts = counts_of(scop)
    if name == "f_sub_groups":
        return counts.sub_groups(target.sub_group_size)
    return {"f_sync_kernel_launch": counts.launches, "f_thread_groups": counts.work_groups}.get(name, counts.work_items)


def _barriers(scop: Scop, sizes: Sizes, _target: Target, kind: str) -> Any:
    total: Any = 0
    for launch in dict.fromkeys(barrier.launch for barrier in scop.barriers if barrier.kind == kind):
        # A launch without work-groups has no barriers: 0/1, not 0/0.
        groups = np.maximum(counts_of(scop).group_count(launch).evaluate(sizes), 1)
        total = total + counts_of(scop).barriers(kind, launch).evaluate(sizes) / groups
    return total


def _inventory(scop: Scop) -> list[str]:
    return [*sorted({f"{_BARRIER}{barrier.kind}" for barrier in scop.barriers}), *_UNITS]


def _barrier_remarks(scop: Scop, _sizes: Sizes | None, _target: Target, kind: str) -> Remarks:
    count = counts_of(scop).barriers_met(kind)
    met = [certainty_of_statement(scop, one) for one in scop.barriers if one.kind == kind]
    return Remarks("mean over the work-groups" if count is None else str(count), reduce(or_, met, Certainty()))


LAUNCHES = Family(
    "Launches, work-groups, work-items or sub-groups of a kernel",
    any_of(_UNITS),
    _UNITS.__getitem__,
    count=_count,
    examples=tuple(_UNITS),
    inventory=_inventory,
    cost="overhead",
)
BARRIERS = Family(
    "Barriers that a work-item meets",
    f"{_BARRIER}(local|global|sub_group)",
    "barrier per work-item",
    _barriers,
    examples=tuple(f"{_BARRIER}{kind}" for kind in ("local", "global", "sub_group")),
    inventory=_inventory,
    remarks=_barrier_remarks,
    cost="overhead",
)
