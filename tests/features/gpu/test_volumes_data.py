"""Data volumes against all measured and reference rows, where these data are there."""

from __future__ import annotations

import csv
from math import prod
from pathlib import Path

import numpy as np
import pytest

from oracles.paper2022 import paper_estimate
from perflex import estimate_volumes
from support.machines_for_tests import MACHINES, V100
from support.volume_kernels import star, stencil

pytestmark = pytest.mark.machine

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def rows_of(name: str) -> list[dict[str, str]]:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"needs the data of {name} beside the project, in shared/data")
    with path.open() as file:
        return list(csv.DictReader(file))


def block(row: dict[str, str]) -> list[int]:
    return [int(row[f"block_{axis}"]) for axis in "xyz"]


def test_hardware_counters_of_a_v100() -> None:
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


@pytest.mark.parametrize("device", ["V100", pytest.param("A100", marks=pytest.mark.slow)])
def test_unfolded_rows_of_the_papers_tool(device: str) -> None:
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
