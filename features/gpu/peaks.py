"""How a launch fills a machine: work-groups dealt to compute units, sub-groups to schedulers, and waves of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

from perflex.features.gpu.geometry import launch_residency
from perflex.features.gpu.local_memory import local_wavefronts
from perflex.features.gpu.resolved import accessing_launches
from perflex.features.gpu.sampling import launch_instances

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.scop.scop import Scop
    from perflex.machines.machine import Machine


@dataclass(frozen=True)
class Filling:
    """How one launch of a kernel fills a machine.

    Attributes
    ----------
    number, repeats
        Of the launch in the kernel, and how often it is launched.
    groups, sub_groups
        Its work-groups, and sub-groups of each.
    per_unit
        Work-groups of the compute unit that has most: they are dealt out evenly.
    waves, resident
        Waves that a compute unit runs one after the other, whole ones, and its work-groups in each at most.
    on_busiest
        Share of all work that the compute unit with most work-groups does, times the number of compute units: 1 where
        all have as many, more where some idle in the end.
    on_schedulers
        The same with the busiest scheduler of that unit, which serves every S-th of its sub-groups.
    """

    number: int
    repeats: float
    groups: int
    sub_groups: int
    per_unit: int
    waves: int
    resident: int
    on_busiest: float
    on_schedulers: float


def fillings(scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None) -> list[Filling]:
    """Return how each launch that has work-groups fills the machine.

    Raises
    ------
    WorkGroupTooLargeError
        A work-group exceeds a limit of the machine.
    MachineError
        A fact is not known.
    """
    units, lanes = (int(machine.need(name)) for name in ("compute_units", "sub_group_size"))
    schedulers = machine.schedulers_per_unit or 1
    found = []
    for number, launch in enumerate(scop.launches):
        repeats = float(launch.repeats.evaluate(sizes))
        groups = prod(int(extent.evaluate(sizes)) for extent in launch.groups)
        if groups <= 0 or repeats <= 0:
            continue
        held = launch_residency(scop, number, sizes, machine, registers)
        per_unit, sub_groups = ceil(groups / units), ceil(launch.group_size / lanes)
        share = per_unit * units / groups
        mine = per_unit * sub_groups
        dealt = ceil(mine / schedulers) * schedulers / mine
        waves, resident = ceil(groups / held.wave_groups), min(held.groups_per_unit, per_unit)
        found.append(Filling(number, repeats, groups, sub_groups, per_unit, waves, resident, share, share * dealt))
    return found


def local_atomic_cycles(scop: Scop, sizes: Mapping[str, int], machine: Machine) -> float:
    """Return the cycles that atomic updates of local memory take, over all compute units.

    Different words on one bank take turns. What the work-items of a sub-group add to one word the hardware adds up
    first: on an RTX 3070 Ti a histogram with all elements in one bin takes no longer than its other work. (The steps of
    ``f_atomic_local`` are the opposite: one for each work-item that meets others in a word, none for banks.)
    """
    updated = {
        access.array
        for statement in scop.statements
        for access in statement.accesses
        if any(operation.kind == "atomic" for operation in statement.operations)
        and access.direction == "store"
        and scop.array(access.array).space == "local"
    }
    if not updated:
        return 0.0
    total = 0.0
    for _, launch in accessing_launches(scop, sizes):
        if launch_instances(launch):
            found = local_wavefronts(launch, machine)
            total += launch.repeats * sum(found.get((array, "store"), 0.0) for array in updated)
    return total
