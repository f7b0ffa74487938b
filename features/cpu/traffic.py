"""Traffic beyond a cache of given size, from which windows of reuse it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.cpu.reuse import unit_window
from perflex.features.cpu.scattered import lifetime
from perflex.features.cpu.traced import at_least, select, smaller

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perflex.features.cpu.footprints import Window
    from perflex.features.cpu.nests import StreamGroup
    from perflex.features.cpu.reuse import Reuse
    from perflex.features.cpu.sets import Sets


# Rates that differ by less are the same.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Crossing:
    """Bytes that cross a boundary of the memory hierarchy per run of the kernel.

    Attributes
    ----------
    loads, evicts
        Bytes towards the core and away from it; write-allocates are loads.
    allocates
        The part of the loads that is there only because of stores.
    """

    loads: Any
    evicts: Any
    allocates: Any

    def __add__(self, other: Crossing) -> Crossing:
        return Crossing(self.loads + other.loads, self.evicts + other.evicts, self.allocates + other.allocates)

    def times(self, factor: Any) -> Crossing:
        """Return a part of it."""
        return Crossing(self.loads * factor, self.evicts * factor, self.allocates * factor)


@dataclass(frozen=True)
class GroupPlan:
    """What decides over the traffic of a group; nothing in it depends on the cache.

    Attributes
    ----------
    nest
        Index of its nest.
    place
        Index of the group in the nest.
    group
        The group.
    executions
        Executions of the nest's body per run of the kernel.
    touching
        Those that count for lines (`Nest.touching`).
    rates
        Bytes per execution and missing stream where the reuse over the loops from this one on is held; the entry
        after the last is without any reuse.
    windows
        For each loop, the window that reuse over it needs.
    carried
        For each gap, its parts and the windows they need.
    """

    nest: int
    place: int
    group: StreamGroup
    executions: Any
    rates: tuple[Any, ...]
    windows: tuple[Window, ...]
    carried: tuple[tuple[tuple[Any, Window], ...], ...]
    touching: Any

    def deciding(self) -> Iterator[Window]:
        """Return the windows in which lines or elements come again, so that holding them saves traffic."""
        loops = len(self.rates) - 1
        for loop in range(loops):
            # Beyond rounding.
            if self.rates[loop] < self.rates[loop + 1] * (1 - ROUNDING):
                yield self.windows[loop]
        for parts in self.carried:
            yield from (window for part, window in parts if part > 0 and any(window))
        if self.group.touched_before is not None:
            yield unit_window(loops, self.group.touched_before)


def plan(reuse: Reuse) -> list[GroupPlan]:
    """Return the plans of all groups at the sizes of `reuse`."""
    plans = []
    for number, nest in enumerate(reuse.nests.nests):
        footprints = reuse.footprints[number]
        executions = reuse.numbers.size(nest.count)
        touching = executions if nest.touching is None else reuse.numbers.size(nest.touching)
        for place, group in enumerate(nest.groups):
            rates: list[Any] = [float(reuse.line)]
            iterations: Any = 1.0
            for loop in reversed(range(len(nest.loops))):
                iterations = iterations * footprints.extents[loop]
                # Held reuse never adds traffic, even where rounding up to lines seems to say so.
                if not group.scattered:
                    rates.append(smaller(rates[-1], footprints.new_bytes(place, loop) / iterations))
            rates += rates[-1:] * (len(nest.loops) + 1 - len(rates))
            loops = len(nest.loops)
            windows = tuple(footprints.tightened(place, unit_window(loops, loop)) for loop in range(loops))
            carried = tuple(
                tuple((part, footprints.tightened(place, window)) for part, window in footprints.carried(place, gap))
                for gap in group.gaps
            )
            plans.append(
                GroupPlan(
                    number,
                    place,
                    group,
                    executions / group.fold,
                    tuple(reversed(rates)),
                    windows,
                    carried,
                    touching / group.fold,
                )
            )
    return plans


class Traffic:
    """Traffic between a cache and what is beyond it.

    Parameters
    ----------
    reuse
        The kernel at given sizes.
    capacity
        Bytes of the cache that the core has.
    strict
        Whether a window must need less than that, rather than at most that.
    whole
        Bytes of all data; nothing crosses where they are less than the capacity.
    sets
        The cache's sets; None where it is taken as fully associative.
    dealt
        Whether several cores have a part of the data each: then those that fit do not crowd into sets.
    """

    def __init__(
        self, reuse: Reuse, capacity: float, *, strict: bool, whole: Any, sets: Sets | None = None, dealt: bool = False
    ) -> None:
        self._reuse = reuse
        self._dealt = dealt
        self._sets = sets
        self._capacity = capacity
        self._strict = strict
        # Strict in both conventions, as the transition point in YaskSite's Section V-A.
        self.whole_fits = whole < capacity
        self._known: dict[tuple[int, int, Window], Any] = {}

    def holds(self, nest: int, place: int, window: Window) -> Any:
        """Return the part of a group's lines that the cache holds over a window; 1.0 or 0.0 without conflicts."""
        key = nest, place, window
        if key not in self._known:
            fits = self.fits(nest, window)
            if self._sets is None:
                self._known[key] = select(fits, 1.0, 0.0)
            else:
                self._known[key] = self._sets.held(nest, place, window, self._reuse.needed((nest, window)), fits)
        return self._known[key]

    def fits(self, nest: int, window: Window) -> Any:
        """Return whether the cache as a whole is large enough for what is touched in a window."""
        needed = self._reuse.needed((nest, window))
        return needed < self._capacity if self._strict else needed <= self._capacity

    def beyond(self, plans: Sequence[GroupPlan], *, write_allocate: bool) -> Crossing:
        """Return the bytes that cross, per run of the kernel."""
        total = Crossing(0.0, 0.0, 0.0)
        for _, found in self.by_group(plans, write_allocate=write_allocate):
            total = total + found
        return total

    def by_group(self, plans: Sequence[GroupPlan], *, write_allocate: bool) -> Iterator[tuple[GroupPlan, Crossing]]:
        """Return the groups of accesses, each with the bytes of it that cross, per run of the kernel."""
        # By nest: what streams through the cache beside accesses that data decide.
        streaming: dict[int, Any] = {}
        for group in plans:
            if not group.group.scattered:
                found = self._group(group, write_allocate=write_allocate).times(self._crossing(group))
                streaming[group.nest] = streaming.get(group.nest, 0.0) + found.loads
                yield group, found
        for nest in dict.fromkeys(group.nest for group in plans if group.group.scattered):
            scattered = [group for group in plans if group.nest == nest and group.group.scattered]
            crossing = self._scattered(scattered, streaming.get(nest, 0.0), write_allocate=write_allocate)
            for group, found in zip(scattered, crossing, strict=True):
                yield group, found.times(select(self.whole_fits, 0.0, 1.0))

    def _scattered(self, plans: Sequence[GroupPlan], streaming: Any, *, write_allocate: bool) -> Iterator[Crossing]:
        """Return what crosses for accesses of a nest that data decide, each by what the cache holds of its array."""
        line = self._reuse.line
        arrays = {entry.group.array: self._reuse.whole[entry.group.array] / line for entry in plans}
        rates = {name: sum(entry.group.array == name for entry in plans) for name in arrays}
        stays = lifetime(
            self._capacity / line,
            streaming / line / at_least(plans[0].executions, 1.0),
            [(rates[name], at_least(count, 1.0)) for name, count in arrays.items()],
        )
        for entry in plans:
            name = entry.group.array
            missed = np.exp(-stays * rates[name] / at_least(arrays[name], 1.0)) * line * entry.executions
            missed = missed if np.ndim(missed) else float(missed)
            loads = any(stream.loads for stream in entry.group.streams)
            stores = any(stream.stores for stream in entry.group.streams)
            moved = missed * (loads or write_allocate)
            yield Crossing(moved, missed * stores, moved * (not loads))

    def _crossing(self, entry: GroupPlan) -> Any:
        """Return the part of a group's lines that leave the cache at all: none where it holds all data."""
        if self._sets is None or self._dealt or not np.any(self.whole_fits):
            return select(self.whole_fits, 0.0, 1.0)
        return self._sets.lost_of_all(entry.nest, entry.place, self.whole_fits)

    def _rate(self, entry: GroupPlan) -> Any:
        """Return the bytes per execution of a stream that is not served by another one."""
        loops = len(entry.rates) - 1
        rate = entry.rates[-1]
        held: Any = 1.0
        # Reuse over an outer loop saves traffic only where that over all loops inside is held, too.
        for loop in reversed(range(loops)):
            # `smaller` returns the very same number where a loop saves nothing: its window decides nothing then.
            if entry.rates[loop] is not entry.rates[loop + 1]:
                # Windows of outer loops contain those of inner ones: of what is held here, all is held there.
                less = smaller(held, self.holds(entry.nest, entry.place, entry.windows[loop]))
                # Of arrays, some sizes save nothing (beyond rounding).
                held = select(entry.rates[loop] < entry.rates[loop + 1] * (1 - ROUNDING), less, held)
                rate = rate - held * (entry.rates[loop + 1] - entry.rates[loop])
        return rate

    def _group(self, entry: GroupPlan, *, write_allocate: bool) -> Crossing:
        group = entry.group
        served: list[Any] = [
            sum(part * (self.holds(entry.nest, entry.place, window) if any(window) else 1.0) for part, window in parts)
            for parts in entry.carried
        ]
        first: Any = 0.0
        if group.touched_before is not None:
            first = self.holds(entry.nest, entry.place, unit_window(len(entry.rates) - 1, group.touched_before))
        loads: Any = 0.0
        evicts: Any = 0.0
        allocates: Any = 0.0
        dirty: Any = 0.0
        # The first stream is served by none of its group; each other one by the one before it.
        for place, stream in enumerate(group.streams):
            hit = first if place == 0 else served[place - 1]
            if place:
                # What misses begins a line's stay in the cache afresh, and the stay before it has ended.
                evicts = evicts + dirty * (1.0 - hit)
                dirty = dirty * hit
            miss = 1.0 - hit
            if stream.loads or write_allocate:
                loads = loads + miss
            if not stream.loads:
                allocates = allocates + (miss if write_allocate else 0.0)
            if stream.stores:
                dirty = 1.0
        evicts = evicts + dirty * (1.0 - first)
        scale = self._rate(entry) * entry.touching
        return Crossing(loads * scale, evicts * scale, allocates * scale)
