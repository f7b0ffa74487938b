"""Volumes at the L1 cache: what work-groups load, store and load again, averaged over work-groups."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from perflex.features.gpu.footprints import Layout, Toucher
from perflex.features.gpu.group import PERIOD, Instructions, instructions
from perflex.features.gpu.images import instances
from perflex.features.gpu.sampling import alike, representatives, shifts
from perflex.features.gpu.wavefronts import IDLE, distinct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from perflex.features.gpu.resolved import ResolvedLaunch
    from perflex.features.gpu.sampling import Group
    from perflex.machines.machine import Machine


# Eight bytes each: what is looked at together.
_MOST_ADDRESSES = 2_000_000
# Wavefronts of each iteration's instructions, from addresses of shape (iterations, sub-groups, sub-group size) and the
# size of an element in bytes.
Cycles: TypeAlias = "Callable[[np.ndarray, int], np.ndarray]"


@dataclass(frozen=True)
class Lines:
    """Sizes that addresses are counted in: bytes of a line and a sector, work-items of a sub-group.

    Addresses that differ by a multiple of `period` bytes count alike.
    """

    line: int
    sector: int
    lanes: int
    period: int = PERIOD

    @classmethod
    def of(cls, machine: Machine) -> Lines:
        """Return those of a machine.

        Raises
        ------
        MachineError
            One of them is not known.
        """
        return cls(*(int(machine.need(name)) for name in ("line_bytes", "sector_bytes", "sub_group_size")))


@dataclass
class GroupVolumes:
    """What a number of work-groups does, by array.

    Attributes
    ----------
    groups, instances
        Number of work-groups (by weight), and of statement instances they execute.
    wavefronts
        L1 cycles of loads and stores.
    loads, stores
        Bytes of the distinct sectors of each instruction.
    compulsory, allocated
        Bytes of the distinct sectors, and lines, of each work-group's loads.
    """

    groups: int = 0
    instances: int = 0
    wavefronts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    loads: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stores: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    compulsory: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    allocated: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def allocated_bytes(self) -> float:
        """Bytes that a work-group's loads take in L1, on average."""
        return sum(self.allocated.values()) / max(1, self.groups)


def average_group(
    launch: ResolvedLaunch,
    groups: Mapping[tuple[int, ...], int],
    lines: Lines,
    offsets: dict[str, int],
    cycles: Cycles,
    shared: Toucher,
) -> GroupVolumes:
    """Return the sums over some work-groups with weights.

    Parameters
    ----------
    launch
        The launch at given sizes; the work-groups are of its grid.
    groups
        Work-groups and how many each stands for.
    lines
        Sizes of lines, sectors and sub-groups.
    offsets
        Byte address of each array's first element, modulo a line.
    cycles
        Counts wavefronts.
    shared
        Another layout's view of the launch, which shares what does not depend on the layout.
    """
    total = GroupVolumes()
    slopes = shifts(launch)
    # Each quantity groups work-groups by its own likeness: cycles by addresses modulo the rule's period, instances by
    # guards alone (period 1), footprints by addresses modulo a line, of which sectors are parts.
    for kind in _kinds(launch, representatives(launch, groups, lines.period), slopes):
        _add_cycles(total, launch, kind, lines, offsets, cycles)
    for group, weight in representatives(launch, groups, 1):
        total.groups += weight
        total.instances += weight * instances(launch, _box(group))
    kinds = _kinds(launch, representatives(launch, groups, lines.line), slopes)
    # Lines are allocated whole but filled by sectors (Ernst et al., Section 4.5): capacity and volume differ.
    targets = ((lines.sector, total.compulsory), (lines.line, total.allocated))
    if any(len(kind.weights) > 1 for kind in kinds):
        _add_moved_footprints(targets, Toucher(launch, Layout(1, offsets, exact=True, flat=True), shared), kinds)
        return total
    toucher = shared
    for granule, into in targets:
        toucher = Toucher(launch, Layout(granule, offsets, exact=True), toucher)
        for group, weight in representatives(launch, groups, granule):
            # Stores are written through and find nothing to reuse in L1.
            for array, size in toucher.bytes_of([_box(group)], ["load"]).items():
                into[array] += weight * size
    return total


@dataclass(frozen=True)
class _Kind:
    """Work-groups that do the same at other addresses.

    Attributes
    ----------
    first
        One of them.
    weights
        How many work-groups each stands for, the first one first.
    moved
        By array, the bytes by which each of them lies further on in memory than the first.
    """

    first: tuple[int, ...]
    weights: tuple[int, ...]
    moved: dict[str, list[int]]


def _kinds(
    launch: ResolvedLaunch, chosen: Sequence[tuple[Group, int]], slopes: Mapping[str, tuple[int, ...]] | None
) -> list[_Kind]:
    """Return some work-groups (with weights) by what guards leave of them; without slopes, each is of its own kind."""
    weights = dict(chosen)
    kinds = [[group] for group in weights] if slopes is None else alike(launch, weights, 1)
    return [
        _Kind(
            members[0],
            tuple(weights[group] for group in members),
            {
                array: [
                    sum(step * (a - b) for step, a, b in zip(slope, group, members[0], strict=True))
                    for group in members
                ]
                for array, slope in (slopes or {}).items()
            },
        )
        for members in kinds
    ]


def _box(group: Group) -> tuple[tuple[int, int], ...]:
    return tuple((position, position) for position in group)


def _add_cycles(
    total: GroupVolumes, launch: ResolvedLaunch, kind: _Kind, lines: Lines, offsets: dict[str, int], cycles: Cycles
) -> None:
    # Accesses of a stencil differ by constants: those with one pattern of addresses are looked at once in each place.
    patterns: dict[object, tuple[np.ndarray, list[tuple[Instructions, int]]]] = {}
    for item in instructions(launch, kind.first, lines.lanes, "global", offsets):
        alive = item.addresses != IDLE
        start = int(item.addresses.min())
        pattern = np.where(alive, item.addresses - start, IDLE)
        mark = item.itemsize, pattern.shape, pattern.tobytes(), item.weights.tobytes()
        patterns.setdefault(mark, (pattern, []))[1].append((item, start))
    numbers = np.asarray(kind.weights)
    for pattern, members in patterns.values():
        item = members[0][0]
        moved = np.array([kind.moved.get(member.array, [0]) for member, _ in members])
        starts = np.array([start for _, start in members])
        places, number = np.unique((moved + starts[:, None]) % lines.period, return_inverse=True)
        sectors, taken = _at_places(pattern, item, places, lines, cycles)
        for row, (member, _) in zip(number.reshape(moved.shape), members, strict=True):
            into = total.loads if member.direction == "load" else total.stores
            into[member.array] += member.count * float(numbers @ sectors[row])
            total.wavefronts[member.array] += member.count * float(numbers @ taken[row])


def _at_places(
    pattern: np.ndarray, item: Instructions, places: np.ndarray, lines: Lines, cycles: Cycles
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of sectors and the cycles of instructions with a pattern of addresses, which begin at places."""
    sectors, taken = [], []
    step = max(1, _MOST_ADDRESSES // pattern.size)
    for begin in range(0, len(places), step):
        part = places[begin : begin + step]
        shifted = np.where(pattern == IDLE, IDLE, pattern + part[:, None, None, None]).reshape(-1, *pattern.shape[1:])
        found = distinct(shifted, lines.sector).sum(axis=-1) * lines.sector
        sectors.append(found.reshape(len(part), -1) @ item.weights)
        taken.append(cycles(shifted, item.itemsize).reshape(len(part), -1) @ item.weights)
    return np.concatenate(sectors), np.concatenate(taken)


def _add_moved_footprints(
    targets: Sequence[tuple[int, dict[str, float]]], toucher: Toucher, kinds: Sequence[_Kind]
) -> None:
    for kind in kinds:
        found = toucher.bytes_at(_box(kind.first), kind.moved, [granule for granule, _ in targets])
        for (_, into), arrays in zip(targets, found, strict=True):
            for array, sizes in arrays.items():
                into[array] += sum(weight * size for weight, size in zip(kind.weights, sizes, strict=True))
