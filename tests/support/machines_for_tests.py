"""Machine facts as the reference outputs used them (the paper's tool); RTX 2080 Ti from its data sheet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

KIB, MIB = 1024, 1024**2


@dataclass(frozen=True)
class MachineForTests:
    name: str
    compute_units: int | None
    clock_hz: float
    l1_bytes: int
    l2_bytes: int
    l2_effective_bytes: int
    dram_bandwidth: float
    l2_bandwidth: float
    sub_group_size: int = 32
    line_bytes: int = 128
    sector_bytes: int = 32
    l1_banks: int = 32
    l1_bank_bytes: int = 4
    local_bytes: int = 96 * KIB
    local_banks: int = 32
    local_bank_bytes: int = 4
    max_items_per_unit: int = 2048
    max_groups_per_unit: int = 32
    max_items_per_group: int = 1024
    registers_per_unit: int = 65536
    register_granularity: int = 8
    curves: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)


V100 = MachineForTests("v100", 80, 1.38e9, 128 * KIB, 6 * MIB, 6 * MIB, 790e9, 2500e9)
A100 = MachineForTests("a100_40gb", 108, 1.41e9, 192 * KIB, 40 * MIB, 20 * MIB, 1400e9, 4500e9, local_bytes=164 * KIB)
RTX2080TI = replace(
    MachineForTests("rtx_2080_ti", 68, 1.545e9, 64 * KIB, 5632 * KIB, 5632 * KIB, 616e9, 2000e9),
    local_bytes=64 * KIB,
    max_items_per_unit=1024,
    max_groups_per_unit=16,
)
MACHINES = {"V100": V100, "A100": A100}
