"""Loads below the L1 and from DRAM: sweeps, sharing, data in turn; cycles of the first cache by each maker's rules."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from oracles.l1_lru import loads_below_l1
from oracles.l2_shared import chunks_loaded
from perflex import estimate_volumes, load_machine
from perflex.errors import MachineError
from perflex.features import kernel_feature_values, scop_from_yaml
from perflex.features.gpu.l1 import cdna2_cycles, rdna2_cycles
from support.machines_for_tests import V100
from support.uneven_kernels import Part, UnevenKernel, sweep
from support.volume_kernels import box, one_axis, star, stencil

KIB = 1024


@pytest.mark.parametrize("planes", [4, 32])
def test_a_sweep_needs_each_plane_once_however_many_there_are(planes):
    kernel = sweep(star(3, 1), (64, 32, planes), (32, 8))
    machine = replace(V100, compute_units=2, max_items_per_unit=512)
    found = estimate_volumes(kernel.scop(), {}, machine)
    (part,) = kernel.parts
    values, _ = kernel.points(part)
    loads = [kernel.addresses(array, index, values) for array, way, index in part.accesses if way == "load"]

    def loads_of(group):
        number = group[0] + kernel.groups[0] * group[1]
        return [load[number, plane] for plane in range(planes) for load in loads]

    truth = loads_below_l1(kernel.groups, loads_of, units=2, resident=found.resident_groups, capacity=128 * KIB)
    assert found.total.l2_l1_load == pytest.approx(truth, rel=0.3)
    # All that a work-group loads is far more than the cache holds.
    assert (found.oversub_l1 > 1.5) == (planes == 32)


# Bytes per update between L2 and L1: hardware counters of a V100, 15,000 x 15,000, work-groups of 32 x 8 (notebook
# history of te42kyfo/warpspeed).
@pytest.mark.parametrize(("reach", "counted"), [(1, 12.46), (3, 17.38), (6, 29.48), (9, 45.14)])
def test_box_stencils_on_hardware(reach, counted):
    n = 15000
    scop = stencil(box(2, reach), [n, n], [32, 8], shape=[n, n])
    found = estimate_volumes(scop, {}, V100, registers=32).total
    assert found.l2_l1_load / n**2 == pytest.approx(counted, rel=0.03)


TWICE = """
schema: perflex-scop/2
name: twice
parameters: [n]
launches:
- {groups: ["floor(n/64)"], items: [64], loops: [{name: k}]}
arrays:
- {name: a, space: global, dtype: float32, shape: [n, n], strides: [n, 1]}
statements:
- name: first
  domain: "[n] -> { [g, l, k] : 0 <= g and 64g < n and 0 <= l < 64 and 0 <= k < n }"
  loops: [0]
  order: [0, 0]
  accesses: [{array: a, direction: load, relation: "{ [g, l, k] -> [64g + l, k] }"}]
"""


def test_a_statement_whose_values_are_all_in_registers_loads_nothing():
    again = TWICE[TWICE.index("- name") :].replace("first", "again").replace("[0, 0]\n", "[0, 1]\n")
    once, twice = (estimate_volumes(scop_from_yaml(text), {"n": 512}, V100) for text in (TWICE, TWICE + again))
    assert twice.features() == once.features()


# A load's eight offsets in the benchmark, in elements.
OFFSETS = np.array([0, 4, 8, 12, 20, 16, 24, 28])
# Bytes of an element, stride in elements, measured cycles per load and 32 work-items on an MI210 (github
# te42kyfo/gpu-benches at 0a45416, gpu-strides/mi210.txt). Strides up to 34 were used for the rules.
STRIDES = [
    (4, 1, 2.18), (4, 3, 8.1), (4, 5, 14.1), (4, 8, 32.2), (4, 15, 24.2),
    (4, 18, 16.1), (4, 21, 14.1), (4, 36, 32.2), (4, 55, 14.1), (4, 63, 24.2),
    (8, 0, 8.1), (8, 4, 16.1), (8, 10, 12.1), (8, 11, 16.1), (8, 16, 32.2),
    (8, 17, 16.1), (8, 19, 12.1), (8, 25, 8.1), (8, 30, 24.2), (8, 31, 28.2),
]  # fmt: skip
# The same for rows of so many work-items, 4098 elements apart; of these, floats four wide were used.
BLOCKS = [(4, 2, 24.2), (4, 4, 7.5), (4, 8, 4.03), (4, 64, 2.18), (8, 1, 24.2), (8, 2, 12.1), (8, 16, 8.1)]


def per_load(first, size, cycles=cdna2_cycles, lanes=64):
    """Cycles per load and 32 work-items."""
    addresses = size * (first[None, :] + OFFSETS[:, None])
    return float(cycles(addresses.reshape(len(OFFSETS), -1, lanes), size).sum()) * 32 / addresses.size


@pytest.mark.parametrize(("size", "stride", "measured"), STRIDES)
def test_strides_on_cdna2(size, stride, measured):
    # Times have a launch in them: a cycle of four is 4.36.
    assert per_load(np.arange(1024) % 64 * stride, size) == pytest.approx(measured, rel=0.09)


@pytest.mark.parametrize(("size", "width", "measured"), BLOCKS)
def test_blocks_on_cdna2(size, width, measured):
    items = np.arange(1024)
    first = items % width + (items // width % 32 + 1) * 4098
    assert per_load(first, size) == pytest.approx(measured, rel=0.09)


@pytest.mark.parametrize(
    ("size", "stride", "measured"),
    [(4, 1, 1.0), (4, 9, 2.99), (4, 32, 31.9), (4, 51, 11.2), (8, 1, 4.34), (8, 21, 10.5)],
)
def test_strides_on_rdna2(size, stride, measured):
    assert per_load(np.arange(1024) % 64 * stride, size, rdna2_cycles, 32) == pytest.approx(measured, rel=0.09)


def test_what_is_not_known_is_refused():
    scop = one_axis(2048, [64], 1, 4)
    for identifier in ("f_l1_wavefronts", "f_peak_l1"):
        with pytest.raises(MachineError, match="no fact l1_rules") as caught:
            kernel_feature_values([identifier], scop, {}, machine=replace(load_machine("W7800"), l1_rules=None))
        assert caught.value.fact == "l1_rules"


ITEMS = 64  # of eight bytes: a chunk of 512 bytes, four lines
RESIDENT, ROOM = 32, 256
MACHINE = replace(V100, compute_units=4, max_groups_per_unit=8, l2_bytes=ROOM * 512, l2_effective_bytes=ROOM * 512)


def kernel(name, grid, steps, *, single=False, **loads):
    """Work-groups on a grid that go through chunks of arrays in a loop, and store a chunk each.

    Of each array, the number of the chunk by work-group ids and step i, and how many there are; with `single`, all
    work-items load the same element, one after the other, rather than a chunk together.
    """
    number = " + ".join(f"{prod(grid[:axis])}*g{axis}" for axis in range(len(grid)))
    accesses = [
        (array[0], "load", (index if single else f"{ITEMS}*({index}) + l0",)) for array, (index, _) in loads.items()
    ]
    go = Part((), tuple(accesses), (("i", steps * (ITEMS if single else 1)),))
    end = Part((), (("out", "store", (f"{ITEMS}*({number}) + l0",)),))
    arrays = {array[0]: (extent * ITEMS,) for array, (_, extent) in loads.items()} | {"out": (prod(grid) * ITEMS,)}
    return UnevenKernel(name, grid, (ITEMS,), arrays, (go, end))


def chunks(kernel):
    """Return what each work-group touches in order, by array and number of the chunk."""
    go = kernel.parts[0]
    values, runs = kernel.points(go)
    every = ITEMS if kernel.name.startswith("all pairs") else 1
    touched = [
        (array, np.broadcast_to(kernel.addresses(array, index, values), runs.shape)[:, ::every, 0] // (8 * ITEMS))
        for array, _, index in go.accesses
    ]
    return [
        [*((array, int(places[group, step])) for step in range(runs.shape[1] // every) for array, places in touched),
         ("out", group)]
        for group in range(len(runs))
    ]  # fmt: skip


def in_turn(period, steps, groups):
    """Every so manieth work-group reads the same buffer."""
    name = f"in turn {period}x{steps}"
    return kernel(name, (groups,), steps, A=(f"{steps}*(g0 % {period}) + i", period * steps))


def rows_in_turn(row, period, steps, rows):
    """The same for rows of work-groups."""
    index = f"{steps}*(g0 + {row}*(g1 % {period})) + i"
    return kernel(f"rows in turn {row}x{period}x{steps}", (row, rows), steps, A=(index, row * period * steps))


def layers_in_turn(row, column, period, steps, layers):
    """The same for layers."""
    index = f"{steps}*(g0 + {row}*g1 + {row * column}*(g2 % {period})) + i"
    name = f"layers in turn {row}x{column}x{period}x{steps}"
    return kernel(name, (row, column, layers), steps, A=(index, row * column * period * steps))


def broadcast(size, groups):
    """All work-groups read the same, and each something of its own."""
    return kernel(f"broadcast {size}", (groups,), size, A=("i", size), B=(f"{size}*g0 + i", groups * size))


def all_pairs(groups):
    """Each work-item goes through all of an array."""
    return kernel(f"all pairs {groups}", (groups,), groups, A=("i", groups), single=True)


def products(row, rows, steps):
    """Work-groups of a row share one matrix, those of a column the other."""
    arrays = {"A": (f"{steps}*g1 + i", rows * steps), "B": (f"{steps}*g0 + i", row * steps)}
    return kernel(f"products {row}x{rows}x{steps}", (row, rows), steps, **arrays)


def window(step, size, groups):
    """A window slides over an array."""
    return kernel(f"window {step} of {size}", (groups,), size, A=(f"{step}*g0 + i", step * groups + size))


def again(size, rounds, groups):
    """Each work-group goes through data of its own several times."""
    return kernel(f"again {size}x{rounds}", (groups,), size * rounds, A=(f"{size}*g0 + i % {size}", size * groups))


def flattened(row, groups):
    """A stencil of three rows whose work-groups lie on one axis, one step each."""
    loads = {f"A{number}": (f"g0 + {number * row} + 0*i", groups + 2 * row) for number in range(3)}
    return kernel(f"flattened {row}", (groups,), 1, **loads)


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
    *(all_pairs(groups) for groups in (64, 128)),
    *(
        products(row, rows, steps)
        for row, rows, steps in ((8, 60, 8), (8, 60, 60), (60, 8, 8), (60, 8, 2), (20, 20, 12))
    ),
    *(window(step, chunks, 400) for step, chunks in ((1, 20), (1, 100), (2, 120), (4, 6))),
    *(flattened(row, 1000) for row in (20, 40, 80, 400)),
    *(again(size, rounds, 96) for size, rounds in ((4, 5), (50, 3), (60, 5), (100, 3))),
]
LARGE = [pytest.param(kernel, marks=pytest.mark.slow) for kernel in (all_pairs(320), window(1, 500, 400))]


@pytest.mark.parametrize("kernel", [*KERNELS, *LARGE], ids=lambda kernel: kernel.name)
def test_loads_from_dram_are_those_of_a_cache_with_a_capacity(kernel):
    touched = chunks(kernel)
    # Real caches replace by neither rule, and hold more or less by how addresses fall into sets.
    true = [
        512 * chunks_loaded(touched, RESIDENT, room, lru=lru, fair=fair)
        for room in (ROOM, 5 * ROOM // 4)
        for lru in (True, False)
        for fair in (True, False)
    ]
    found = estimate_volumes(kernel.scop(), {}, MACHINE, caches="cold")
    assert found.resident_groups * MACHINE.compute_units == RESIDENT
    assert 0.6 * min(true) <= found.total.dram_load <= 1.6 * max(true)


@pytest.mark.parametrize(("room", "times"), [(ROOM, 4), (32 * ROOM, 1)])
def test_sectors_that_are_stored_bit_by_bit(room, times):
    """Four neighbours of each work-item, in 16 planes: a sector's next element is stored after all planes."""
    items = 96 * ITEMS
    index = f"{4 * items}*p + 4*({ITEMS}*g0 + l0) + i"
    store = Part((), (("out", "store", (index,)),), (("i", 4), ("p", 16)))
    machine = replace(MACHINE, l2_bytes=room * 512, l2_effective_bytes=room * 512)
    kernel = UnevenKernel("planes", (96,), (ITEMS,), {"out": (64 * items,)}, (store,))
    found, once = estimate_volumes(kernel.scop(), {}, machine, caches="cold").total, 64 * items * 8
    assert found.dram_store == pytest.approx(times * once, rel=0.05)
    # What is not stored whole is read back.
    assert found.dram_load == pytest.approx((times - 1) * once, abs=0.05 * once)


HALVES = """
schema: perflex-scop/2
name: halves
parameters: []
launches:
- {groups: ["640"], items: [8, 32], loops: [{name: j, kind: unrolled}]}
arrays:
- {name: a, space: global, dtype: float64, shape: ["20480", "16"], strides: ["16", "1"]}
statements:
- name: s
  domain: "{ [g, l, m, j] : 0 <= g < 640 and 0 <= l < 8 and 0 <= m < 32 and 0 <= j < 2LAST }"
  loops: [0]
  order: [0, 0]
  accesses: [{array: a, direction: load, relation: "{ [g, l, m, j] -> [32g + m, 2l + j] }"}]
"""


@pytest.mark.parametrize(("last", "times"), [("", 1), (" and (j = 0 or l < 6)", 2 - 1 / 4)])
def test_loads_come_together_unless_a_branch_lies_between(last, times):
    # The L1 has no room for what the other sub-groups load meanwhile.
    machine = replace(V100, compute_units=4, max_groups_per_unit=8, l1_bytes=8 * KIB)
    found = estimate_volumes(scop_from_yaml(HALVES.replace("LAST", last)), {}, machine).total
    assert found.l2_l1_load == pytest.approx(times * 640 * 32 * 16 * 8, rel=0.03)


def test_unrolled_loops_load_in_their_order():
    """Five neighbours of each work-item, in rows of 40, from 16 planes: a row's next element comes after all planes."""
    walk = """
schema: perflex-scop/2
name: walk
parameters: []
launches:
- {groups: ["640"], items: [8, 32], loops: [{name: j, kind: unrolled}, {name: p, parent: 0, kind: unrolled}]}
arrays:
- {name: a, space: global, dtype: float64, shape: ["16", "20480", "40"], strides: ["819200", "40", "1"]}
statements:
- name: s
  domain: "{ [g, l, m, j, p] : 0 <= g < 640 and 0 <= l < 8 and 0 <= m < 32 and 0 <= j < 5 and 0 <= p < 16 }"
  loops: [0, 1]
  order: [0, 0, 0]
  accesses: [{array: a, direction: load, relation: "{ [g, l, m, j, p] -> [p, 32g + m, 5l + j] }"}]
"""
    machine = replace(V100, compute_units=4, max_groups_per_unit=4)
    found = estimate_volumes(scop_from_yaml(walk), {}, machine).total
    # Between two elements of a sector, each work-item loads from all 16 planes: 640 KiB, which the L1 does not hold.
    assert found.l2_l1_load == pytest.approx(found.l1_load, rel=0.02)
