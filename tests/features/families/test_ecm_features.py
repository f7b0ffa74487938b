"""Features of cache volumes and cycles: identifiers, values, and use in models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perflex import Model, calibrate, estimate_ecm, load_machine, using_machine
from perflex.errors import MachineError
from perflex.features import Target, count_features, extract_scop, kernel_feature_values, parse_feature
from perflex.testing import FakeDevice
from sample_kernels import matmul
from uipick import ALL_GENERATORS, KernelCollection

VOLUMES = tuple(f"f_ecm_vol_{level}" for level in ("l1", "l2", "l3", "mem"))
CYCLES = tuple(f"f_ecm_cycles_{level}" for level in ("l1", "l2", "l3", "mem"))


def test_values_are_those_of_the_estimate_per_run() -> None:
    kernel, sizes = matmul(prefetch=True), {"n": 2048}
    found = kernel_feature_values((*VOLUMES, *CYCLES), kernel, sizes, machine="rome")
    estimate = estimate_ecm(extract_scop(kernel), sizes, "rome")
    for level, volume, cycles in zip(estimate.levels, VOLUMES, CYCLES, strict=True):
        assert found[volume] == level.launch_bytes > 0
        assert found[cycles] == level.launch_cycles > 0


def test_units_are_bytes_and_cycles() -> None:
    assert {parse_feature(name).unit for name in VOLUMES} == {"B"}
    assert {parse_feature(name).unit for name in CYCLES} == {"cycle"}


def test_arrays_of_sizes_have_one_value_each() -> None:
    scop = extract_scop(matmul(prefetch=True))
    sizes = np.array([64, 256, 1024])
    feature, target = parse_feature("f_ecm_vol_l2"), Target(machine=load_machine("clx"))
    together = feature.value(scop, {"n": sizes}, target)
    alone = [feature.value(scop, {"n": int(n)}, target) for n in sizes]
    assert together == pytest.approx(alone)


def test_each_machine_has_its_own_values() -> None:
    kernel, sizes = matmul(prefetch=False), {"n": 1024}
    found = {name: kernel_feature_values(VOLUMES, kernel, sizes, machine=name) for name in ("clx", "rome")}
    assert found["clx"]["f_ecm_vol_l1"] == pytest.approx(found["rome"]["f_ecm_vol_l1"])
    larger = replace(load_machine("clx"), levels=(replace(load_machine("clx").levels[0], size_bytes=2**27),))
    alone = kernel_feature_values(VOLUMES[:1] + VOLUMES[3:], kernel, sizes, machine=larger)
    assert alone["f_ecm_vol_mem"] == 0.0 != found["clx"]["f_ecm_vol_l2"]


def test_what_is_missing_is_an_error() -> None:
    kernel, sizes = matmul(prefetch=True), {"n": 512}
    with pytest.raises(MachineError, match="f_ecm_vol_l2 needs a machine"):
        kernel_feature_values(("f_ecm_vol_l2",), kernel, sizes)
    with pytest.raises(MachineError, match=r"no level l9 .* l1, l2, l3, mem"):
        kernel_feature_values(("f_ecm_vol_l9",), kernel, sizes, machine="clx")
    with pytest.raises(MachineError, match="V100 has no cache levels"):
        kernel_feature_values(("f_ecm_vol_l2",), kernel, sizes, machine="V100")
    clx = load_machine("clx")
    bare = replace(clx, levels=tuple(replace(level, load_bytes_per_cycle=None) for level in clx.levels))
    with pytest.raises(MachineError, match="no load and store_bytes_per_cycle of l2"):
        kernel_feature_values(("f_ecm_cycles_l2",), kernel, sizes, machine=bare)


def test_a_kernel_that_touches_nothing_moves_nothing() -> None:
    (kernel, *_) = KernelCollection(ALL_GENERATORS).generate_kernels(["empty"])
    assert kernel_feature_values(VOLUMES, kernel.kernel, kernel.sizes, machine="clx") == dict.fromkeys(VOLUMES, 0.0)


def test_residency_is_not_counted_on_a_cpu() -> None:
    with using_machine("clx"):
        names = [item.identifier for item in count_features(extract_scop(matmul(prefetch=True)), {"n": 512})]
    assert names
    assert "f_occupancy" not in names


def test_a_model_of_cache_volumes_is_calibrated_on_the_machine_that_is_named() -> None:
    tags = ["gmem_working_set", "dtype:float32"]
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(tags)[::3]
    kernels += KernelCollection(ALL_GENERATORS).generate_kernels(["empty"])[:2]
    model = Model(
        "f_cl_wall_time_fake",
        "p_launch * f_sync_kernel_launch + p_l1 * f_ecm_cycles_l1 + p_l2 * f_ecm_vol_l2 + p_l3 * f_ecm_vol_l3",
    )
    true = {"p_launch": 5e-6, "p_l1": 4e-10, "p_l2": 1 / 90e9, "p_l3": 1 / 40e9}
    with using_machine("rome"):
        seconds = {kernel.name: model.eval_with_kernel(true, kernel, {}) for kernel in kernels}
    made = calibrate(model, kernels, device=FakeDevice(lambda label, _: seconds[label], name="x"), machine="rome")
    assert made.machine == "EPYC-7452"
    assert {name: made.params[name] for name in true} == pytest.approx(true, rel=1e-5)
    units = {parameter.name: parameter.unit for parameter in made.fit.parameters}
    assert (units["p_l1"], units["p_l3"]) == ("s per cycle", "s per B")
