"""Transactions against hardware counters of a convolution on an RTX 2080 Ti."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.roofline_counter_rows import COUNTERS, classes_of, counter_rows, estimates

PATH = Path(__file__).resolve().parents[4] / "shared" / "data" / "gpu_counters" / "convolution_RTX_2080_Ti.csv.gz"

pytestmark = pytest.mark.skipif(not PATH.is_file(), reason=f"no {PATH.name} in ../shared/data/gpu_counters")


def errors_of(rows, name):
    measured = [sum(float(row[column]) for column in COUNTERS[name]) for row in rows]
    return np.abs([estimates(row)[name] / count - 1 for row, count in zip(rows, measured, strict=True)])


@pytest.mark.slow
def test_one_output_per_work_item() -> None:
    rows = [row for row in counter_rows(PATH) if row["TILE_SIZE_X"] == row["TILE_SIZE_Y"] == "1"]
    assert len(rows) == 27
    found = [estimates(row) for row in rows]
    for name, limit in (("local transactions", 0.01), ("local transactions, loads", 0.01)):
        counted = [sum(float(row[column]) for column in COUNTERS[name]) for row in rows]
        assert np.abs(np.array([one[name] for one in found]) / counted - 1).max() < limit
    for name in ("L2 read sectors", "L2 write sectors", "L2 sectors (f_txn_l2)", "DRAM sectors (f_txn_dram)"):
        counted = [sum(float(row[column]) for column in COUNTERS[name]) for row in rows]
        assert np.median(np.abs(np.array([one[name] for one in found]) / counted - 1)) < 0.05
    ratios: dict[str, list[float]] = {}
    for row, one in zip(rows, found, strict=True):
        for name, (predicted, counted) in classes_of(row, one).items():
            ratios.setdefault(name, []).append(predicted / counted)
    for name in ("fp32", "loads and stores", "active work-items per instruction"):
        assert np.abs(np.array(ratios[name]) - 1).max() < 0.03, name
    # A rule for what a compiler makes of subscripts and loops: the right size, and no more.
    assert 0.4 < np.median(ratios["integer"]) < 1.0
    assert 0.2 < np.median(ratios["control"]) < 1.0


def test_local_loads_of_several_outputs_per_work_item() -> None:
    rows = [row for row in counter_rows(PATH) if int(row["TILE_SIZE_X"]) * int(row["TILE_SIZE_Y"]) > 1]
    rows = [row for row in rows if not float(row["l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"])][::67]
    errors = errors_of(rows, "local transactions, loads")
    assert np.median(errors) < 0.01
    assert np.quantile(errors, 0.9) < 0.05


def test_l2_reads_of_several_outputs_per_work_item() -> None:
    # With more outputs the unrolled code outgrows the instruction cache, and its fetches are L2 reads, too.
    rows = [row for row in counter_rows(PATH) if 1 < int(row["TILE_SIZE_X"]) * int(row["TILE_SIZE_Y"]) <= 16]
    assert np.median(errors_of(rows[::97], "L2 read sectors")) < 0.10
