"""Synchronization and launch features (paper Sections 6.1.3 and 6.1.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.counting.counts import counts_of
from perflex.features.families.feature import FeatureDefaults, NamedFamily

if TYPE_CHECKING:
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

_UNITS = {
    "f_sync_barrier_local": "barrier per work-item",
    "f_sync_barrier_global": "barrier per work-item",
    "f_sync_kernel_launch": "launch",
    "f_thread_groups": "work-group",
    "f_thread_items": "work-item",
    "f_sub_groups": "sub-group",
}


@dataclass(frozen=True)
class LaunchFeature(FeatureDefaults):
    """Barriers per work-item, launches, work-groups, work-items or sub-groups of a kernel."""

    identifier: str

    @property
    def unit(self) -> str:
        """What is counted."""
        return _UNITS[self.identifier]

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value at the given sizes.

        Barriers are the mean over the launch's work-groups, which is what one work-item meets when all
        work-groups do the same; times ``f_thread_groups`` it is the number of barriers executed.
        """
        scop.check_sizes(sizes)
        counts = counts_of(scop)
        if self.identifier.startswith("f_sync_barrier_"):
            return self._barriers(scop, sizes)
        symbolic = {
            "f_sync_kernel_launch": lambda: counts.launches,
            "f_thread_groups": lambda: counts.work_groups,
            "f_thread_items": lambda: counts.work_items,
            "f_sub_groups": lambda: counts.sub_groups(target.sub_group_size),
        }[self.identifier]()
        return symbolic.evaluate(sizes)

    def _barriers(self, scop: Scop, sizes: Sizes) -> Any:
        counts = counts_of(scop)
        kind = self.identifier.removeprefix("f_sync_barrier_")
        total: Any = 0
        for launch in dict.fromkeys(barrier.launch for barrier in scop.barriers if barrier.kind == kind):
            groups = counts.group_count(launch).evaluate(sizes)
            total = total + counts.barriers(kind, launch).evaluate(sizes) / np.maximum(groups, 1)
        return total

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the features of this family that the kernel has."""
        barriers = {f"f_sync_barrier_{barrier.kind}" for barrier in scop.barriers}
        return [
            *sorted(barriers),
            "f_sync_kernel_launch",
            "f_thread_groups",
            "f_thread_items",
            "f_sub_groups",
        ]


LAUNCH_FAMILY = NamedFamily(_UNITS, LaunchFeature)
