"""Volumes of launches at the edge of what kernels do: idle work-groups, tiny tables, huge strides and grids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perflex import estimate_volumes, load_machine
from support.uneven_kernels import Part, UnevenKernel

V100 = load_machine("V100")
FEW_UNITS = replace(V100, compute_units=2)
ITEM = "64*g0 + l0"
SLOW = (pytest.mark.slow,)


def with_table(groups: int, *conditions: str, table: int = 8192) -> UnevenKernel:
    """y = a table of which each work-group loads all."""
    loads = tuple(("c", "load", (f"l0 + {start}",)) for start in range(0, table, 64))
    part = Part(conditions, (*loads, ("y", "store", (ITEM,))))
    return UnevenKernel("table", (groups,), (64,), {"c": (table,), "y": (64 * groups,)}, (part,))


CONDITIONS = ("g0 < 2000", "g0 >= 18000", "g0 % 10 == 3")


# Each condition and each machine stands in a test that is not slow.
@pytest.mark.parametrize(
    ("machine", "condition"),
    [
        *(pytest.param(V100, one, id=f"V100-{one}", marks=() if one in CONDITIONS[:2] else SLOW) for one in CONDITIONS),
        *(pytest.param(FEW_UNITS, one, id=f"two units-{one}", marks=() if "%" in one else SLOW) for one in CONDITIONS),
    ],
)
def test_work_groups_in_which_nothing_runs_take_no_room_in_l1(machine, condition: str) -> None:
    runs = [estimate_volumes(with_table(20_000, condition).scop(), {}, machine)]
    runs.append(estimate_volumes(with_table(2000).scop(), {}, machine))
    assert runs[0].waves == pytest.approx(runs[1].waves)
    some, alone = (run.total for run in runs)
    assert alone.l2_l1_load < 0.5 * alone.l2_l1_compulsory
    assert some.l2_l1_compulsory == pytest.approx(alone.l2_l1_compulsory)
    assert some.l2_l1_load == pytest.approx(alone.l2_l1_load, rel=0.02)


def test_what_a_launch_loads_crosses_into_l1_once_at_least() -> None:
    total = estimate_volumes(with_table(100_000, table=64).scop(), {}, FEW_UNITS).total
    assert 64 * 8 <= total.l2_l1_load < 0.01 * total.l2_l1_compulsory


def test_a_value_that_a_long_loop_loads_and_stores_crosses_once_at_least() -> None:
    part = Part((), (("a", "load", ("k", ITEM)), ("b", "load", (ITEM,)), ("b", "store", (ITEM,))), (("k", 20_000),))
    kernel = UnevenKernel("sum", (100,), (64,), {"a": (20_000, 6400), "b": (6400,)}, (part,))
    for machine in (V100, FEW_UNITS):
        assert estimate_volumes(kernel.scop(), {}, machine).arrays["b"].l2_l1_load >= 6400 * 8


def test_no_volume_is_negative() -> None:
    offsets = [(j, i) for j in range(9) for i in range(9)]
    loads = tuple(("x", "load", (f"16*g1 + l1 + {j}", f"16*g0 + l0 + {i}")) for j, i in offsets)
    part = Part((), (*loads, ("y", "store", ("16*g1 + l1", "16*g0 + l0"))))
    kernel = UnevenKernel("box", (40, 40), (16, 16), {"x": (700, 700), "y": (640, 640)}, (part,))
    for machine in (V100, FEW_UNITS, load_machine("MI210")):
        total = estimate_volumes(kernel.scop(), {}, machine).total
        assert min(vars(total).values()) >= 0


def test_elements_of_a_diagonal_lie_far_apart() -> None:
    groups, row = 1 << 18, 1 << 26
    part = Part((), (("x", "load", (ITEM, ITEM)), ("y", "store", (ITEM,))))
    kernel = UnevenKernel("diagonal", (groups,), (64,), {"x": (row, row), "y": (row,)}, (part,))
    found = estimate_volumes(kernel.scop(), {}, V100, caches="cold")
    # No two of them share a sector.
    assert found.arrays["x"].l2_l1_load == pytest.approx(groups * 64 * 32)


def test_grids_of_any_size_without_guards_take_no_memory() -> None:
    part = Part((), (("x", "load", (ITEM,)), ("y", "store", (ITEM,))))
    kernel = UnevenKernel("copy", (1 << 40,), (64,), {"x": (1 << 46,), "y": (1 << 46,)}, (part,))
    total = estimate_volumes(kernel.scop(), {}, V100, caches="cold").total
    assert total.l2_l1_load == pytest.approx(2.0**49)
    assert total.dram_load == pytest.approx(2.0**49)
