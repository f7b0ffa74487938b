"""Registers that a kernel takes by its source, where no compiler was asked.

Private arrays whose subscripts the compiler knows are registers. Beside them it takes about `_BESIDE`, for indices,
addresses and what is loaded: of 176 variants of matrix products, convolutions and point-in-polygon tests, which NVRTC
13.5 compiled for sm_75, 80 and 86, 83 % are within 20 %. Loads that unrolled loops begin early take more, which is not
seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod

from perflex.features.counting.private_memory import arrays_in_memory
from perflex.features.scop.scop import Scop
from perflex.machines.machine import Machine

_BESIDE = 24
_WORD_BYTES = 4


@dataclass(frozen=True)
class SourceRegisters:
    """Registers of a launch's work-items, as its source lets expect."""

    per_item: int | None  # 32-bit ones; None on a machine whose registers are not known
    spilt: float = 0.0  # share of the words of private arrays that find none


def registers_of(
    scop: Scop, launch: int, sizes: Mapping[str, int], machine: Machine, registers: int | None
) -> int | None:
    """Return registers of a launch's work-items that are known, else those that its source lets expect."""
    return source_registers(scop, launch, sizes, machine).per_item if registers is None else registers


def source_registers(scop: Scop, launch: int, sizes: Mapping[str, int], machine: Machine) -> SourceRegisters:
    """Return the registers of a launch, given by its number.

    A work-item takes no more than lets its work-group run, as compilers are told.
    """
    step = machine.register_granularity
    if machine.registers_per_unit is None or machine.registers_per_item_max is None or step is None:
        return SourceRegisters(None)
    used = {each.array for one in scop.statements if one.launch == launch for each in one.accesses}
    inside = arrays_in_memory(scop)
    words = sum(
        prod(int(extent.evaluate(sizes)) for extent in array.shape) * ceil(array.itemsize / _WORD_BYTES)
        for array in scop.arrays
        if array.space == "private" and array.shape and array.name in used and array.name not in inside
    )
    lanes, parts = int(machine.need("sub_group_size")), machine.parts_per_unit
    # Sub-groups of a work-group in each part of a compute unit, or of the units that hold it together.
    together = ceil(ceil(scop.launches[launch].group_size / lanes) / (parts * (machine.units_per_group or 1)))
    most = machine.registers_per_unit // parts // together // lanes // step * step
    most = max(1, min(most, machine.registers_per_item_max))
    beyond = min(words, max(0, _BESIDE + words - most))
    return SourceRegisters(min(most, _BESIDE + words), beyond / max(1, words))
