"""Machine facts as the reference outputs used them (the paper's tool); RTX 2080 Ti from its data sheet."""

from dataclasses import replace

from perflex import Machine

KIB, MIB = 1024, 1024**2

# The tool knows no reserved local memory, no steps of it, and no parts of a register file; so does this machine.
V100 = Machine(
    "v100", l1_rules="nvidia", compute_units=80, clock_hz=1.38e9, sub_group_size=32, l1_bytes=128 * KIB,
    line_bytes=128, sector_bytes=32, l2_bytes=6 * MIB, l2_effective_bytes=6 * MIB,
    l2_bandwidth=2500e9, dram_bandwidth=790e9, local_bytes=96 * KIB, local_bytes_per_group=96 * KIB, local_banks=32,
    local_bank_bytes=4, max_items_per_unit=2048, max_groups_per_unit=32, max_items_per_group=1024,
    registers_per_unit=65536, registers_per_item_max=255, register_granularity=8, register_files_per_unit=1,
)  # fmt: skip
A100 = replace(
    V100, name="a100_40gb", compute_units=108, clock_hz=1.41e9, l1_bytes=192 * KIB, l2_bytes=40 * MIB,
    l2_effective_bytes=20 * MIB, l2_bandwidth=4500e9, dram_bandwidth=1400e9, local_bytes=164 * KIB,
    local_bytes_per_group=163 * KIB,
)  # fmt: skip
RTX2080TI = replace(
    V100, name="rtx_2080_ti", compute_units=68, clock_hz=1.545e9, l1_bytes=64 * KIB, l2_bytes=5632 * KIB,
    l2_effective_bytes=5632 * KIB, l2_bandwidth=2000e9, dram_bandwidth=616e9, local_bytes=64 * KIB,
    local_bytes_per_group=64 * KIB, max_items_per_unit=1024, max_groups_per_unit=16,
)  # fmt: skip
MACHINES = {"V100": V100, "A100": A100}
