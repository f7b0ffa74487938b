"""Data volumes against enumeration of small grids, the authors' tool, and hardware counters."""

import csv
from math import prod
from pathlib import Path

import islpy as isl
import numpy as np
import pytest

from oracles.paper2022 import paper_estimate
from perflex import estimate_volumes
from perflex.features import scop_from_yaml
from perflex.features.gpu.launch_footprints import FootprintCounter, Layout, instances
from perflex.features.gpu.resolved_launch import resolve
from support.machines_for_tests import MACHINES, RTX2080TI, V100
from support.volume_kernels import convolution, star, stencil

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
def test_irregular_footprints_equal_isl(name, guard):
    domain = f"0 <= g0 < 5 and 0 <= g1 < 4 and 0 <= l0 < 8 and 0 <= l1 < 8{guard}"
    scop = scop_from_yaml(f"""
schema: perflex-scop/2
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
    footprints = FootprintCounter(launch, Layout(32))
    relation, where = scop.statements[0].accesses[0].relation, scop.statements[0].domain
    for spans in [((0, 4), (0, 3)), ((2, 3), (1, 1)), ((4, 4), (3, 3))]:
        limits = " and ".join(f"{low} <= g{axis} <= {high}" for axis, (low, high) in enumerate(spans))
        part = where.intersect(isl.Set(f"{{ [g0, g1, l0, l1] : {limits} }}"))
        sectors = part.apply(relation).apply(isl.Map("{ [y, x] -> [y, floor(8x/32)] }"))
        assert footprints.bytes_of([spans]).get("a", 0) == 32 * int(sectors.count_val().to_python())
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
def test_paper_rules_reproduce_its_tool(row):
    device, items, fold, shift, *numbers = row
    scop = stencil(star(3, 4), (640, 512, 512), items, fold=fold)
    offsets = {"A": 8 * shift, "B": 8 * shift}
    total = paper_estimate(scop, MACHINES[device], 32, offsets).total
    found = (
        32 * total.l1_wavefronts, total.l2_l1_load, total.l2_l1_store, total.wave_load, total.dram_load,
        total.dram_store,
    )  # fmt: skip
    assert [value / (640 * 512 * 512) for value in found] == pytest.approx(numbers, rel=1e-8)


# Shape, then DRAM load and L2-L1 load per lattice update: hardware counters of a V100 (25 points, 1024 work-items,
# 632 x 504 x 504 updated, notebook history of te42kyfo/warpspeed); one work-group of 1024 fits a compute unit.
COUNTED = [
    ((16, 8, 8), 16.24, 28.74), ((32, 8, 4), 24.25, 34.94), ((128, 1, 8), 16.23, 80.61), ((8, 4, 32), 10.51, 36.72),
]  # fmt: skip


@pytest.mark.parametrize(("items", "dram", "l2"), COUNTED)
def test_current_rules_are_near_hardware_counters(items, dram, l2):
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
def test_local_wavefronts_and_sectors_are_those_of_hardware(items, registers, wavefronts, l2, dram):
    total = estimate_volumes(convolution(items, (1, 1)), {}, RTX2080TI, registers=registers).total
    assert total.local_wavefronts_load == pytest.approx(wavefronts, rel=0.003)
    assert total.l2_l1_load / 32 == pytest.approx(l2, rel=0.11)
    assert total.dram_load / 32 == pytest.approx(dram, rel=0.05)


DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def rows_of(name):
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"needs the data of {name} beside the project, in shared/data")
    with path.open() as file:
        return list(csv.DictReader(file))


def block(row):
    return [int(row[f"block_{axis}"]) for axis in "xyz"]


@pytest.mark.machine
def test_hardware_counters_of_a_v100():
    rows = [row for row in rows_of("warpspeed_measured/v100_star25_3d_r4_640x512x512.csv") if int(row["block_z"]) <= 64]
    cells = 632 * 504 * 504
    errors = []
    for row in rows:
        scop = stencil(star(3, 4), (632, 504, 504), block(row), shape=(640, 512, 512), shift=(0, 4, 4))
        total = estimate_volumes(scop, {}, V100, registers=64).total
        found = np.array([total.l2_l1_load, total.dram_load]) / cells
        errors.append(np.abs(found / [float(row["l2l1_load_B_per_lup"]), float(row["dram_load_B_per_lup"])] - 1))
    assert len(errors) == 40
    assert np.all(np.median(errors, axis=0) <= [0.032, 0.009])
    assert np.all(np.percentile(errors, 90, axis=0) <= [0.08, 0.09])
    assert np.max(errors, axis=0)[0] <= 0.15


@pytest.mark.machine
@pytest.mark.parametrize("device", ["V100", pytest.param("A100", marks=pytest.mark.slow)])
def test_unfolded_rows_of_the_papers_tool(device):
    rows = [
        row
        for row in rows_of("warpspeed_reference/star7_3d_r1_256.csv")
        if (row["tool_commit"], row["device"], row["block_exceeds_domain"]) == ("827c681", device, "0")
        and row["fold_y"] == row["fold_z"] == "1"
    ]
    columns = ["l1_cycles_per_warp_lup", "l2l1_load_B_per_lup", "l2l1_store_B_per_lup"]
    columns += ["dram_load_V4_B_per_lup", "dram_store_B_per_lup"]
    errors = []
    for row in rows:
        shift = 8 * int(row["alignment_elems"])
        scop = stencil(star(3, 1), (256, 256, 256), block(row))
        total = paper_estimate(scop, MACHINES[device], 32, {"A": shift, "B": shift}).total
        found = [32 * total.l1_wavefronts, total.l2_l1_load, total.l2_l1_store, total.dram_load, total.dram_store]
        errors.append(np.abs(np.array(found) / prod((256, 256, 256)) / [float(row[c]) for c in columns] - 1))
    assert len(errors) >= 80
    assert np.max(np.median(errors, axis=0)) < 0.001
    assert np.max(errors) < 0.01
