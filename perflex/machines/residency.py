"""What a built kernel takes of a device, and residency: how many work-groups a compute unit holds at once.

A kernel takes registers, and memory that its work-items have for themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from math import ceil
from typing import TYPE_CHECKING

from perflex.errors import MachineError, WorkGroupTooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perflex.machines.machine import Machine

_FUNCTION = re.compile(r"(?:Compiling entry function|Function properties for) '?(\w+)'?")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores")


@dataclass(frozen=True)
class Resources:
    """What one kernel takes on one device; None where the driver does not tell."""

    # 32-bit registers per work-item.
    registers: int | None = None
    # Memory of each work-item beside its registers: spilt registers and private arrays.
    private_bytes: int | None = None
    # That each work-item stores for want of registers.
    spill_bytes: int | None = None
    # Local memory of a work-group.
    local_bytes: int | None = None


def most_of(programs: Iterable[Resources]) -> Resources:
    """Return what a kernel of several device programs takes: of each resource the most that any of them does."""
    found = list(programs)
    most: dict[str, int | None] = {}
    for name in (field.name for field in fields(Resources)):
        known = [value for program in found if (value := getattr(program, name)) is not None]
        # A program that nothing is known of may take more than the others.
        most[name] = max(known) if len(known) == len(found) and found else None
    return Resources(**most)


def resources_in_log(log: str) -> Mapping[str, Resources]:
    """Return registers and spilt bytes that NVIDIA's assembler (``ptxas -v``) tells of each kernel, by its name."""
    found: dict[str, Resources] = {}
    spills: dict[str, int] = {}
    entry = function = ""
    for line in log.splitlines():
        if named := _FUNCTION.search(line):
            function = named[1]
            # Called functions have properties of their own; the registers that follow them are the entry's.
            if "entry" in line:
                entry = function
        elif spilt := _SPILLS.search(line):
            spills[function] = int(spilt[1])
        elif (used := _REGISTERS.search(line)) and entry:
            found[entry] = Resources(registers=int(used[1]), spill_bytes=spills.get(entry))
    return found


@dataclass(frozen=True)
class Residency:
    """Work-groups of one kernel on one compute unit."""

    # Work-groups that a compute unit holds at once; halves where two units hold them together.
    groups_per_unit: float
    # What allows no more: ``"work-items"``, ``"work-groups"``, ``"local memory"`` or ``"registers"``.
    limit: str
    # Resident sub-groups as a fraction of the most that a compute unit can hold.
    occupancy: float
    # Work-groups that the machine holds at once: a wave.
    wave_groups: int


def residency(
    machine: Machine, items_per_group: int, local_bytes: int = 0, registers_per_item: int | None = None
) -> Residency:
    """Return how many work-groups a compute unit holds at once; ``registers_per_item`` None if they limit nothing.

    Of several limits of the same strength the first of work-items, work-groups, local memory, registers is named.
    """
    _check(machine, items_per_group, local_bytes, registers_per_item)
    size = int(machine.need("sub_group_size"))
    # A compute unit has slots for whole sub-groups, which a partly filled one takes as well.
    sub_groups = ceil(items_per_group / size)
    # Units that hold work-groups together do so with all that they have.
    units = machine.units_per_group or 1
    most = units * int(machine.need("max_items_per_unit")) // size
    limits = {"work-items": most // sub_groups, "work-groups": units * int(machine.need("max_groups_per_unit"))}
    if local_bytes:
        # The device gives local memory in steps, and keeps a part of it for each work-group (1 KiB on Ampere).
        step = machine.local_granularity_bytes or 1
        taken = ceil((local_bytes + (machine.local_reserved_bytes or 0)) / step) * step
        limits["local memory"] = units * int(machine.need("local_bytes")) // taken
    if registers_per_item:
        limits["registers"] = units * _sub_groups_by_registers(machine, registers_per_item, size) // sub_groups
    # `min` keeps the first of equal limits, so their order above is the order of the reasons that are told.
    limit = min(limits, key=lambda name: limits[name])
    groups = limits[limit]
    if not groups:
        msg = (
            f"no work-group of {items_per_group} work-items fits a compute unit of {machine.name} ({limit}); "
            "make work-groups smaller"
        )
        raise WorkGroupTooLargeError(msg, machine=machine.name, fact=limit)
    each = groups / units if groups % units else groups // units
    wave = groups * (int(machine.need("compute_units")) // units)
    return Residency(each, limit, groups * sub_groups / most, wave)


def _sub_groups_by_registers(machine: Machine, registers_per_item: int, size: int) -> int:
    # Registers are given to whole sub-groups: as many for each work-item, rounded up to the step.
    step = int(machine.need("register_granularity"))
    each = ceil(registers_per_item / step) * step * size
    # A sub-group's registers lie in one part of the register file.
    parts = machine.parts_per_unit
    return parts * (int(machine.need("registers_per_unit")) // parts // each)


def _check(machine: Machine, items: int, local_bytes: int, registers: int | None) -> None:
    if items < 1 or local_bytes < 0 or (registers is not None and registers < 1):
        msg = (
            f"{items} work-items, {local_bytes} B and {registers} registers do not make a work-group; "
            "give positive numbers"
        )
        raise MachineError(msg, machine=machine.name)
    wanted = [("work-items in a work-group", items, "max_items_per_group")]
    if local_bytes:
        wanted.append(("bytes of local memory in a work-group", local_bytes, "local_bytes_per_group"))
    if registers:
        wanted.append(("registers per work-item", registers, "registers_per_item_max"))
    for what, amount, fact in wanted:
        limit = int(machine.need(fact))
        if amount > limit:
            msg = f"{amount} {what} are more than the {limit} that machine {machine.name} has ({fact})"
            raise WorkGroupTooLargeError(msg, machine=machine.name, fact=fact)
