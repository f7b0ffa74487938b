"""How many work-groups a compute unit holds, computed by hand for three GPUs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from perflex import load_machine
from perflex.errors import MachineError, UnsupportedKernelError, WorkGroupTooLargeError
from perflex.machines.residency import residency


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
