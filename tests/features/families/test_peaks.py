"""Times at a machine's peaks: values by hand, fillings of a machine, missing facts, and a simulator's counts."""

from __future__ import annotations

import csv
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from perflex import load_machine
from perflex.errors import MachineError
from perflex.features import kernel_feature_values
from perflex.features.families.peaks import PEAK_FAMILY
from uipick import ALL_GENERATORS, KernelCollection

ALL = PEAK_FAMILY.examples()
SIMULATED = Path(__file__).parents[4] / "shared" / "data" / "gpu_kernels" / "simulated_gpu" / "simulated_gpu.csv"


def kernel(*tags: str):
    (found,) = KernelCollection(ALL_GENERATORS).generate_kernels(list(tags))
    return found


def copy(nelements: int):
    return kernel("gmem_copy", "dtype:float32", "lsize_0:256", "width:1", "groups_fit:True", f"nelements:{nelements}")


def values(one, machine="V100", names=ALL, **options):
    return kernel_feature_values(names, one, one.sizes, 32, machine=machine, **options)


def test_a_copy_by_hand() -> None:
    n = 1 << 24
    found = values(copy(n))
    groups, clock = n // 256, 1.38e9
    # 65536 work-groups on 80 units: the busiest has 820, the mean is 819.2.
    busiest = ceil(groups / 80) * 80 / groups
    assert found["f_peak_dram"] == pytest.approx(8 * n / 800e9, rel=1e-3)
    assert found["f_peak_l2"] == pytest.approx(8 * n / 2500e9, rel=1e-3)
    # A load and a store of each sub-group: one line, 0.75 cycles of look-up but a whole one of data.
    assert found["f_peak_l1"] == pytest.approx(2 * n / 32 / (80 * clock) * busiest, rel=1e-3)
    assert found["f_peak_group"] == pytest.approx(groups / 640e6)
    # One load after the other: none, but it misses everywhere; 8 resident work-groups, so 103 waves.
    assert found["f_peak_latency"] == pytest.approx(ceil(groups / 640) * 316.7e-9, rel=1e-2)
    for absent in ("local", "fp32", "fp64", "special", "atomic", "atomic_local"):
        assert found[f"f_peak_{absent}"] == 0


def test_fewer_work_groups_than_units_use_only_so_many() -> None:
    tags = ("op_chain", "operation:madd", "dtype:float32", "lsize_0:128", "chains:8", "m:256")
    alone, one_each, one_more = (
        values(kernel(*tags, f"nitems:{128 * groups}"))["f_peak_fp32"] for groups in (1, 80, 81)
    )
    # 8 chains of 256 multiply-adds by 4 sub-groups, one on each scheduler with 16 lanes: 2 cycles each.
    assert alone == pytest.approx(8 * 256 * 2 / 1.38e9, rel=0.05)
    assert one_each == pytest.approx(alone)
    assert one_more == pytest.approx(2 * alone)


def test_integer_products_take_longer_where_they_are_made_of_others() -> None:
    one = kernel("op_chain", "operation:mul", "dtype:int32", "lsize_0:128", "chains:8", "nitems:65536", "m:64")
    v100, p100 = (values(one, machine)["f_peak_int32"] for machine in ("V100", "P100"))
    # Three instructions of 16 bits for each product, and fewer units at a lower clock.
    assert p100 / v100 == pytest.approx(3 * 80 * 1.38 / (56 * 1.303), rel=0.1)


@pytest.mark.parametrize(
    ("feature", "fact"),
    [("f_peak_l2", "l2_bandwidth"), ("f_peak_group", "group_start_rate"), ("f_peak_issue", "clock_hz")],
)
def test_a_missing_fact_is_named(feature: str, fact: str) -> None:
    lacking = replace(load_machine("V100"), **{fact: None})
    with pytest.raises(MachineError, match=fact):
        values(copy(1 << 20), lacking, [feature])


@pytest.mark.skipif(not SIMULATED.exists(), reason=f"no {SIMULATED}")
@pytest.mark.slow
def test_a_simulators_sectors_and_instructions() -> None:
    machine, name = load_machine("GPGPU-Sim-QV100-20SM"), "gpgpusim_20sm"
    with SIMULATED.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["device"] == name and "cal" in row["role"]]
    assert len(rows) == 28
    deviations = []
    for row in rows:
        one = kernel(*row["tags"].split())
        found = values(one, machine, ["f_vol_l2_l1_load", "f_vol_l2_l1_store", "f_peak_issue"])
        assert found["f_vol_l2_l1_load"] / 32 == pytest.approx(int(row["l2_read_sectors"]))
        assert found["f_vol_l2_l1_store"] / 32 == pytest.approx(int(row["l2_write_sectors"]))
        # The busiest unit's instructions, as if all had as many.
        busiest = ceil(int(row["groups"]) / 20) * 20 / int(row["groups"])
        issued = found["f_peak_issue"] * 20 * 4 * machine.clock_hz / busiest
        # Short kernels are mostly the arithmetic of addresses, which PTX spells out.
        if int(row["warp_instructions"]) > 90_000:
            deviations.append(abs(np.log(issued / int(row["warp_instructions"]))))
    assert len(deviations) > 10
    assert np.median(deviations) < np.log(1.25)
