"""The L1 cache of GPUs: what work-groups load and store, averaged over work-groups, and the cycles that it takes.

Cycles follow the rules of each maker. A machine says which rules its first cache follows (`l1_rules` of its file);
without that its cycles are not known (nan), since one maker's rules are far off on another's hardware.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from perflex.features.gpu.launch_footprints import FootprintCounter, Layout, instances
from perflex.features.gpu.memory_instructions import IDLE, PERIOD, Instructions, bank_conflicts, distinct, instructions
from perflex.features.gpu.resolved_launch import ResolvedLaunch
from perflex.features.gpu.work_group_kinds import Group, alike, representatives, shifts
from perflex.machines.machine import Machine

# Eight bytes each: what is looked at together.
_MOST_ADDRESSES = 2_000_000
# Cycles of each iteration's instructions, from byte addresses of shape (iterations, sub-groups, sub-group size), `IDLE`
# where a work-item does not take part, and the size of an element in bytes.
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
        """Return those of a machine."""
        return cls(*(int(machine.need(name)) for name in ("line_bytes", "sector_bytes", "sub_group_size")))


@dataclass
class GroupVolumes:
    """What a number of work-groups does, by array."""

    # groups, instances: number of work-groups (by weight), and of statement instances they execute
    groups: int = 0
    instances: int = 0
    wavefronts: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # L1 cycles of loads and stores
    written: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # bytes that work-items store
    # loads, stores: bytes of the distinct sectors of each instruction
    loads: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stores: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    # loads and stores, by direction and array, if each instance stood for one execution, as in footprints
    instead: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    # compulsory, allocated: bytes of the distinct sectors, and lines, of each work-group's loads
    compulsory: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    allocated: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def allocated_bytes(self) -> float:
        """Bytes that a work-group's loads take in L1, on average."""
        return sum(self.allocated.values()) / max(1, self.groups)

    def executed(self, direction: str, array: str) -> float:
        """Return what part of the instances of an array's accesses is executed, on average as stated."""
        whole = self.instead.get((direction, array), 0.0)
        return (self.loads if direction == "load" else self.stores)[array] / whole if whole else 1.0


def average_group(
    launch: ResolvedLaunch,
    groups: Mapping[tuple[int, ...], int],
    lines: Lines,
    offsets: dict[str, int],
    cycles: Cycles,
    shared: FootprintCounter,
) -> GroupVolumes:
    """Return the sums over some work-groups of a launch with weights.

    `shared` is another layout's view of the launch, which shares what does not depend on the layout.
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
    footprints = FootprintCounter(launch, Layout(1, offsets, flat=True), shared)
    for kind in kinds:
        # Stores are written through and find nothing to reuse in L1.
        found = footprints.bytes_at(_box(kind.first), kind.moved, [granule for granule, _ in targets])
        for (_, into), arrays in zip(targets, found, strict=True):
            for array, sizes in arrays.items():
                into[array] += sum(weight * size for weight, size in zip(kind.weights, sizes, strict=True))
    return total


@dataclass(frozen=True)
class _Kind:
    """Work-groups that do the same at other addresses."""

    first: tuple[int, ...]  # one of them
    weights: tuple[int, ...]  # how many work-groups each stands for, the first one first
    moved: dict[str, list[int]]  # by array, the bytes by which each of them lies further on in memory than the first


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
            moved_bytes = member.count * float(numbers @ sectors[row])
            into[member.array] += member.times * moved_bytes
            total.instead[member.direction, member.array] += moved_bytes
            times = member.times * member.count
            total.wavefronts[member.array] += times * float(numbers @ taken[row])
            if member.direction == "store":
                written = (pattern != IDLE).reshape(len(item.weights), -1).sum(axis=-1) @ item.weights
                total.written[member.array] += times * float(numbers.sum() * written) * item.itemsize


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


# NVIDIA: bytes of a line, lines looked up per cycle, and what a look-up takes beyond them.
_NVIDIA_LINE = 128
_LINES_PER_CYCLE = 4
_TAG_OFFSET = 2
# Volta, from box stencils of range 3 in the L1 of a V100 with rows of 1 to 32 work-items (Warpspeed, notebook
# stencil-verify of 2020-06-05): 0.68 to 0.79 cycles for each line.
_VOLTA_CYCLES_PER_LINE = 0.75
# CDNA 2: work-items whose addresses arrive in a cycle, those that are looked up together, bytes of a line, tag banks.
_QUARTER = 16
_QUAD = 4
_CDNA_LINE = 64
_CDNA_TAGS = 4
# RDNA 2: bytes of a line, tag banks, and work-items per cycle of elements beyond four bytes.
_RDNA_LINE = 128
_RDNA_TAGS = 4
_RDNA_WIDE = 8
_WORD = 4
# GPGPU-Sim: bytes of a sector, banks.
_SECTOR = 32
_SECTOR_BANKS = 4


def nvidia_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the larger of data and tag cycles; elements of eight bytes and more are served 128 bytes at a time."""
    tags = distinct(addresses, _NVIDIA_LINE)
    tag_cycles = np.where(tags > 0, -(-(tags + _TAG_OFFSET) // _LINES_PER_CYCLE), 0)
    cycles: np.ndarray = np.maximum(_nvidia_data(addresses, itemsize), tag_cycles).sum(axis=-1)
    return cycles


def volta_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the cycles on Volta, which looks up fewer lines in a cycle than NVIDIA's later GPUs."""
    tag_cycles = _VOLTA_CYCLES_PER_LINE * distinct(addresses, _NVIDIA_LINE)
    cycles: np.ndarray = np.maximum(_nvidia_data(addresses, itemsize), tag_cycles).sum(axis=-1)
    return cycles


def _nvidia_data(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    # 32 banks of 4 bytes: smaller elements share a bank's word, larger ones span banks.
    lanes, width = addresses.shape[-1], max(itemsize, _WORD)
    split = addresses.reshape(*addresses.shape[:-1], max(1, lanes * itemsize // _NVIDIA_LINE), -1)
    cycles: np.ndarray = bank_conflicts(split, _NVIDIA_LINE // width, width, width).sum(axis=-1)
    return cycles


def cdna2_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the cycles on CDNA 2, for sub-groups of a multiple of 16 work-items.

    A quarter of a sub-group's addresses, 16, are looked at together, as four quads of neighbours. Elements of four
    bytes: if each quad's lie within 16 bytes, all quads are looked up at once; else the quads' first work-items are,
    then their second, and so on. Wider elements: one quad after the other. A look-up takes as many cycles as there are
    different lines on one of four tag banks (the line's number modulo four), or different elements at one place of
    the 64-byte lines, whatever is more.
    """
    width = max(itemsize, _WORD)
    quads = addresses.reshape(len(addresses), -1, _QUARTER // _QUAD, _QUAD)
    if itemsize > _WORD:
        wide: np.ndarray = _cdna2_look_up(quads, width).sum(axis=(-1, -2))
        return wide
    there = quads != IDLE
    first = np.where(there, quads, IDLE).min(axis=-1)
    last = np.where(there, quads, -IDLE).max(axis=-1) + itemsize
    near = (last - first <= _QUAD * _WORD).all(axis=-1)
    at_once = _cdna2_look_up(quads.reshape(*quads.shape[:-2], _QUARTER), width)
    in_turn = _cdna2_look_up(quads.swapaxes(-1, -2), width).sum(axis=-1)
    narrow: np.ndarray = np.where(near, at_once, in_turn).sum(axis=-1)
    return narrow


def _cdna2_look_up(addresses: np.ndarray, width: int) -> np.ndarray:
    tags = bank_conflicts(addresses, _CDNA_TAGS, _CDNA_LINE, _CDNA_LINE)
    cycles: np.ndarray = np.maximum(tags, bank_conflicts(addresses, _CDNA_LINE // width, width, width))
    return cycles


def rdna2_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the cycles on RDNA 2.

    The largest of: different elements at one place of the 128-byte lines, different lines on one of four tag banks, and
    for elements of more than four bytes an eighth of the work-items.
    """
    width = max(itemsize, _WORD)
    data = bank_conflicts(addresses, _RDNA_LINE // width, width, width)
    lines = bank_conflicts(addresses, _RDNA_TAGS, _RDNA_LINE, _RDNA_LINE)
    wide = -(-(addresses != IDLE).sum(axis=-1) // _RDNA_WIDE) if itemsize > _WORD else 0
    cycles: np.ndarray = np.maximum(np.maximum(data, lines), wide).sum(axis=-1)
    return cycles


def sector_bank_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:  # noqa: ARG001 - as the other rules
    """Return the cycles where four banks deliver a sector per cycle each, as in GPGPU-Sim (configuration QV100)."""
    cycles: np.ndarray = bank_conflicts(addresses, _SECTOR_BANKS, _SECTOR, _SECTOR).sum(axis=-1)
    return cycles


# By the name of the rules: cycles, and bytes after which addresses take the same, since all banks and tags repeat.
_RULES: Mapping[str, tuple[Cycles, int]] = {
    "nvidia": (nvidia_cycles, _NVIDIA_LINE),
    "nvidia_volta": (volta_cycles, _NVIDIA_LINE),
    "amd_cdna2": (cdna2_cycles, _CDNA_TAGS * _CDNA_LINE),
    "amd_rdna2": (rdna2_cycles, _RDNA_TAGS * _RDNA_LINE),
    "sector_banks": (sector_bank_cycles, _SECTOR_BANKS * _SECTOR),
}


def _unknown(addresses: np.ndarray, itemsize: int) -> np.ndarray:  # noqa: ARG001 - as the rules
    return np.full(len(addresses), np.nan)


def l1_cycles(machine: Machine) -> Cycles:
    """Return what counts the cycles of a machine's first cache; nan where it is not known which rules that follows."""
    return _unknown if machine.l1_rules is None else _RULES[machine.need_l1_rules()][0]


def l1_period(machine: Machine) -> int:
    """Return the bytes after which addresses take the same cycles on a machine."""
    return 1 if machine.l1_rules is None else _RULES[machine.need_l1_rules()][1]
