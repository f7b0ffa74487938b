"""Volumes at the L1 cache: what work-groups load, store and load again, averaged over work-groups."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from perflex.features.gpu.footprints import Layout, Toucher
from perflex.features.gpu.group import PERIOD, instructions
from perflex.features.gpu.images import instances
from perflex.features.gpu.sampling import representatives
from perflex.features.gpu.wavefronts import distinct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perflex.features.gpu.resolved import ResolvedLaunch
    from perflex.machines.machine import Machine


# Wavefronts of each iteration's instructions, from addresses of shape (iterations, sub-groups, sub-group size) and the
# size of an element in bytes.
Cycles: TypeAlias = "Callable[[np.ndarray, int], np.ndarray]"


@dataclass(frozen=True)
class Lines:
    """Sizes that addresses are counted in: bytes of a line and a sector, work-items of a sub-group."""

    line: int
    sector: int
    lanes: int

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
    # Lines are allocated whole but filled by sectors (Ernst et al., Section 4.5): capacity and volume differ.
    sectors = Toucher(launch, Layout(lines.sector, offsets, exact=True), shared)
    whole_lines = Toucher(launch, Layout(lines.line, offsets, exact=True), sectors)
    # Each quantity groups work-groups by its own likeness: cycles by addresses modulo `PERIOD`, instances by guards
    # alone (period 1), footprints by addresses modulo their granule.
    for group, weight in representatives(launch, groups, PERIOD):
        items = list(instructions(launch, group, lines.lanes, "global", offsets))
        for size in {item.itemsize for item in items}:
            mine = [item for item in items if item.itemsize == size]
            # All at once: single instructions are too few addresses for numpy to be quick.
            addresses = np.concatenate([item.addresses for item in mine])
            each = distinct(addresses, lines.sector).sum(axis=-1) * lines.sector
            taken = cycles(addresses, size)
            first = 0
            for item in mine:
                part = slice(first, first + len(item.weights))
                first = part.stop
                into = total.loads if item.direction == "load" else total.stores
                into[item.array] += weight * item.count * float(each[part] @ item.weights)
                total.wavefronts[item.array] += weight * item.count * float(taken[part] @ item.weights)
    for group, weight in representatives(launch, groups, 1):
        total.groups += weight
        total.instances += weight * instances(launch, tuple((position, position) for position in group))
    for into, toucher, granule in (
        (total.compulsory, sectors, lines.sector),
        (total.allocated, whole_lines, lines.line),
    ):
        for group, weight in representatives(launch, groups, granule):
            box = tuple((position, position) for position in group)
            # Stores are written through and find nothing to reuse in L1.
            for array, size in toucher.bytes_of([box], ["load"]).items():
                into[array] += weight * size
    return total
