"""Conflict misses in words: which array's accesses crowd into few sets of a cache, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, inf
from typing import TYPE_CHECKING

from perflex.features.cpu.footprints import outermost
from perflex.features.cpu.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perflex.features.cpu.footprints import Window
    from perflex.features.cpu.reuse import Reuse
    from perflex.features.cpu.rules import Rules
    from perflex.features.cpu.sets import Sets
    from perflex.features.cpu.traffic import GroupPlan
    from perflex.machines.levels import CacheLevel

# What is lost of a reuse, and what more crosses a level, before it is worth a line.
_LOST, _MORE = 0.25, 1.1


@dataclass(frozen=True)
class Conflict:
    """A reuse that sets of a cache lose, though the cache as a whole is large enough for it.

    Attributes
    ----------
    level
        The cache.
    array, loop
        Whose lines are lost before they are used again, and the loop in whose next iteration that would be.
    stride_bytes, itemsize
        Distance of accesses that brings them into the same sets, and bytes of an element.
    lines, sets, ways
        Lines of the array that are to be kept, the number of sets they are in, and how many each of those keeps.
    lost
        The part of these lines that is lost.
    more
        Bytes that cross beyond the level, relative to those without any conflict; infinite where those are none.
    line
        Bytes of a cache line.
    """

    level: str
    array: str
    loop: str
    stride_bytes: int
    itemsize: int
    lines: int
    sets: int
    ways: int
    lost: float
    more: float
    line: int

    @property
    def padded_bytes(self) -> int:
        """The next larger distance that uses all sets: an odd number of lines."""
        return (-(-(self.stride_bytes + 1) // self.line) | 1) * self.line

    def __str__(self) -> str:
        padding = (self.padded_bytes - self.stride_bytes) // self.itemsize
        more = f"{self.more:.3g} times the bytes" if self.more < inf else "bytes where there would be none"
        return (
            f"{self.level}: {self.lines} lines of array {self.array!r}, {self.stride_bytes} B apart, fall into "
            f"{self.sets} set(s) of {self.ways} lines, so that loop {self.loop} loses {100 * self.lost:.0f} % of them "
            f"before it uses them again ({more} beyond {self.level}); pad the pitch by {padding} element(s), to "
            f"{self.padded_bytes} B"
        )


def find_conflicts(
    reuse: Reuse, plans: Sequence[GroupPlan], levels: Sequence[CacheLevel], rules: Rules, sets: Mapping[str, Sets]
) -> tuple[Conflict, ...]:
    """Return what conflicts cost a kernel at sizes that are numbers: of each cache and array the worst.

    `sets` are those of the caches that have some, by name.
    """
    everything = rules.whole(reuse.everything())
    found = []
    for level in levels:
        own = sets.get(level.name)
        if own is None:
            continue
        capacity = level.bytes_per_core(rules.cores)
        with_sets = Traffic(reuse, capacity, strict=rules.strict, whole=everything, sets=own)
        without = Traffic(reuse, capacity, strict=rules.strict, whole=everything)
        crossing, ideal = (one.beyond(plans, write_allocate=levels[0].write_allocate) for one in (with_sets, without))
        ideal_bytes = ideal.loads + ideal.evicts
        more = (crossing.loads + crossing.evicts) / ideal_bytes if ideal_bytes else inf
        if crossing.loads + crossing.evicts > _MORE * ideal_bytes:
            found += _of_level(reuse, plans, with_sets, own, level, more)
    return tuple(found)


def _of_level(
    reuse: Reuse, plans: Sequence[GroupPlan], traffic: Traffic, sets: Sets, level: CacheLevel, more: float
) -> list[Conflict]:
    worst: dict[str, Conflict] = {}
    for entry in plans:
        loops = reuse.nests.nests[entry.nest].loops
        for window in dict.fromkeys(entry.deciding()):
            if not traffic.fits(entry.nest, window):
                continue
            crowding = sets.crowding(entry.nest, entry.place, window)
            if crowding.held > 1 - _LOST:
                continue
            conflict = Conflict(
                level.name,
                entry.group.array,
                loops[outermost(window)].base,
                _stride(reuse, entry, window, sets),
                entry.group.itemsize,
                crowding.lines,
                crowding.sets,
                sets.ways,
                1 - crowding.held,
                more,
                sets.line,
            )
            before = worst.get(conflict.array)
            # Of windows with the same loss, the shortest is what must be mended first.
            if before is None or (conflict.lost, -conflict.lines) > (before.lost, -before.lines):
                worst[conflict.array] = conflict
    # Arrays that use all sets are not the cause, unless no other is.
    causes = [one for one in worst.values() if 2 * sets.reached(one.stride_bytes) <= sets.count]
    return causes or list(worst.values())


def _stride(reuse: Reuse, entry: GroupPlan, window: Window, sets: Sets) -> int:
    """Return the distance of a group's accesses in a window that reaches fewest sets."""
    distances = [round(float(one)) for one in _distances(reuse, entry, window)]
    return min(distances, key=lambda one: (sets.reached(one), one), default=sets.line)


def _distances(reuse: Reuse, entry: GroupPlan, window: Window) -> Iterator[float]:
    footprints, over = reuse.footprints[entry.nest], outermost(window)
    for axis in range(len(entry.group.axes)):
        stride, steps = footprints.movement(entry.place, axis)
        if any(loop > over and footprints.extents[loop] > 1 for loop, _ in steps):
            yield stride * min(step for loop, step in steps if loop > over)
        offsets = sorted({stream.offset[axis] for stream in entry.group.streams})
        if len(offsets) > 1:
            yield stride * gcd(*(offset - offsets[0] for offset in offsets))
