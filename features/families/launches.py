"""Features of launches: barriers, launches, work-groups, work-items and atomics; quantities of a stencil in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import FeatureError
from perflex.features.counting.counts import counts_of
from perflex.features.families.feature import Family, FeatureDefaults, NamedFeature, named_family

if TYPE_CHECKING:
    from perflex.features.counting.footprints import AccessCounts
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
    "f_host_launch": "launch",
    "f_thread_groups": "work-group",
    "f_thread_items": "work-item",
    "f_sub_groups": "sub-group",
}


# Launches of which the time includes host code: a fact of the time, not of the kernel.
_BY_HOST = "f_host_launch"


@dataclass(frozen=True)
class LaunchFeature(NamedFeature):
    """Barriers per work-item, launches, work-groups, work-items or sub-groups of a kernel.

    ``f_host_launch`` is the number of launches where the target's times include host code, such as allocations, copies
    and waiting between launches; else zero, as for all that perflex measures.
    """

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
            _BY_HOST: counts.launches,
            "f_thread_groups": counts.work_groups,
            "f_thread_items": counts.work_items,
        }[self.identifier]

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value at the given sizes.

        Barriers are the mean over the launch's work-groups, which is what one work-item meets when all
        work-groups do the same; times ``f_thread_groups`` it is the number of barriers executed.
        """
        scop.check_sizes(sizes)
        if self.identifier == _BY_HOST and not target.host_code:
            return 0 * counts_of(scop).launches.evaluate(sizes)
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
        return [*sorted(barriers), *(name for name in _UNITS if not name.startswith(_BARRIER) and name != _BY_HOST)]

    def matches(self, scop: Scop, sizes: Sizes, /) -> bool:
        """Return whether the kernel has any; any kernel may have been timed with host code."""
        return self.identifier == _BY_HOST or super().matches(scop, sizes)


LAUNCH_FAMILY = named_family(_UNITS, LaunchFeature)


_ATOMIC = "f_atomic_"
_ATOMICS = {f"{_ATOMIC}{space}": "atomic step" for space in ("global", "local")}


@dataclass(frozen=True)
class AtomicFeature(NamedFeature):
    """Steps in which sub-groups execute their atomic updates of arrays in one address space.

    The work-items of a sub-group that update one element do so one after the other: a sub-group whose work-items all
    update the same one takes as many steps as it has active work-items, one whose elements differ a single one. Where
    the element depends on data, they are taken to differ. Updates by different sub-groups are not looked at.

    ``f_peak_atomic`` is another quantity: the updates of a whole launch that queue for an element in a GPU's L2 cache.
    So is ``f_peak_atomic_local``: there what meets in one word is added up first, and words on one bank take turns.
    """

    units = _ATOMICS

    @property
    def space(self) -> str:
        """The address space."""
        return self.identifier.removeprefix(_ATOMIC)

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the count at the given sizes."""
        scop.check_sizes(sizes)
        size = target.sub_group_size
        total: Any = 0
        for update in _updates(scop, self.space):
            most, groups = _meeting(scop, update, size), counts_of(scop).instances(update.statement, size)
            if most < min(size, scop.launches[update.statement.launch].group_size):
                total = total + groups.evaluate(sizes) * most
            else:
                # Of work-items that all meet, those that a condition leaves out take no step.
                total = total + update.work_item_count.evaluate(sizes)
        return total

    def matches(self, scop: Scop, _sizes: Sizes, /) -> bool:
        """Return whether there are such updates."""
        return bool(_updates(scop, self.space))

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the features of this family that the kernel has."""
        return [name for name in _ATOMICS if _updates(scop, name.removeprefix(_ATOMIC))]


def _updates(scop: Scop, space: str) -> list[AccessCounts]:
    return [
        item
        for item in counts_of(scop).accesses
        if item.access.direction == "store"
        and item.array.space == space
        and any(operation.kind == "atomic" for operation in item.statement.operations)
    ]


def _meeting(scop: Scop, update: AccessCounts, sub_group_size: int) -> int:
    """Return how many work-items of a sub-group update one element, at most."""
    items = scop.launches[update.statement.launch].items
    width = min(sub_group_size, int(np.prod(items)))
    numbers = np.arange(width)
    # Distances that are numbers give addresses; along other axes elements are not known, and taken to differ.
    address, columns = np.zeros_like(numbers), []
    for extent, stride in zip(items, update.local_strides, strict=True):
        place, numbers = numbers % extent, numbers // extent
        if stride is not None and not stride.parameters:
            address = address + place * int(stride.evaluate({}))
        elif extent > 1:
            columns.append(place)
    return int(np.unique(np.stack([address, *columns]), axis=1, return_counts=True)[1].max())


ATOMIC_FAMILY = named_family(_ATOMICS, AtomicFeature)


BLOCK_UNITS = {
    "f_block_points": "point",
    "f_block_loads": "load",
    "f_block_runs": "run",
    "f_block_tiles": "tile",
    "f_block_tail": "load",
}
_VOLUME = "f_block_vol_"


@dataclass(frozen=True)
class BlockFeature(FeatureDefaults):
    """A quantity that choosing a block counts for each candidate; a kernel does not tell its block."""

    identifier: str

    @property
    def unit(self) -> str:
        """What is counted."""
        return BLOCK_UNITS.get(self.identifier, "B")

    def value(self, scop: Scop, _sizes: Sizes, _target: Target, /) -> Any:
        """Raise: no kernel has a value."""
        msg = (
            f"feature {self.identifier} of kernel {scop.name!r} has a value for a block only; "
            "use calibrate_blocks and choose_block(..., calibration=...)"
        )
        raise FeatureError(msg, feature=self.identifier, kernel=scop.name)

    def matches(self, _scop: Scop, _sizes: Sizes, /) -> bool:
        """Return True, so that asking for the value says why there is none."""
        return True

    def inventory(self, _scop: Scop, /) -> list[str]:
        """Return nothing: a kernel has none of them."""
        return []


def _block(identifier: str) -> BlockFeature | None:
    known = identifier in BLOCK_UNITS or (identifier.startswith(_VOLUME) and identifier != _VOLUME)
    return BlockFeature(identifier) if known else None


# Nothing to suggest: they are for `calibrate_blocks` alone.
BLOCK_FAMILY = Family(_block)
