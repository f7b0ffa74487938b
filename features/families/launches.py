"""Features of launches: barriers, launches, work-groups, work-items and sub-groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.counting.scop_counts import counts_of
from perflex.features.families.feature import NamedFeature, named_family

if TYPE_CHECKING:
    from perflex.features.families.feature import Sizes
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

_BARRIER = "f_sync_barrier_"
# The paper counts the barriers that a single work-item encounters (end of Section 5, Section 6.1.3).
_UNITS = {
    "f_sync_barrier_local": "barrier per work-item",
    "f_sync_barrier_global": "barrier per work-item",
    "f_sync_kernel_launch": "launch",
    "f_thread_groups": "work-group",
    "f_thread_items": "work-item",
    "f_sub_groups": "sub-group",
}


@dataclass(frozen=True)
class LaunchFeature(NamedFeature):
    """Barriers per work-item, launches, work-groups, work-items or sub-groups of a kernel."""

    units = _UNITS

    @property
    def barrier(self) -> str:
        """The kind of barrier that is counted; empty if none is."""
        return self.identifier.removeprefix(_BARRIER) if self.identifier.startswith(_BARRIER) else ""

    def count(self, scop: Scop, sub_group_size: int) -> QuasiPolynomial | None:
        """Return the symbolic count; None for barriers of which work-groups meet different numbers."""
        counts = counts_of(scop)
        if self.barrier:
            return counts.barriers_met(self.barrier)
        if self.identifier == "f_sub_groups":
            return counts.sub_groups(sub_group_size)
        return {
            "f_sync_kernel_launch": counts.launches,
            "f_thread_groups": counts.work_groups,
            "f_thread_items": counts.work_items,
        }[self.identifier]

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value at the given sizes.

        Barriers are the mean over the launch's work-groups, which is what one work-item meets when all
        work-groups do the same; times ``f_thread_groups`` it is the number of barriers executed.
        """
        scop.check_sizes(sizes)
        if not self.barrier:
            return self.count(scop, target.sub_group_size).evaluate(sizes)  # type: ignore[union-attr]
        counts = counts_of(scop)
        total: Any = 0
        for launch in dict.fromkeys(barrier.launch for barrier in scop.barriers if barrier.kind == self.barrier):
            groups = counts.group_count(launch).evaluate(sizes)
            # A launch without work-groups has no barriers: 0/1, not 0/0.
            total = total + counts.barriers(self.barrier, launch).evaluate(sizes) / np.maximum(groups, 1)
        return total

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the features of this family that the kernel has."""
        barriers = {f"{_BARRIER}{barrier.kind}" for barrier in scop.barriers}
        return [*sorted(barriers), *(name for name in _UNITS if not name.startswith(_BARRIER))]


LAUNCH_FAMILY = named_family(_UNITS, LaunchFeature)
