"""What the L2 cache still has of earlier work-groups, against a simulated cache of finite capacity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import islpy as isl
import pytest

from oracles.l2_shared import chunks_loaded
from perflex import estimate_volumes
from perflex.features import Access, Array, Launch, QuasiPolynomial, Scop, Statement
from perflex.features.gpu.left_in_l2 import recurring_hit
from support.machines_for_tests import V100

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ITEMS = 64  # of eight bytes: a chunk of 512 bytes, four lines
RESIDENT, ROOM = 32, 256
MACHINE = replace(V100, compute_units=4, max_groups_per_unit=8, l2_bytes=ROOM * 512, l2_effective_bytes=ROOM * 512)


number_of = QuasiPolynomial.constant


@dataclass(frozen=True)
class Kernel:
    """Work-groups on a grid that go through chunks of arrays in a loop, and store a chunk each."""

    name: str
    grid: tuple[int, ...]
    steps: int
    # array, its subscript by work-group ids and step for isl, the same for Python, and chunks of the array
    loads: Sequence[tuple[str, str, Callable[..., int], int]]
    # whether all work-items load the same element, one after the other, rather than a chunk together
    single: bool = False

    def scop(self) -> Scop:
        axes = [f"g{axis}" for axis in range(len(self.grid))]
        where = f"[{', '.join([*axes, 't', 'i'])}]"
        limits = [f"0 <= {axis} < {extent}" for axis, extent in zip(axes, self.grid, strict=True)]
        limits += [f"0 <= t < {ITEMS}", f"0 <= i < {self.steps * (ITEMS if self.single else 1)}"]
        accesses = [
            Access(array, "load", isl.Map(f"{{ {where} -> [{index if self.single else f'{ITEMS} * ({index}) + t'}] }}"))
            for array, index, _, _ in self.loads
        ]
        number = " + ".join(f"{prod(self.grid[:axis])} * {name}" for axis, name in enumerate(axes))
        place = isl.Map(f"{{ [{', '.join([*axes, 't'])}] -> [{ITEMS} * ({number}) + t] }}")
        inside = f"{{ {where} : {' and '.join(limits)} }}"
        outside = f"{{ [{', '.join([*axes, 't'])}] : {' and '.join(limits[:-1])} }}"
        sizes = {array: extent for array, _, _, extent in self.loads} | {"out": prod(self.grid)}
        return Scop(
            self.name,
            (),
            isl.Set("{ : }"),
            (Launch(tuple(map(number_of, self.grid)), (ITEMS,)),),
            tuple(
                Array(name, "global", "float64", (number_of(extent * ITEMS),), (number_of(1),))
                for name, extent in sizes.items()
            ),
            (
                Statement("go", isl.Set(inside), tuple(accesses)),
                Statement("end", isl.Set(outside), (Access("out", "store", place),)),
            ),
        )

    def chunks(self) -> list[list[tuple[str, int]]]:
        found = []
        for ids in product(*(range(extent) for extent in reversed(self.grid))):
            group = tuple(reversed(ids))
            mine = [(array, at(*group, i)) for i in range(self.steps) for array, _, at, _ in self.loads]
            found.append([*mine, ("out", len(found))])
        return found


def in_turn(period: int, steps: int, groups: int) -> Kernel:
    """Every so manieth work-group reads the same buffer."""
    return Kernel(
        f"in turn {period}x{steps}",
        (groups,),
        steps,
        [("A", f"{steps} * (g0 mod {period}) + i", lambda g, i: steps * (g % period) + i, period * steps)],
    )


def rows_in_turn(row: int, period: int, steps: int, rows: int) -> Kernel:
    """The same for rows of work-groups."""
    index = f"{steps} * (g0 + {row} * (g1 mod {period})) + i"
    return Kernel(
        f"rows in turn {row}x{period}x{steps}",
        (row, rows),
        steps,
        [("A", index, lambda x, y, i: steps * (x + row * (y % period)) + i, row * period * steps)],
    )


def layers_in_turn(row: int, column: int, period: int, steps: int, layers: int) -> Kernel:
    """The same for layers."""
    index = f"{steps} * (g0 + {row} * g1 + {row * column} * (g2 mod {period})) + i"
    at = lambda x, y, z, i: steps * (x + row * y + row * column * (z % period)) + i  # noqa: E731
    return Kernel(
        f"layers in turn {row}x{column}x{period}x{steps}",
        (row, column, layers),
        steps,
        [("A", index, at, row * column * period * steps)],
    )


def broadcast(chunks: int, groups: int) -> Kernel:
    """All work-groups read the same, and each something of its own."""
    own = f"{chunks} * g0 + i"
    return Kernel(
        f"broadcast {chunks}",
        (groups,),
        chunks,
        [("A", "i", lambda _, i: i, chunks), ("B", own, lambda g, i: chunks * g + i, groups * chunks)],
    )


def all_pairs(groups: int) -> Kernel:
    """Each work-item goes through all of an array."""
    return Kernel(f"all pairs {groups}", (groups,), groups, [("A", "i", lambda _, i: i, groups)], single=True)


def products(row: int, rows: int, steps: int) -> Kernel:
    """Work-groups of a row share one matrix, those of a column the other."""
    return Kernel(
        f"products {row}x{rows}x{steps}",
        (row, rows),
        steps,
        [
            ("A", f"{steps} * g1 + i", lambda _, y, i: steps * y + i, rows * steps),
            ("B", f"{steps} * g0 + i", lambda x, _, i: steps * x + i, row * steps),
        ],
    )


def window(step: int, chunks: int, groups: int) -> Kernel:
    """A window slides over an array."""
    return Kernel(
        f"window {step} of {chunks}",
        (groups,),
        chunks,
        [("A", f"{step} * g0 + i", lambda g, i: step * g + i, step * groups + chunks)],
    )


def flattened(row: int, groups: int) -> Kernel:
    """A stencil of three rows whose work-groups lie on one axis, one step each."""
    return Kernel(
        f"flattened {row}",
        (groups,),
        1,
        [("A", f"g0 + {shift} + 0 * i", lambda g, _, s=shift: g + s, groups + 2 * row) for shift in (0, row, 2 * row)],
    )


KERNELS = [
    *(in_turn(32, steps, 320) for steps in (1, 2, 4, 6, 8, 10, 12, 16, 24, 64)),
    *(in_turn(80, steps, 480) for steps in (1, 2, 4, 6, 12, 24)),
    *(in_turn(16, steps, 320) for steps in (2, 8, 16, 24, 64)),
    *(in_turn(period, 1, 2000) for period in (40, 100, 200, 400, 800)),
    *(rows_in_turn(8, 12, steps, 60) for steps in (1, 2, 4, 8, 24)),
    *(rows_in_turn(64, 1, steps, 12) for steps in (1, 2, 3, 6, 16)),
    *(rows_in_turn(4, 8, steps, 80) for steps in (2, 4, 6, 12, 32)),
    *(layers_in_turn(4, 4, 5, steps, 30) for steps in (1, 2, 4, 12)),
    *(layers_in_turn(10, 10, 1, steps, 8) for steps in (1, 2, 6)),
    *(broadcast(chunks, 256) for chunks in (2, 16, 100)),
    *(all_pairs(groups) for groups in (64, 128, 320)),
    *(
        products(row, rows, steps)
        for row, rows, steps in ((8, 60, 8), (8, 60, 60), (60, 8, 8), (60, 8, 2), (20, 20, 12))
    ),
    *(window(step, chunks, 400) for step, chunks in ((1, 20), (1, 100), (2, 120), (4, 6), (1, 500))),
    *(flattened(row, 1000) for row in (20, 40, 80, 400)),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_loads_from_dram_are_those_of_a_cache_with_a_capacity(kernel: Kernel) -> None:
    chunks = kernel.chunks()
    # Real caches replace by neither rule, and hold more or less by how addresses fall into sets.
    true = [
        512 * chunks_loaded(chunks, RESIDENT, room, lru=lru, fair=fair)
        for room in (ROOM, 5 * ROOM // 4)
        for lru in (True, False)
        for fair in (True, False)
    ]
    found = estimate_volumes(kernel.scop(), {}, MACHINE, caches="cold")
    assert found.resident_groups * MACHINE.compute_units == RESIDENT
    assert 0.6 * min(true) <= found.total.dram_load <= 1.6 * max(true)


def test_data_in_turn_hit_while_they_fit_and_fade_beyond() -> None:
    assert [recurring_hit(over) for over in (0.0, 0.5, 1.0)] == [1.0, 1.0, 1.0]
    shares = [recurring_hit(over) for over in (1.05, 1.5, 2.0, 4.0, 1e4)]
    assert shares == sorted(shares, reverse=True)
    # One buffer of twice the cache's room, gone through again and again by one work-group.
    again = 40
    missed = chunks_loaded([[("A", n) for n in range(2 * ROOM)] * again], 1, ROOM, lru=False, fair=True)
    assert 1 - (missed / (2 * ROOM) - 1) / (again - 1) == pytest.approx(recurring_hit(2.0), abs=0.02)
