"""Waves of a launch: work-groups that run at once, what ran before them, and how they fill a machine.

Work-groups start in the order of their numbers, x first; those in which nothing runs leave at once and take no room.
Where the grid is even, one wave stands for all (`wave_of`). Elsewhere, and where there are few, waves are taken as they
are: so many running work-groups, one after the other; of many, some of each sort are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, prod
from typing import TypeAlias

import numpy as np

from perflex.errors import UnsupportedKernelError, WorkGroupTooLargeError
from perflex.features.gpu.launch_footprints import Box
from perflex.features.gpu.resolved_launch import ResolvedLaunch
from perflex.features.gpu.source_registers import registers_of
from perflex.features.gpu.work_group_kinds import guards_of
from perflex.features.scop.scop import Scop
from perflex.machines.machine import Machine
from perflex.machines.residency import Residency, residency

Boxes: TypeAlias = "tuple[Box, ...]"


@dataclass(frozen=True)
class Wave:
    """Work-groups that run at once, as disjoint boxes of group ids (first and last along each axis)."""

    now: Boxes
    # the sets adjacent in x, y and z, in the order in which reuse is looked for; empty where there is none
    before: tuple[Boxes, Boxes, Boxes]
    # work-groups of the wave before, of the one before that, and so on by 1, 1, 1, 1, 2, 2, 4, 4, ... waves, with the
    # part of all waves that have any of them
    earlier: tuple[tuple[Boxes, float], ...] = ()


def launch_residency(
    scop: Scop, launch: int, sizes: Mapping[str, int], machine: Machine, registers: int | None = None
) -> Residency:
    """Return how many work-groups of a launch, given by its number, a compute unit holds at once.

    `registers` are 32-bit registers per work-item; None for those that its source lets expect. A work-group beyond a
    limit of the machine is a `WorkGroupTooLargeError`.
    """
    registers = registers_of(scop, launch, sizes, machine, registers)
    return residency(machine, scop.launches[launch].group_size, local_bytes(scop, launch, sizes), registers)


def local_bytes(scop: Scop, launch: int, sizes: Mapping[str, int]) -> int:
    """Return the bytes of local memory that a work-group of a launch has."""
    # Each launch is a device program of its own, which holds only the local arrays that it accesses.
    used = {
        access.array for statement in scop.statements if statement.launch == launch for access in statement.accesses
    }
    return sum(
        prod(int(extent.evaluate(sizes)) for extent in array.shape) * array.itemsize
        for array in scop.arrays
        if array.space == "local" and array.name in used
    )


def filled_groups(launch: ResolvedLaunch) -> tuple[float, ...]:
    """Return the extent of the grid along each axis in work-groups, where the last one counts as far as guards fill it.

    The filling is that of the statement that fills it most.
    """
    extents = []
    for axis, extent in enumerate(launch.groups):
        box = [(0, count - 1) for count in launch.groups]
        box[axis] = (extent - 1, extent - 1)
        share = 1.0
        if axis < len(launch.items):
            items, local = launch.items[axis], len(launch.groups) + axis
            filled = (part.ranges[local] for part in launch.within(box))
            share = max((high - low + 1 for low, high in filled), default=items) / items
        extents.append(extent - 1 + share)
    return tuple(extents)


def wave_of(groups: Sequence[int], filled: Sequence[float], resident: int, *, full_y_set: bool) -> Wave:
    """Return a representative wave of so many work-groups and the sets adjacent to it (Section 4.4.2).

    `groups` and `filled` are extents of the grid, the latter with a partly filled last work-group as a fraction. A full
    y set is as many rows of work-groups high as the wave, rather than one.
    """
    extents = []
    for axis, extent in enumerate(groups):
        # Work-groups start in the order of their ids: a wave fills rows first, then planes. What is taken off keeps
        # a quotient that is whole, but for rounding, from adding a row.
        extents.append(min(extent, max(1, ceil(resident / prod(filled[:axis]) - 1e-9))))
    # At an axis's upper end there is a set before the wave, unless the wave fills the axis (Section 4.4.2).
    starts = [extent - width for extent, width in zip(groups, extents, strict=True)]
    if len(groups) > 2:
        starts[2] = min(groups[2] // 2, groups[2] - extents[2]) if not full_y_set else groups[2] // 2
    now = tuple(
        (start, min(start + width, extent) - 1) for start, width, extent in zip(starts, extents, groups, strict=True)
    )
    whole = [(0, extent - 1) for extent in groups]
    x_set = _below(now, 0, extents[0], now)
    # One reuse distance back is a row of all x, or a layer of all x and y, as in sequential layer conditions.
    y_set = _below(now, 1, extents[1] if full_y_set else 1, [whole[0], *now[1:]]) if len(groups) > 1 else ()
    z_set = _below(now, 2, 1, whole) if len(groups) > 2 else ()
    first = sum(start * prod(groups[:axis]) for axis, start in enumerate(starts))
    waves = ceil(prod(groups) / resident)
    earlier = tuple(
        (_boxes(max(0, first - far * resident), first - near * resident - 1, groups), 1 - near / waves)
        for near, far in _reaches(ceil(first / resident))
    )
    return Wave((now,), (x_set, y_set, z_set), earlier)


def _reaches(waves: int) -> Iterator[tuple[int, int]]:
    """Yield how many of some waves back sets end and begin: 0 and 1, 1 and 2, 2 and 3, 3 and 4, 4 and 6, and so on."""
    near = 0
    for far in chain([1], *((2 << power, 3 << power) for power in range(waves.bit_length()))):
        if near < waves:
            yield near, far
        near = far


def _below(now: Box, axis: int, width: int, others: Sequence[tuple[int, int]]) -> Boxes:
    """Return the box of some width next to the wave towards lower ids on an axis, or nothing at the grid's edge."""
    start = now[axis][0]
    if start == 0:
        return ()
    box = list(others)
    box[axis] = (max(0, start - width), start - 1)
    return (tuple(box),)


# Launches of no more waves are looked at as a whole.
_FEW_WAVES = 12
# Of others so many are looked at, fewer where a work-item has many accesses, each of which takes time.
_MOST_WAVES = 32
_MOST_ACCESSES = 1200
# Kinds of work-groups that waves are sorted by; of more, neighbouring ones are taken for each other.
_MOST_KINDS = 16
# Waves are of a sort whose numbers of each kind are equal in such parts of a wave, tried from fine to coarse.
_PARTS = (16, 8, 4, 2, 0)
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Waves:
    """Waves with weights."""

    members: tuple[tuple[Wave, float], ...]  # the waves and how many each stands for
    # part of all waves that have a set before them in x, y and z; those at the grid's lower edges have none
    shares: tuple[float, float, float]


def waves_of(launch: ResolvedLaunch, resident: int, *, full_y_set: bool, edges: bool = True) -> Waves:
    """Return waves of so many work-groups (on all compute units) that stand for all of a launch.

    A full y set is as high as the wave, rather than one row of work-groups. Without edges, all waves of an even grid
    are taken for inner ones; else its first waves, which have nothing before them, count.
    """
    groups = launch.groups
    few = edges and prod(groups) <= _FEW_WAVES * resident
    if not guards_of(launch).even or few:
        return _in_order(launch, resident, full_y_set=full_y_set)
    wave = wave_of(groups, filled_groups(launch), resident, full_y_set=full_y_set)
    shares = [1.0, 1.0, 1.0]
    for axis, ((low, high), extent) in enumerate(zip(wave.now[0], groups, strict=True)):
        if edges:
            shares[axis] = 1 - (high - low + 1) / extent
    return Waves(((wave, 1.0),), (shares[0], shares[1], shares[2]))


def _in_order(launch: ResolvedLaunch, resident: int, *, full_y_set: bool) -> Waves:
    numbers = np.flatnonzero(guards_of(launch).running())
    count = ceil(len(numbers) / resident)
    first = numbers[::resident]
    last = np.append(numbers[resident - 1 : (count - 1) * resident : resident], numbers[-1:])
    chosen = [(number, 1.0) for number in range(count)]
    accesses = sum(len(piece.accesses) for piece in launch.pieces)
    most = max(_FEW_WAVES, min(_MOST_WAVES, _MOST_ACCESSES // max(1, accesses)))
    if count > most:
        chosen = _chosen(most, _sorts(launch, numbers, resident, (first, last)))
    members = tuple(
        (_wave(launch.groups, first, int(last[n]), n, full_y_set=full_y_set), weight) for n, weight in chosen
    )
    total = sum(weight for _, weight in members)
    shares = [sum(weight for wave, weight in members if wave.before[axis]) / total for axis in range(3)]
    return Waves(members, (shares[0], shares[1], shares[2]))


def _sorts(
    launch: ResolvedLaunch, numbers: np.ndarray, resident: int, ends: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return the sort of each wave, of which there are few: by the kinds of its work-groups and what lies before it."""
    guards, (first, last) = guards_of(launch), ends
    kept = [np.arange(len(one.runs)) * min(_MOST_KINDS, len(one.runs)) // len(one.runs) for one in guards.components]
    kinds = np.unique(guards.everywhere(kept)[numbers], return_inverse=True)[1]
    most = int(kinds.max()) + 1
    kinds, most = kinds * min(_MOST_KINDS, most) // most, min(_MOST_KINDS, most)
    waves = np.arange(len(numbers)) // resident
    amounts = np.bincount(waves * most + kinds, minlength=len(first) * most).reshape(-1, most)
    # The first wave, row and layer have less before them than others.
    lower = sum((first >= prod(launch.groups[:axis])).astype(np.int64) for axis in range(len(launch.groups)))
    # Waves that begin a layer, or reach into the next one, find nothing of its rows before them.
    row, layer = launch.groups[0], prod(launch.groups[:2])
    begins = (first % layer < row) | (first // layer != last // layer)
    for parts in _PARTS:
        marks = np.column_stack([lower, begins, np.rint(parts * amounts / resident).astype(np.int64)])
        different, sorts = np.unique(marks, axis=0, return_inverse=True)
        if len(different) <= _FEW_WAVES:
            break
    return np.asarray(sorts).ravel()


def _chosen(most: int, sorts: np.ndarray) -> list[tuple[int, float]]:
    """Return waves and how many each stands for: of each sort at least one, of all about so many."""
    found = []
    for sort in range(int(sorts.max()) + 1):
        members = np.flatnonzero(sorts == sort)
        times = min(len(members), max(1, round(most * len(members) / len(sorts))))
        # Somewhere in each of equal parts in the order of the launch: the golden ratio's multiples, which fall in step
        # with no row of work-groups.
        places = (np.arange(times) + (_GOLDEN * np.arange(1, times + 1)) % 1) * len(members) / times
        found += [(int(members[int(place)]), len(members) / times) for place in places]
    return found


def _wave(groups: Sequence[int], starts: np.ndarray, last: int, number: int, *, full_y_set: bool) -> Wave:
    """Return a wave by its number and the sets before it; `starts` are the first work-groups of all waves."""
    row, layer = groups[0], prod(groups[:2])
    first = int(starts[number])
    # As with boxes: one wave back in a row, else one row, and one layer.
    back = [int(starts[max(0, number - 1)]) if last - first + 1 < row else first]
    back.append(first - (max(row, last - first + 1) if full_y_set else row) if len(groups) > 1 else first)
    back.append(first - layer if len(groups) > 2 else first)
    sets = [_boxes(max(0, start), first - 1, groups) if start < first and first else () for start in back]
    earlier = tuple((_boxes(int(starts[max(0, number - far)]), first - 1, groups), 1.0) for _, far in _reaches(number))
    return Wave(_boxes(first, last, groups), (sets[0], sets[1], sets[2]), earlier)


def _boxes(first: int, last: int, groups: Sequence[int]) -> Boxes:
    """Return disjoint boxes of the work-groups with numbers from first to last."""
    if len(groups) == 1:
        return (((first, last),),)
    layer = prod(groups[:-1])
    (low, from_), (high, to) = divmod(first, layer), divmod(last, layer)
    if low == high:
        return tuple((*box, (low, low)) for box in _boxes(from_, to, groups[:-1]))
    found: list[tuple[tuple[int, int], ...]] = []
    if from_:
        found += [(*box, (low, low)) for box in _boxes(from_, layer - 1, groups[:-1])]
        low += 1
    end = []
    if to < layer - 1:
        end = [(*box, (high, high)) for box in _boxes(0, to, groups[:-1])]
        high -= 1
    if low <= high:
        found.append((*((0, extent - 1) for extent in groups[:-1]), (low, high)))
    return (*found, *end)


def wave_values(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None = None
) -> dict[str, float]:
    """Return the features of residency; of several launches, waves add up, and are the weights of the others' means.

    ``f_waves``: work-groups by work-groups that are resident at once, not rounded. ``f_wave_quantisation``: the same
    rounded up by not rounded, the factor by which an unfilled last wave lengthens a launch whose time goes with full
    waves. ``f_occupancy``: resident sub-groups as a fraction of the most that a compute unit can hold.
    ``f_su_imbalance``: Su's factor (1 + 1/waves) / (occupancy / highest occupancy) (Su et al. 2015, Eq. 18), where the
    highest occupancy is that of any work-group size with the same registers.
    """
    waves = rounded = occupancy = imbalance = 0.0
    for number, repeats, groups, held in launched(scop, sizes, machine, registers):
        each = registers_of(scop, number, sizes, machine, registers)
        # Su's number of groups is rounded up (Eq. 10), and Eq. 18 divides by it.
        share, whole = groups / held.wave_groups, ceil(groups / held.wave_groups)
        waves += repeats * share
        rounded += repeats * whole
        occupancy += repeats * share * held.occupancy
        imbalance += repeats * share * (1 + 1 / whole) * _highest_occupancy(machine, each) / held.occupancy
    if not waves:
        msg = f"kernel {scop.name!r} has no work-groups at these sizes; give larger ones"
        raise UnsupportedKernelError(msg, kernel=scop.name)
    return {
        "f_waves": waves,
        "f_wave_quantisation": rounded / waves,
        "f_occupancy": occupancy / waves,
        "f_su_imbalance": imbalance / waves,
    }


def launched(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None
) -> Iterator[tuple[int, float, int, Residency]]:
    """Yield number, repeats, work-groups and residency of each launch that has work-groups."""
    for number, launch in enumerate(scop.launches):
        repeats = float(launch.repeats.evaluate(sizes))
        groups = prod(int(extent.evaluate(sizes)) for extent in launch.groups)
        if groups > 0 and repeats > 0:
            yield number, repeats, groups, launch_residency(scop, number, sizes, machine, registers)


def _highest_occupancy(machine: Machine, registers: int | None) -> float:
    size = int(machine.need("sub_group_size"))
    highest = 0.0
    for items in range(size, int(machine.need("max_items_per_group")) + 1, size):
        try:
            highest = max(highest, residency(machine, items, 0, registers).occupancy)
        except WorkGroupTooLargeError:
            break  # larger ones do not fit either
    return highest


@dataclass(frozen=True)
class Filling:
    """How one launch of a kernel fills a machine."""

    number: int  # of the launch in the kernel
    repeats: float  # how often it is launched
    groups: int
    sub_groups: int  # of each work-group
    per_unit: float  # work-groups of the compute unit that has most: they are dealt out evenly
    waves: int  # that a compute unit runs one after the other, whole ones
    resident: float  # work-groups of a compute unit in each wave at most
    # share of all work that the compute unit with most work-groups does, times the number of compute units: 1 where all
    # have as many, more where some idle in the end
    on_busiest: float
    on_schedulers: float  # the same with the busiest scheduler of that unit, which serves every S-th of its sub-groups


def fillings(scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None) -> list[Filling]:
    """Return how each launch that has work-groups fills the machine; errors as `launch_residency`."""
    lanes, together = int(machine.need("sub_group_size")), machine.units_per_group or 1
    # Compute units, or several that share work-groups.
    units, schedulers = int(machine.need("compute_units")) // together, together * machine.parts_per_unit
    found = []
    for number, repeats, groups, held in launched(scop, sizes, machine, registers):
        most, sub_groups = ceil(groups / units), ceil(scop.launches[number].group_size / lanes)
        share = most * units / groups
        mine = most * sub_groups
        dealt = ceil(mine / schedulers) * schedulers / mine
        per_unit = most / together
        waves, resident = ceil(groups / held.wave_groups), min(held.groups_per_unit, per_unit)
        found.append(Filling(number, repeats, groups, sub_groups, per_unit, waves, resident, share, share * dealt))
    return found
