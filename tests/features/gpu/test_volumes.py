"""Data volumes against enumeration of small grids, the authors' tool, and hardware counters."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil, prod

import islpy as isl
import numpy as np
import pytest

from perflex import estimate_volumes
from perflex.errors import FeatureError, MachineError, MissingSizeError, PerflexWarning, UnsupportedKernelError
from perflex.features import extract_scop, scop_from_yaml
from perflex.features.gpu.footprints import Layout, Toucher
from perflex.features.gpu.geometry import Wave
from perflex.features.gpu.images import instances
from perflex.features.gpu.l2 import wave_volumes
from perflex.features.gpu.resolved import resolve
from support.machines_for_tests import A100, MACHINES, RTX2080TI, V100
from support.volume_kernels import box, convolution, one_axis, star, stencil
from uipick import ALL_GENERATORS, KernelCollection

SMALL = replace(V100, compute_units=2, max_groups_per_unit=3, l1_bytes=2048, l2_bytes=32768, l2_effective_bytes=32768)


class Enumerated:
    """A stencil of `volume_kernels.stencil`, work-item by work-item."""

    def __init__(self, offsets, domain, items, *, fold=None, itemsize=8, shape=None):
        dims = len(domain)
        self.items, self.itemsize = items, itemsize
        self.fold = fold or (1,) * dims
        self.domain, self.shape = domain, shape or domain
        self.groups = [ceil(d / (i * f)) for d, i, f in zip(domain, items, self.fold, strict=True)]
        self.cells = list(product(*(range(f) for f in self.fold)))
        self.loads = list(dict.fromkeys(tuple(np.add(c, o)) for c in self.cells for o in offsets))

    def work_items(self, group):
        """First cell of each work-item of a group, x fastest, and whether it runs."""
        local = np.stack(np.unravel_index(np.arange(prod(self.items)), self.items, order="F"), axis=-1)
        first = (local + np.array(group) * self.items) * self.fold
        return first, (first < self.domain).all(axis=-1)

    def addresses(self, group, offset):
        """Byte addresses, -1 for idle work-items."""
        first, runs = self.work_items(group)
        strides = np.cumprod([1, *self.shape[:-1]])
        return np.where(runs, (first + offset) @ strides * self.itemsize, -(1 << 40))

    def cells_of(self, groups, offsets, granule):
        """Distinct (granule of the row, y, z)."""
        found = set()
        for group in groups:
            first, runs = self.work_items(group)
            for offset in offsets:
                cells = first[runs] + offset
                cells[:, 0] = cells[:, 0] * self.itemsize // granule
                found |= set(map(tuple, cells.tolist()))
        return found

    def instructions(self, group, offset):
        """Addresses of each sub-group, only running work-items."""
        everything = self.addresses(group, offset)
        parts = [everything[start : start + 32] for start in range(0, len(everything), 32)]
        return [part[part >= -(1 << 30)] for part in parts]


def enumerate_box(ranges):
    return list(product(*(range(low, high + 1) for low, high in ranges))) if ranges else []


KERNELS = [
    (star(2, 1), (37, 21), (8, 4), None, 8, None),
    (star(2, 2), (40, 24), (4, 8), (1, 2), 4, (44, 24)),
    (box(2, 1), (33, 18), (2, 16), None, 8, (35, 20)),
    (star(3, 1), (24, 12, 10), (8, 2, 2), None, 8, None),
    (star(3, 2), (16, 16, 12), (4, 4, 2), (1, 1, 2), 8, None),
    (star(3, 1), (20, 9, 9), (4, 4, 4), (1, 2, 1), 4, (23, 11, 9)),
]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("granule", [32, 64])
def test_wave_footprints_and_overlaps_equal_enumeration(kernel, granule) -> None:
    offsets, domain, items, fold, itemsize, shape = kernel
    truth = Enumerated(offsets, domain, items, fold=fold, itemsize=itemsize, shape=shape)
    scop = stencil(offsets, domain, items, fold=fold or (1, 1, 1), itemsize=itemsize, shape=shape)
    [launch] = resolve(scop, {})
    top = [extent - 1 for extent in truth.groups]
    now = [(max(0, t - 1), t) for t in top]
    now[-1] = (min(1, top[-1]), min(1, top[-1]))
    below = [
        [(max(0, low - 1), low - 1) if a == axis else span for a, span in enumerate(now)]
        for axis, (low, _) in enumerate(now)
    ]
    sets = tuple((tuple(b),) if now[axis][0] > 0 else () for axis, b in enumerate(below))
    wave = Wave((tuple(now),), (*sets, ())[:3])
    found = wave_volumes(Toucher(launch, Layout(granule)), wave, granule)
    mine = truth.cells_of(enumerate_box(now), truth.loads, granule)
    assert found.load == {"A": len(mine) * granule}
    assert found.store == {"B": len(truth.cells_of(enumerate_box(now), truth.cells, granule)) * granule}
    overlaps = []
    for boxes in wave.before:
        other = truth.cells_of([group for box in boxes for group in enumerate_box(box)], truth.loads, granule)
        overlaps.append(len(mine & other) * granule)
        mine -= other
    assert found.overlap == {"A": tuple(overlaps)}
    assert instances(launch, tuple(now)) == sum(truth.work_items(g)[1].sum() for g in enumerate_box(now))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shift", [0, 8, 24])
def test_work_group_components_equal_enumeration(kernel, shift) -> None:
    offsets, domain, items, fold, itemsize, shape = kernel
    truth = Enumerated(offsets, domain, items, fold=fold, itemsize=itemsize, shape=shape)
    scop = stencil(offsets, domain, items, fold=fold or (1, 1, 1), itemsize=itemsize, shape=shape)
    result = estimate_volumes(scop, {}, SMALL, registers=32, offsets={"A": shift, "B": shift})
    loads = stores = compulsory = allocated = 0
    for group in enumerate_box([(0, extent - 1) for extent in truth.groups]):
        per_load = [[p + shift for p in truth.instructions(group, offset)] for offset in truth.loads]
        per_store = [[p + shift for p in truth.instructions(group, cell)] for cell in truth.cells]
        loads += sum(len(np.unique(p // 32)) for one in per_load for p in one) * 32
        stores += sum(len(np.unique(p // 32)) for one in per_store for p in one) * 32
        together = np.concatenate([p for one in per_load for p in one])
        compulsory += len(np.unique(together // 32)) * 32
        allocated += len(np.unique(together // 128)) * 128
    assert result.total.l1_load == loads
    assert result.total.l2_l1_store == stores
    assert result.total.l2_l1_compulsory == compulsory
    assert result.l1_alloc == pytest.approx(allocated / prod(truth.groups))


@pytest.mark.parametrize("kernel", KERNELS)
def test_paper_wavefronts_equal_enumeration(kernel) -> None:
    offsets, domain, items, fold, itemsize, shape = kernel
    truth = Enumerated(offsets, domain, items, fold=fold, itemsize=itemsize, shape=shape)
    scop = stencil(offsets, domain, items, fold=fold or (1, 1, 1), itemsize=itemsize, shape=shape)
    # A wave that holds the grid, of which the paper's rules look at up to four work-groups along each axis.
    machine = replace(V100, compute_units=10_000)
    result = estimate_volumes(scop, {}, machine, variant="paper2022", registers=32)
    cycles = running = 0
    # They take the wave from the middle of the grid along z, and cut it at its end.
    wave = [extent - (extent // 2 if axis == 2 else 0) for axis, extent in enumerate(truth.groups)]
    for group in product(*(range(min(4, extent)) for extent in wave)):
        running += truth.work_items(group)[1].sum()
        for offset in truth.loads + truth.cells:
            everything = truth.addresses(group, offset)
            for start in range(0, len(everything), 16):
                half = everything[start : start + 16]
                half = np.unique(half[half >= -(1 << 30)])
                banks = np.bincount(half // 8 % 16, minlength=16)
                cycles += max(banks.max(), len(np.unique(half // 1024)))
    everywhere = prod(ceil(d / f) for d, f in zip(domain, truth.fold, strict=True))
    assert result.total.l1_wavefronts == pytest.approx(cycles * everywhere / running)


IRREGULAR = {
    "diagonal": "[g0, g1, l0, l1] -> [8g1 + l1, 8g0 + l0 + l1]",
    "transposed": "[g0, g1, l0, l1] -> [8g0 + l0, 8g1 + l1]",
    "modulo": "[g0, g1, l0, l1] -> [8g1 + l1, (8g0 + l0) mod 12]",
    "halved": "[g0, g1, l0, l1] -> [8g1 + l1, floor((8g0 + l0)/2)]",
    "flattened": "[g0, g1, l0, l1] -> [4g1 + floor((l0 + 8l1)/16), 16g0 + ((l0 + 8l1) mod 16)]",
    "strided": "[g0, g1, l0, l1] -> [8g1 + l1, 24g0 + 3l0]",
    "clamped": "[g0, g1, l0, l1] -> [8g1 + l1, c] : (8g0 + l0 >= 3 and c = 8g0 + l0 - 3) or (8g0 + l0 < 3 and c = 0)",
}


@pytest.mark.parametrize("name", IRREGULAR)
@pytest.mark.parametrize(
    "guard", ["", " and 8g0 + l0 < 29", " and 8g0 + l0 + 8g1 + l1 < 40", " and (g0 + l1) mod 3 = 0"]
)
def test_irregular_footprints_equal_isl(name: str, guard: str) -> None:
    domain = f"0 <= g0 < 5 and 0 <= g1 < 4 and 0 <= l0 < 8 and 0 <= l1 < 8{guard}"
    scop = scop_from_yaml(f"""
schema: perflex-scop/1
name: irregular
parameters: []
assumptions: "{{ : }}"
launches: [{{groups: ["5", "4"], items: [8, 8]}}]
arrays: [{{name: a, space: global, dtype: float64, shape: ["64", "160"], strides: ["160", "1"]}}]
statements:
- name: s
  domain: "{{ [g0, g1, l0, l1] : {domain} }}"
  accesses: [{{array: a, direction: load, relation: "{{ {IRREGULAR[name]} }}"}}]
""")
    [launch] = resolve(scop, {})
    toucher = Toucher(launch, Layout(32))
    relation, where = scop.statements[0].accesses[0].relation, scop.statements[0].domain
    for spans in [((0, 4), (0, 3)), ((2, 3), (1, 1)), ((4, 4), (3, 3))]:
        limits = " and ".join(f"{low} <= g{axis} <= {high}" for axis, (low, high) in enumerate(spans))
        part = where.intersect(isl.Set(f"{{ [g0, g1, l0, l1] : {limits} }}"))
        sectors = part.apply(relation).apply(isl.Map("{ [y, x] -> [y, floor(8x/32)] }"))
        assert toucher.bytes_of([spans]).get("a", 0) == 32 * int(sectors.count_val().to_python())
        assert instances(launch, spans) == int(part.count_val().to_python())


# Device, shape, folding, alignment in elements, then per lattice update: L1 cycles of 32 updates, L2-L1 load and store,
# wave footprint, DRAM load and store. Output of the paper's tool (github te42kyfo/warpspeed, 827c681).
REFERENCE = [
    ("V100", (1, 16, 64), (1, 1, 1), 0, 832, 346.7605729, 32, 13.4, 14.79082567, 9.438625393),
    ("V100", (1, 16, 64), (1, 1, 2), 0, 704, 467.7678577, 32, 12.9, 51.26564406, 9.966128745),
    ("V100", (1, 16, 64), (1, 2, 1), 0, 704, 451.22253, 32, 11.4, 39.96735211, 9.878308199),
    ("V100", (2, 16, 32), (1, 2, 1), 0, 360, 125.9410587, 16, 12.2, 20.47784139, 8.641556094),
    ("V100", (2, 64, 8), (1, 1, 1), 0, 424, 106.5941013, 16, 17.2, 17.80353961, 8.508412389),
]


@pytest.mark.parametrize("row", REFERENCE)
def test_paper_rules_reproduce_its_tool(row) -> None:
    device, items, fold, shift, *numbers = row
    scop = stencil(star(3, 4), (640, 512, 512), items, fold=fold)
    offsets = {"A": 8 * shift, "B": 8 * shift}
    total = estimate_volumes(scop, {}, MACHINES[device], variant="paper2022", registers=32, offsets=offsets).total
    found = (
        32 * total.l1_wavefronts,
        total.l2_l1_load,
        total.l2_l1_store,
        total.wave_load,
        total.dram_load,
        total.dram_store,
    )
    assert [value / (640 * 512 * 512) for value in found] == pytest.approx(numbers, rel=1e-8)


def test_wave_of_a_folded_kernel_is_that_of_its_own_grid() -> None:
    # The paper's tool takes the wave's depth from the domain before folding: here one layer, where 216 resident
    # work-groups fill a layer of the folded grid (640 / 16 x 512 / 64 / 2 = 160) and part of the next.
    scop = stencil(star(3, 4), (640, 512, 512), (16, 64, 1), fold=(1, 2, 1))
    result = estimate_volumes(scop, {}, A100, variant="paper2022", registers=32)
    assert result.wave_items == 40 * 4 * 2 * 1024


# Shape, then DRAM load and L2-L1 load per lattice update: hardware counters of a V100 (25 points, 1024 work-items,
# 632 x 504 x 504 updated, notebook history of te42kyfo/warpspeed); one work-group of 1024 fits a compute unit.
COUNTED = [
    ((16, 8, 8), 16.24, 28.74),
    ((32, 8, 4), 24.25, 34.94),
    ((128, 1, 8), 16.23, 80.61),
    ((8, 4, 32), 10.51, 36.72),
]


@pytest.mark.parametrize(("items", "dram", "l2"), COUNTED)
def test_current_rules_are_near_hardware_counters(items, dram, l2) -> None:
    scop = stencil(star(3, 4), (632, 504, 504), items, shape=(640, 512, 512), shift=(0, 4, 4))
    result = estimate_volumes(scop, {}, V100, registers=64)
    cells = 632 * 504 * 504
    assert result.resident_groups == 1
    assert result.total.dram_load / cells == pytest.approx(dram, rel=0.02)
    assert result.total.l2_l1_load / cells == pytest.approx(l2, rel=0.08)


# Work-group, registers, then counted wavefronts of local loads and sectors read from L2 and DRAM: RTX 2080 Ti,
# 15 x 15 filter of 4096 x 4096 (benchmark_hub of AutoTuningAssociation).
FILTERS = [((2, 32), 28, 944008438, 37091912, 2112507), ((4, 32), 28, 235929600, 18806722, 2113267)]


@pytest.mark.parametrize(("items", "registers", "wavefronts", "l2", "dram"), FILTERS)
def test_local_wavefronts_and_sectors_are_those_of_hardware(items, registers, wavefronts, l2, dram) -> None:
    total = estimate_volumes(convolution(items, (1, 1)), {}, RTX2080TI, registers=registers).total
    assert total.local_wavefronts_load == pytest.approx(wavefronts, rel=0.003)
    assert total.l2_l1_load / 32 == pytest.approx(l2, rel=0.11)
    assert total.dram_load / 32 == pytest.approx(dram, rel=0.05)


def test_grid_size_scales_volumes_only() -> None:
    small, large = ((n, 512, 512) for n in (512, 1024))
    per_cell = []
    for domain in (small, large):
        result = estimate_volumes(stencil(star(3, 1), domain, (32, 4, 2)), {}, A100, registers=32)
        per_cell.append(result.total.l2_l1_load / prod(domain))
    assert per_cell[0] == pytest.approx(per_cell[1], rel=1e-3)


CATALOG = [
    ["stencil3d", "points:7", "variant:tile", "dtype:float32", "nx:64", "ny:64", "nz:64"],
    ["matmul_sq", "dtype:float32", "prefetch:True", "lsize_0:16", "lsize_1:16", "groups_fit:True", "n:256"],
]


@pytest.mark.parametrize("variant", ["current", "paper2022"])
@pytest.mark.parametrize("tags", CATALOG)
def test_kernels_of_the_catalog_have_volumes(variant: str, tags: list[str]) -> None:
    kernel = KernelCollection(ALL_GENERATORS).generate_kernels(tags)[0]
    result = estimate_volumes(extract_scop(kernel.kernel), kernel.sizes, A100, variant=variant)
    features = result.features()
    assert features["f_vol_dram_load"] > 0
    assert features["f_vol_dram_store"] > 0
    assert features["f_vol_l2_l1_load"] >= features["f_vol_dram_load"] * 0.5
    assert features["f_lmem_wavefronts"] > 0


def test_several_outputs_load_each_element_once() -> None:
    # Two columns of outputs 16 apart: 15 x 31 elements instead of 15 x 15 each; without, each output loads its own.
    scop = convolution((16, 16), (2, 1))
    kept, each = (estimate_volumes(scop, {}, RTX2080TI, register_reuse=reuse).total for reuse in (True, False))
    assert kept.local_wavefronts_load / each.local_wavefronts_load == pytest.approx(30 / 30)
    near = convolution((8, 16), (2, 1))
    kept, each = (estimate_volumes(near, {}, RTX2080TI, register_reuse=reuse).total for reuse in (True, False))
    assert kept.local_wavefronts_load / each.local_wavefronts_load == pytest.approx(23 / 30, rel=0.02)
    assert kept.l2_l1_load == each.l2_l1_load
    # RTX 2080 Ti, 4 x 3 outputs of 32 x 8 work-items: counted wavefronts.
    total = estimate_volumes(convolution((32, 8), (4, 3)), {}, RTX2080TI, registers=64).total
    assert total.local_wavefronts_load == pytest.approx(81423360, rel=0.01)


def test_a_kernel_that_may_spill_is_told() -> None:
    with pytest.warns(PerflexWarning, match="takes all 255 registers"):
        estimate_volumes(convolution((16, 8), (2, 2)), {}, V100, registers=255)


def test_what_is_missing_or_wrong_is_named() -> None:
    scop = one_axis(1024, (256,), 1, 8)
    with pytest.raises(MachineError, match="v100 has no fact compute_units"):
        estimate_volumes(scop, {}, replace(V100, compute_units=None))
    with pytest.raises(FeatureError, match="current or paper2022"):
        estimate_volumes(scop, {}, V100, variant="paper")
    with pytest.raises(UnsupportedKernelError, match="2048 work-items"):
        estimate_volumes(one_axis(4096, (2048,), 1, 8), {}, V100)
    with pytest.raises(UnsupportedKernelError, match="registers"):
        estimate_volumes(scop, {}, V100, registers=512)
    symbolic = replace(scop, parameters=("n",))
    with pytest.raises(MissingSizeError, match="'n'"):
        estimate_volumes(symbolic, {}, V100)
