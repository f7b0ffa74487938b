"""Composition of ECM contributions: the reference's rows, saturation, domains, and the same in model strings."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perflex import (
    FeatureTable,
    Model,
    ecm_model,
    fit_model,
    in_core_cycles,
    load_machine,
    using_machine,
)
from perflex.errors import MachineError, UnsupportedKernelError
from support.ecm_composition import compose, on_cores, saturated, saturation_cores
from uipick import ALL_GENERATORS, KernelCollection

REFERENCE = Path(__file__).parents[3] / "shared" / "data" / "ecm_reference" / "ecm_single_core_osaca_gcc.csv"
MACHINES = {"clx": "Gold-6248", "rome": "EPYC-7452"}
LEVELS = {"l1": "T_RegL1", "l2": "T_L2", "l3": "T_L3"}


def reference_rows() -> list[dict[str, str]]:
    if not REFERENCE.is_file():
        pytest.skip(f"the reference data are not there ({REFERENCE})")
    with REFERENCE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def parts(row: dict[str, str]) -> tuple[float, dict[str, float]]:
    times = {level: float(row[column]) for level, column in LEVELS.items()}
    # In the reference, the penalty is part of the memory's time.
    return float(row["T_comp"]), times | {"mem": float(row["T_MEM"]) + float(row["T_penalty"])}


@pytest.mark.machine
def test_every_row_of_the_reference_recomputes_from_its_parts() -> None:
    rows = reference_rows()
    assert len(rows) == 18
    for row in rows:
        in_core, times = parts(row)
        found = compose(load_machine(MACHINES[row["machine"]]), in_core, times)
        assert found == pytest.approx(float(row["T_ECM"]), abs=0.011), row


@pytest.mark.machine
def test_every_row_of_the_reference_recomputes_from_a_model_string() -> None:
    for row in reference_rows():
        machine = load_machine(MACHINES[row["machine"]])
        in_core, times = parts(row)
        model = ecm_model(MACHINES[row["machine"]], in_core=repr(in_core))
        assert not model.params()
        values = {f"f_ecm_cycles_{level}": value for level, value in times.items()}
        seconds = model.evaluate({}, {name: values[name] for name in model.input_features()})
        assert seconds * machine.clock_hz == pytest.approx(float(row["T_ECM"]), abs=0.011)


def test_the_hypotheses_differ() -> None:
    times = {"l1": 1.0, "l2": 2.0, "l3": 4.0, "mem": 8.0}
    assert compose(load_machine("Gold-6248"), 3.0, times) == 15.0
    assert compose(load_machine("EPYC-7452"), 3.0, times) == 8.0
    assert compose(load_machine("EPYC-7452"), 9.0, times) == 9.0
    first, second, last = load_machine("EPYC-7452").levels
    mixed = replace(load_machine("EPYC-7452"), levels=(first, replace(second, overlap="sum"), last))
    assert compose(mixed, 0.0, times) == 10.0  # max(1, 2 + max(4, 8))
    many = {level: np.array([value, 20.0]) for level, value in times.items()}
    np.testing.assert_array_equal(compose(mixed, 0.0, many), [10.0, 40.0])


def test_missing_times_are_named() -> None:
    with pytest.raises(MachineError, match="no time is given for l3, mem of machine Gold-6248"):
        compose(load_machine("Gold-6248"), 1.0, {"l1": 1.0, "l2": 2.0})
    with pytest.raises(MachineError, match="has no cache levels"):
        compose(load_machine("V100"), 1.0, {})


def test_cores_share_the_work_until_the_memory_limits() -> None:
    """Not as Equation 7a is printed: that gives T_mem at once, and T(1)/cores from the saturation point on."""
    assert saturation_cores(40.0, 10.0) == 4
    cores = np.array([1, 2, 3, 4, 5, 20])
    np.testing.assert_allclose(saturated(40.0, 10.0, cores), [40, 20, 40 / 3, 10, 10, 10])


def test_domains_fill_one_after_the_other() -> None:
    rome = load_machine("EPYC-7452")  # 4 domains of 8 cores, together 66 % efficient
    assert on_cores(rome, 40.0, 10.0, 1) == 40
    assert on_cores(rome, 40.0, 10.0, 8) == 10
    assert on_cores(rome, 40.0, 10.0, 32) == pytest.approx(10 / 4 / 0.66)
    # Two full domains and two cores more: speeds 1/10, 1/10 and 1/20.
    assert on_cores(rome, 40.0, 10.0, 18) == pytest.approx(1 / (0.25 * 0.66))
    for wrong in (0, 33):
        with pytest.raises(MachineError, match="has 32 cores"):
            on_cores(rome, 40.0, 10.0, wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cores"),
    [*(("Gold-6248-SNC-off", n) for n in (1, 3, 20)), *(("EPYC-7452", n) for n in (1, 3, 8, 16, 18, 32))],
)
def test_the_model_string_is_the_composition(name: str, cores: int) -> None:
    machine = load_machine(name)
    times = {"l1": 60.0, "l2": 50.0, "l3": 130.0, "mem": 200.0}
    values = {f"f_ecm_cycles_{level}": value for level, value in times.items()}
    model = ecm_model(machine, cores=cores, in_core="3 * f_thread_items")
    single = compose(machine, 300.0, times)
    expected = on_cores(machine, single, 200.0, cores) / machine.clock_hz
    assert model.evaluate({}, values | {"f_thread_items": 100.0}) == pytest.approx(expected, rel=1e-12)


def test_saturation_in_model_strings() -> None:
    exact = Model("f_cl_wall_time", "max(p_t * f_thread_items / 4, p_mem * f_thread_groups)")
    values = {"f_thread_items": np.array([8.0, 8.0]), "f_thread_groups": np.array([1.0, 3.0])}
    np.testing.assert_allclose(exact.evaluate({"p_t": 1.0, "p_mem": 1.0}, values), [2, 3])
    assert exact.nonsmooth_calls()
    smooth = Model("f_cl_wall_time", "smooth_max(p_t * f_thread_items / 4, p_mem * f_thread_groups, 30)")
    assert smooth.nonsmooth_calls() == []
    np.testing.assert_allclose(smooth.evaluate({"p_t": 1.0, "p_mem": 1.0}, values), [2, 3], rtol=1e-3)


def test_smooth_saturation_is_recovered_by_a_fit() -> None:
    model = Model("f_cl_wall_time", "smooth_max(p_t * f_thread_items / 4, p_mem * f_thread_groups, 9)")
    items = np.geomspace(1e3, 1e6, 13)
    groups = np.geomspace(1e4, 1e5, 13)
    truth = {"p_t": 2e-9, "p_mem": 1e-9}
    seconds = model.evaluate(truth, {"f_thread_items": items, "f_thread_groups": groups})
    table = FeatureTable(
        "f_cl_wall_time",
        ("f_cl_wall_time", "f_thread_items", "f_thread_groups"),
        tuple(f"k{index}" for index in range(13)),
        np.column_stack([seconds, items, groups]),
    )
    found = fit_model(model, table)
    assert dict(found) == pytest.approx(truth, rel=1e-6)


def kernel(*tags: str):
    return KernelCollection(ALL_GENERATORS).generate_kernels(tags)[0]


def test_in_core_time_counts_slots_of_floating_point_units() -> None:
    """A step of implementation A's last kernel is one multiply-add per point: 8 in a cycle on a core of ROME."""
    rome = load_machine("EPYC-7452")
    up = kernel("pirk", "kernel:up", "dtype:float64", "lsize_0:8", "lsize_1:4", "nx:64", "ny:64", "nz:8")
    text = in_core_cycles(rome, up, sub_group_size=1)
    model = Model("f_cl_wall_time", text)
    assert model.eval_with_kernel({}, up, up.sizes, sub_group_size=1) == 64 * 64 * 8 / 8
    wider = Model("f_cl_wall_time", in_core_cycles(rome, up, sub_group_size=32))
    assert wider.eval_with_kernel({}, up, up.sizes, sub_group_size=32) == 64 * 64 * 8 / 8


def test_the_model_of_a_kernel_is_its_estimate_composed() -> None:
    """All of it from a kernel and a machine: volumes and cycles of the estimator, Equations 6 and 7, no parameter."""
    from perflex import estimate_ecm
    from perflex.features import extract_scop

    rome = load_machine("EPYC-7452")
    step = kernel("pirk", "kernel:rhs", "dtype:float64", "lsize_0:32", "lsize_1:4", "nx:256", "ny:256", "nz:64")
    model = ecm_model(rome, cores=4, in_core=in_core_cycles(rome, step))
    with using_machine(rome):
        seconds = model.eval_with_kernel({}, step, step.sizes, sub_group_size=32)
    levels = estimate_ecm(extract_scop(step.kernel), step.sizes, rome).levels
    cycles = {name: level.launch_cycles for name, level in zip(("l1", "l2", "l3", "mem"), levels, strict=True)}
    # Each stage adds six neighbours up: five additions, one multiplication, one multiply-add; 8 in a cycle.
    in_core = 4 * 7 * 256 * 256 * 64 / 8
    expected = on_cores(rome, compose(rome, in_core, cycles), cycles["mem"], 4) / rome.clock_hz
    assert seconds == pytest.approx(expected, rel=1e-12)


def test_unknown_throughput_is_no_guess() -> None:
    root = kernel("flops_sqrt_pattern", "dtype:float32")
    with pytest.raises(UnsupportedKernelError, match=r"f_op_float32_sqrt.*supply its in-core time"):
        in_core_cycles(load_machine("EPYC-7452"), root)
    assert in_core_cycles(load_machine("EPYC-7452"), kernel("gmem_copy", "dtype:float32", "width:1")) == "0"
