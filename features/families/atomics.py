"""Atomic updates: ``f_atomic_global`` and ``f_atomic_local``, one after the other where they meet in one element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.counting.counts import counts_of
from perflex.features.families.feature import FeatureDefaults, NamedFamily

if TYPE_CHECKING:
    from perflex.features.counting.footprints import AccessCounts
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

_PREFIX = "f_atomic_"
_UNITS = {f"{_PREFIX}{space}": "atomic step" for space in ("global", "local")}


@dataclass(frozen=True)
class AtomicFeature(FeatureDefaults):
    """Steps in which sub-groups execute their atomic updates of arrays in one address space.

    The work-items of a sub-group that update one element do so one after the other: a sub-group whose work-items all
    update the same one takes as many steps as it has active work-items, one whose elements differ a single one. Where
    the element depends on data, they are taken to differ. Updates by different sub-groups are not looked at.

    It counts what a sub-group executes, for costs that a calibration finds, on any device. ``f_peak_atomic`` is another
    quantity: the updates of a whole launch that queue for an element in a GPU's L2 cache, over its rates. So is
    ``f_peak_atomic_local``: there what meets in one word is added up first, and different words on one bank take turns.

    An update is a store by a statement with the operation ``atomic``.
    """

    identifier: str

    @property
    def space(self) -> str:
        """The address space."""
        return self.identifier.removeprefix(_PREFIX)

    @property
    def unit(self) -> str:
        """What is counted."""
        return _UNITS[self.identifier]

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
        return [name for name in _UNITS if _updates(scop, name.removeprefix(_PREFIX))]


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


ATOMIC_FAMILY = NamedFamily(_UNITS, AtomicFeature)
