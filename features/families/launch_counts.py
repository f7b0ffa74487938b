"""Features of launches: barriers, launches, work-groups, work-items and sub-groups.

Barriers are those that one work-item meets (end of Section 5, Section 6.1.3 of the paper): the mean over the launch's
work-groups, of which all do the same as a rule. Times ``f_thread_groups`` it is the number of barriers executed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perflex.features.counting.scop_counts import counts_of
from perflex.features.counting.touched import Certainty
from perflex.features.families.feature import Family, Remarks, Sizes, any_of
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import Scop
from perflex.features.target import Target

_BARRIER = "f_sync_barrier_"
_UNITS = {
    f"{_BARRIER}local": "barrier per work-item",
    f"{_BARRIER}global": "barrier per work-item",
    f"{_BARRIER}sub_group": "barrier per work-item",
    "f_sync_kernel_launch": "launch",
    "f_thread_groups": "work-group",
    "f_thread_items": "work-item",
    "f_sub_groups": "sub-group",
}


def _count(scop: Scop, _sizes: Sizes, target: Target, name: str) -> QuasiPolynomial | None:
    counts = counts_of(scop)
    if name.startswith(_BARRIER):
        return counts.barriers_met(name.removeprefix(_BARRIER))
    if name == "f_sub_groups":
        return counts.sub_groups(target.sub_group_size)
    return {"f_sync_kernel_launch": counts.launches, "f_thread_groups": counts.work_groups}.get(name, counts.work_items)


def _value(scop: Scop, sizes: Sizes, target: Target, name: str) -> Any:
    if not name.startswith(_BARRIER):
        return _count(scop, sizes, target, name).evaluate(sizes)  # type: ignore[union-attr]
    kind, counts = name.removeprefix(_BARRIER), counts_of(scop)
    total: Any = 0
    for launch in dict.fromkeys(barrier.launch for barrier in scop.barriers if barrier.kind == kind):
        # A launch without work-groups has no barriers: 0/1, not 0/0.
        groups = np.maximum(counts.group_count(launch).evaluate(sizes), 1)
        total = total + counts.barriers(kind, launch).evaluate(sizes) / groups
    return total


def _inventory(scop: Scop) -> list[str]:
    barriers = {f"{_BARRIER}{barrier.kind}" for barrier in scop.barriers}
    return [*sorted(barriers), *(name for name in _UNITS if not name.startswith(_BARRIER))]


def _remarks(scop: Scop, sizes: Sizes | None, target: Target, name: str) -> Remarks:
    count = _count(scop, sizes or {}, target, name)
    stated = any(scop.assumed(one) for one in scop.barriers if name == f"{_BARRIER}{one.kind}")
    return Remarks("mean over the work-groups" if count is None else str(count), Certainty(stated=stated))


LAUNCH_COUNTS = Family(
    "Barriers per work-item, launches, work-groups, work-items or sub-groups of a kernel",
    any_of(_UNITS),
    _UNITS.__getitem__,
    _value,
    examples=tuple(_UNITS),
    inventory=_inventory,
    remarks=_remarks,
    cost="overhead",
)
