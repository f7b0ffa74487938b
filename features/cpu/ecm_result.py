"""What the ECM estimator returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from perflex.errors import MachineError
from perflex.features.cpu.cache_sets import Sets, visited
from perflex.features.cpu.cache_traffic import GroupPlan, Rules, Traffic, View
from perflex.features.cpu.reuse import Reuse
from perflex.features.cpu.reuse_windows import Window, outermost
from perflex.html import shown_by
from perflex.isl import computed_once
from perflex.machines.machine import CacheLevel
from perflex.tables import Table, fixed, number, text

# What is lost of a reuse, and what more crosses a level, before it is worth a line.
_LOST, _MORE = 0.25, 1.1
# Lines of one axis that meet in a set on average, before their distance is the cause.
_MEETING = 2


@dataclass(frozen=True)
class Conflict:
    """A reuse that sets of a cache lose, though the cache as a whole is large enough for it."""

    level: str
    # array, loop: whose lines are lost before they are used again, and the loop in whose next iteration that would
    # be.
    array: str
    loop: str
    # stride_bytes, itemsize: distance of accesses that brings them into the same sets, and bytes of an element. The
    # distance is None where none does: the lines meet those of other arrays.
    stride_bytes: int | None
    itemsize: int
    # lines, sets, ways: lines of the array that are to be kept, the number of sets they are in, and how many each of
    # those keeps.
    lines: int
    sets: int
    ways: int
    lost: float  # The part of these lines that is lost
    # Bytes that cross beyond the level, relative to those without any conflict; infinite where those are none.
    more: float
    line: int  # Bytes of a cache line

    @property
    def padded_bytes(self) -> int | None:
        """The next larger distance that uses all sets: an odd number of lines; None where no distance is the cause."""
        return None if self.stride_bytes is None else (-(-(self.stride_bytes + 1) // self.line) | 1) * self.line

    def __str__(self) -> str:
        more = f"{self.more:.3g} times the bytes" if self.more < inf else "bytes where there would be none"
        apart = advice = ""
        if self.stride_bytes is not None and self.padded_bytes is not None:
            padding = (self.padded_bytes - self.stride_bytes) // self.itemsize
            apart = f", {self.stride_bytes} B apart,"
            advice = f"; pad the pitch by {padding} element(s), to {self.padded_bytes} B"
        return (
            f"{self.level}: {self.lines} lines of array {self.array!r}{apart} fall into {self.sets} set(s) of "
            f"{self.ways} lines, so that loop {self.loop} loses {100 * self.lost:.0f} % of them before it uses them "
            f"again ({more} beyond {self.level}){advice}"
        )


def find_conflicts(views: Sequence[View], levels: Sequence[CacheLevel], rules: Rules) -> tuple[Conflict, ...]:
    """Return what conflicts cost a kernel at sizes that are numbers: of each cache and array the worst."""
    found = []
    for level, view in zip(levels, views, strict=True):
        reuse, plans = view.reuse, view.plans
        own = view.parts[0].sets.get(level.name)
        if own is None:
            continue
        capacity = rules.capacity(level)
        with_sets = Traffic(reuse, capacity, strict=rules.strict, whole=view.everything, sets=own)
        without = Traffic(reuse, capacity, strict=rules.strict, whole=view.everything)
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
    # Arrays whose own lines do not meet are not the cause, unless no other is: then of all the one that loses most.
    causes = [one for one in worst.values() if one.stride_bytes is not None]
    # More lines than all sets hold are too many wherever they are, as windows touch at some places of a line.
    others = [one for one in worst.values() if one.lines <= sets.count * sets.ways]
    return causes or sorted(others, key=lambda one: one.lost * one.lines)[-1:]


def _stride(reuse: Reuse, entry: GroupPlan, window: Window, sets: Sets) -> int | None:
    """Return the distance of a group's accesses in a window that brings most lines into one set; None if none does.

    It is a line at least: of what is nearer no padding moves lines to other sets.
    """
    footprints = reuse.footprints[entry.nest]
    most, found = 0.0, None
    for axis in range(len(entry.group.axes)):
        stride, steps = footprints.movement(entry.place, axis)
        stride = round(float(stride))
        offsets = np.array(sorted({stream.offset[axis] for stream in entry.group.streams}))
        places = np.unique((visited(footprints, steps, window) + offsets[:, None]).ravel())
        addresses = places * stride
        lines = np.unique(addresses // sets.line)
        meeting = len(lines) / len(np.unique(lines % sets.count))
        # As many lines side by side meet as well where they are more than there are sets.
        if meeting >= _MEETING * max(1.0, len(lines) / sets.count) and meeting > most:
            # Rows are the array's, whichever of them are visited; along one it is the step from neighbours to the next.
            begins = addresses[np.diff(addresses, prepend=addresses[0] - sets.line) >= sets.line]
            distance = stride if axis else int(np.median(np.diff(begins)))
            most, found = meeting, distance if distance >= sets.line else None
    return found


MEMORY = "memory"


@dataclass(frozen=True)
class LevelTraffic:
    """Traffic between a level of the memory hierarchy and the one before it; of the first level, the registers.

    Values are floats, or arrays of the shape of the sizes and block sizes; of all working cores together.
    """

    name: str  # The cache level's name, or ``"memory"``
    # load_bytes, store_bytes: bytes per iteration towards the core, write-allocates included, and away from it.
    load_bytes: Any
    store_bytes: Any
    allocate_bytes: Any  # The part of the loads that only stores need
    # Cycles per iteration, of one core of the link's or of one domain of the memory's bandwidth; None where the machine
    # has no bandwidth for it.
    cycles: Any
    # launch_load_bytes, launch_store_bytes, launch_cycles: the same for one run of the kernel with all its launches.
    launch_load_bytes: Any
    launch_store_bytes: Any
    launch_cycles: Any

    @property
    def bytes(self) -> Any:
        """Bytes per iteration, both ways."""
        return self.load_bytes + self.store_bytes

    @property
    def launch_bytes(self) -> Any:
        """Bytes per run of the kernel, both ways."""
        return self.launch_load_bytes + self.launch_store_bytes


@dataclass(frozen=True)
class Condition:
    """A layer condition: when a cache holds what the reuse over a loop needs."""

    level: str
    loop: str  # The loop; ``"all"`` for the condition that all data fit
    # In the sizes and block sizes, in units of a common factor of bytes. It is the one that holds around the sizes
    # given.
    inequality: str
    symbol: str  # The size or block size it is solved for, empty if there is none in it
    # Largest whole number of `symbol` that meets it, with the others as given; None if there is no such number.
    largest: int | None
    met: bool  # Whether it is met at the sizes given
    # needed_bytes, cache_bytes: what the reuse needs at the sizes given, and what a core has of the cache.
    needed_bytes: float
    cache_bytes: int
    # hits, misses, evicts: accesses per iteration that the cache serves, those that it does not, and stores that
    # leave it, once this condition is met and none for a longer reuse; those of the nest it belongs to.
    hits: int
    misses: int
    evicts: int
    reuse_distance: str  # Distance of the reuse in bytes, as a polynomial


@dataclass(frozen=True)
class EcmEstimate:
    """Traffic of a kernel between the levels of a CPU's memory hierarchy."""

    # Names.
    kernel: str
    machine: str
    # Traffic of each cache level, the first one first, and of the memory.
    levels: tuple[LevelTraffic, ...]
    # Executions of the innermost body per run of the kernel: of the nest that has most.
    iterations: Any
    # Name of the bandwidth that the memory's cycles are computed with, per size; empty if there is none.
    memory_stream: Any
    # Cycles per iteration of one core that lines from and to the memory take beyond the bandwidth.
    memory_penalty: Any
    # Cores at work.
    cores: int
    # Loops whose range depends on others: volumes are means over their ranges, conditions those of the largest.
    varying: tuple[str, ...]
    # What of the kernel is not followed exactly, as sentences; empty where all is.
    approximated: tuple[str, ...]
    # Compute the conditions, and the conflicts.
    find_conditions: Callable[[], tuple[Condition, ...]] = field(repr=False, compare=False)
    find_conflicts: Callable[[], tuple[Conflict, ...]] = field(repr=False, compare=False)

    @computed_once
    def conditions(self) -> tuple[Condition, ...]:
        """Layer conditions of all caches, of each the longest reuse first; empty for arrays of sizes."""
        return self.find_conditions()

    @computed_once
    def conflicts(self) -> tuple[Conflict, ...]:
        """What crowded sets cost, of each cache and array the worst; empty for arrays of sizes."""
        return self.find_conflicts()

    def level(self, name: str) -> LevelTraffic:
        """Return the traffic of a level by its name, upper or lower case; ``"mem"`` is the memory.

        Raises
        ------
        MachineError
            The machine has no such level.
        """
        wanted = MEMORY if name.lower() == "mem" else name.lower()
        found = next((level for level in self.levels if level.name.lower() == wanted), None)
        if found is None:
            known = ", ".join(level.name for level in self.levels)
            msg = f"machine {self.machine} has no level {name!r}; it has {known}"
            raise MachineError(msg, machine=self.machine)
        return found

    @property
    def heading(self) -> str:
        """What it is of."""
        return f"{self.kernel} on {self.machine}, {self.cores} core{'s' if self.cores != 1 else ''}"

    @property
    def doubts(self) -> tuple[str, ...]:
        """What of the kernel is not followed exactly."""
        return self.approximated

    def table(self) -> Table:
        """Return the traffic of each level, per iteration."""
        columns = [
            text("between"), *(fixed(name, digits=3, unit="B") for name in ("loads", "stores", "both")),
            number("cycles"),
        ]  # fmt: skip
        names = ["registers", *(level.name for level in self.levels)]
        return Table("Traffic per iteration", columns, [
            (f"{before} - {one.name}", one.load_bytes, one.store_bytes, one.bytes, one.cycles)
            for before, one in zip(names, self.levels, strict=False)
        ])  # fmt: skip

    def condition_table(self) -> Table:
        """Return the layer conditions."""
        columns = [
            text("level", "cache"), text("loop", "reuse over", words={"all": "all data"}),
            text("inequality", "holds if", code=True), text("largest", "up to"),
            text("met", "here", words={True: "met", False: "not met"}),
        ]  # fmt: skip
        return Table("Layer conditions", columns, [
            (
                one.level, one.loop, one.inequality,
                None if one.largest is None else f"{one.symbol} = {one.largest}", one.met,
            )
            for one in self.conditions
        ])  # fmt: skip

    _repr_html_ = shown_by("result.html")

    def features(self) -> dict[str, Any]:
        """Return bytes and cycles per run of the kernel, by feature identifier; cycles that are known."""
        values = {"f_ecm_cycles_penalty": self.memory_penalty * self.iterations}
        for level in self.levels:
            short = "mem" if level.name == MEMORY else level.name.lower()
            values[f"f_ecm_vol_{short}"] = level.launch_bytes
            if level.launch_cycles is not None:
                values[f"f_ecm_cycles_{short}"] = level.launch_cycles
        return values


def series_table(rows: Sequence[tuple[Mapping[str, int], EcmEstimate]]) -> Table:
    """Return the bytes per iteration to the level before of estimates at some sizes."""
    sizes, first = rows[0]
    columns = [*map(fixed, sizes), *(fixed(level.name, digits=3, unit="B") for level in first.levels)]
    return Table("Bytes per iteration to the level before", columns, [
        (*at.values(), *(level.bytes for level in found.levels)) for at, found in rows
    ])  # fmt: skip
