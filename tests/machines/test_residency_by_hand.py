"""How many work-groups a compute unit holds, computed by hand for three GPUs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from perflex import load_machine
from perflex.errors import MachineError, UnsupportedKernelError, WorkGroupTooLargeError
from perflex.machines.residency import Residency, residency


# A unit: 64 sub-groups of 32, 32 work-groups, four files of 16384 registers, 233472 B local memory in steps of 128 B.
@pytest.mark.parametrize(
    ("items", "local", "registers", "held"),
    [
        (96, 0, None, Residency(21, "work-items", 63 / 64, 21 * 132)),
        (97, 0, None, Residency(16, "work-items", 1.0, 16 * 132)),
        (32, 0, None, Residency(32, "work-groups", 0.5, 32 * 132)),
        # Equally strong: work-items are told first, then work-groups.
        (64, 0, None, Residency(32, "work-items", 1.0, 32 * 132)),
        (32, 6272, 64, Residency(32, "work-groups", 0.5, 32 * 132)),
        # 14 KiB - 1 KiB reserved: 16 times in 228 KiB; 14 KiB and the reserved one: 15 times.
        (128, 13 * 1024, None, Residency(16, "work-items", 1.0, 16 * 132)),
        (128, 14 * 1024, None, Residency(15, "local memory", 60 / 64, 15 * 132)),
        # 165 steps fit 11 times; 21224 B would, but are given as 166 steps.
        (128, 165 * 128 - 1024, None, Residency(11, "local memory", 44 / 64, 11 * 132)),
        (128, 20200, None, Residency(10, "local memory", 40 / 64, 10 * 132)),
        (128, 232448, None, Residency(1, "local memory", 4 / 64, 132)),
        # 12 sub-groups of 40 * 32 registers in each file: 48 in all, so 2 work-groups of 17; one file would hold 51.
        (544, 0, 40, Residency(2, "registers", 34 / 64, 2 * 132)),
        # 8 sub-groups in each file; 65 are given as 72: 7 in each.
        (256, 0, 64, Residency(4, "registers", 32 / 64, 4 * 132)),
        (256, 0, 65, Residency(3, "registers", 24 / 64, 3 * 132)),
    ],
)
def test_h100(items: int, local: int, registers: int | None, held: Residency) -> None:
    assert residency(load_machine("H100-SXM"), items, local, registers) == held


# A unit: 48 sub-groups of 32, 24 work-groups, four files of 16384 registers, 102400 B local memory in steps of 128 B.
@pytest.mark.parametrize(
    ("items", "local", "registers", "held"),
    [
        (1024, 0, None, Residency(1, "work-items", 32 / 48, 142)),
        (33, 0, None, Residency(24, "work-items", 1.0, 24 * 142)),
        (32, 0, None, Residency(24, "work-groups", 0.5, 24 * 142)),
        (128, 24 * 1024, None, Residency(4, "local memory", 16 / 48, 4 * 142)),
        (128, 24 * 1024 + 1, None, Residency(3, "local memory", 12 / 48, 3 * 142)),
        (128, 0, 168, Residency(3, "registers", 12 / 48, 3 * 142)),
        (128, 0, 169, Residency(2, "registers", 8 / 48, 2 * 142)),
        (128, 24 * 1024 + 1, 168, Residency(3, "local memory", 12 / 48, 3 * 142)),
    ],
)
def test_l40(items: int, local: int, registers: int | None, held: Residency) -> None:
    assert residency(load_machine("L40"), items, local, registers) == held


# A unit: 32 sub-groups of 64, 32 work-groups, four files of 32768 registers, 64 KiB local memory, to the byte.
@pytest.mark.parametrize(
    ("items", "local", "registers", "held"),
    [
        (64, 0, None, Residency(32, "work-items", 1.0, 32 * 110)),
        (65, 0, None, Residency(16, "work-items", 1.0, 16 * 110)),
        (256, 21845, None, Residency(3, "local memory", 12 / 32, 3 * 110)),
        (256, 21846, None, Residency(2, "local memory", 8 / 32, 2 * 110)),
        (256, 0, 64, Residency(8, "work-items", 1.0, 8 * 110)),
        (256, 0, 65, Residency(7, "registers", 28 / 32, 7 * 110)),
        (256, 0, 512, Residency(1, "registers", 4 / 32, 110)),
    ],
)
def test_mi250x(items: int, local: int, registers: int | None, held: Residency) -> None:
    assert residency(load_machine("MI250X"), items, local, registers) == held


def test_reserved_bytes_and_steps_of_local_memory_both_count() -> None:
    machine = load_machine("H100-SXM")
    assert residency(machine, 128, 20200).groups_per_unit == 10
    assert residency(replace(machine, local_reserved_bytes=None), 128, 20200).groups_per_unit == 11
    assert residency(replace(machine, local_granularity_bytes=None), 128, 20200).groups_per_unit == 11
    # Without local memory nothing is reserved.
    assert residency(replace(machine, local_reserved_bytes=10**6), 128).groups_per_unit == 16


@pytest.mark.parametrize(
    ("name", "group", "message", "fact"),
    [
        ("L40", (1025,), "1025 work-items in a work-group are more than the 1024", "max_items_per_group"),
        ("L40", (64, 101377), "101377 bytes of local memory in a work-group are more than the 101376",
         "local_bytes_per_group"),
        ("H100-SXM", (64, 232449), "232449 bytes of local memory in a work-group are more than the 232448",
         "local_bytes_per_group"),
        ("H100-SXM", (64, 0, 256), "256 registers per work-item are more than the 255", "registers_per_item_max"),
        ("MI250X", (64, 0, 513), "513 registers per work-item are more than the 512", "registers_per_item_max"),
        # Of several, the first.
        ("MI250X", (2048, 10**6, 999), "2048 work-items in a work-group are more than the 1024", "max_items_per_group"),
    ],
)  # fmt: skip
def test_what_exceeds_a_limit_is_told_with_both_numbers(name: str, group: tuple, message: str, fact: str) -> None:
    with pytest.raises(WorkGroupTooLargeError) as caught:
        residency(load_machine(name), *group)
    assert caught.value.message == f"{message} that machine {name} has ({fact})"
    assert (caught.value.machine, caught.value.fact) == (name, fact)


@pytest.mark.parametrize(
    ("name", "items", "registers", "fits"),
    [("H100-SXM", 1024, 65, 64), ("L40", 1024, 72, 64), ("MI250X", 320, 505, 256)],
)
def test_a_work_group_that_no_unit_holds_is_refused(name: str, items: int, registers: int, fits: int) -> None:
    machine = load_machine(name)
    message = f"no work-group of {items} work-items fits a compute unit of {name} (registers); make work-groups smaller"
    with pytest.raises(WorkGroupTooLargeError, match=f"^{re.escape(message)}$") as caught:
        residency(machine, items, 0, registers)
    assert isinstance(caught.value, MachineError)
    assert isinstance(caught.value, UnsupportedKernelError)
    assert (caught.value.machine, caught.value.fact) == (name, "registers")
    assert residency(machine, items, 0, fits).groups_per_unit == 1
