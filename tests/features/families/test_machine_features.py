"""Features that need a machine: waves, volumes, cycles of caches, and who gets which machine."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import ceil
from multiprocessing import get_context

import numpy as np
import pytest

from perflex import (
    Calibration,
    Model,
    RunOptions,
    calibrate,
    estimate_ecm,
    gather_feature_values,
    load_machine,
    rank,
    using_machine,
)
from perflex.errors import DoubtfulPredictionWarning, MachineError, UnsupportedKernelError
from perflex.features import count_features, extract_scop, kernel_feature_values
from perflex.testing import FakeDevice
from sample_kernels import matmul
from uipick import ALL_GENERATORS, KernelCollection

RESIDENCY = ("f_waves", "f_wave_quantisation", "f_occupancy", "f_su_imbalance")


def stencils(sizes="64,128", lsize="32,64"):
    tags = ["stencil3d", "points:7", "variant:plain", "chunk:1", "dtype:float64", "groups_fit:True", "lsize_1:4",
            "lsize_2:1", f"lsize_0:{lsize}", f"nx:{sizes}", "ny:64", "nz:64"]  # fmt: skip
    return KernelCollection(ALL_GENERATORS).generate_kernels(tags)


def values(kernel, sizes, machine, names=RESIDENCY):
    return kernel_feature_values(names, kernel, sizes, machine=machine)


@pytest.mark.parametrize("n", [16, 512, 4096, 4112])
def test_waves_of_a_tiled_matrix_product(n):
    # 16 x 16 work-items and two tiles of 16 x 16 floats: 8 work-groups on each of 80 compute units.
    found = values(matmul(prefetch=True), {"n": n}, "V100")
    waves = (n // 16) ** 2 / (8 * 80)
    assert found["f_waves"] == pytest.approx(waves)
    assert found["f_wave_quantisation"] == pytest.approx(ceil(waves) / waves)
    assert found["f_occupancy"] == 1.0
    assert found["f_su_imbalance"] == pytest.approx(1 + 1 / ceil(waves))


def test_a_count_of_everything_has_the_residency_where_a_machine_is_chosen():
    scop = extract_scop(matmul(prefetch=False))
    without = [entry.identifier for entry in count_features(scop, {"n": 512})]
    with using_machine("V100"):
        assert [entry.identifier for entry in count_features(scop, {"n": 512})] == [*without, *RESIDENCY]
        assert [entry.identifier for entry in count_features(scop)] == without


MODEL = Model("f_cl_wall_time_fake", "p_launch * f_sync_kernel_launch + p_byte * f_su_v_gm")
TRUE = {"p_launch": 5e-6, "p_byte": 1 / 160e9}


def device_of(kernels, name="Tesla K20c"):
    with using_machine("K20"):
        seconds = {k.name: MODEL.eval_with_kernel(TRUE, k, {}) for k in kernels}
    return FakeDevice(lambda label, _: seconds[label], name=name)


def test_the_devices_name_gives_the_machine_which_the_file_records(tmp_path):
    kernels = stencils("64,128,256")
    made = calibrate(MODEL, kernels, device=device_of(kernels))
    assert made.machine == "K20"
    assert made.params["p_byte"] == pytest.approx(TRUE["p_byte"], rel=1e-6)
    (byte,) = [parameter for parameter in made.fit.parameters if parameter.name == "p_byte"]
    assert (byte.unit, byte.rate_unit) == ("s per B", "B/s")
    assert byte.rate == pytest.approx(160e9, rel=1e-6)
    made.save(tmp_path / "made.yaml")
    loaded = Calibration.load(tmp_path / "made.yaml")
    assert loaded.machine == "K20"
    kernel = kernels[0]
    here = loaded.predict(kernel.kernel, kernel.sizes)
    assert here == pytest.approx(made.predict(kernel.kernel, kernel.sizes))
    with pytest.warns(DoubtfulPredictionWarning, match="calibrated on K20, predicted with facts of V100"):
        there = loaded.predict(kernel.kernel, kernel.sizes, machine="V100")
    assert there != here
    with pytest.warns(DoubtfulPredictionWarning, match="with facts of V100"):
        interval = loaded.predict_interval(kernel.kernel, kernel.sizes, machine="V100")
    assert interval.predicted == there
    assert rank(kernels[:2], loaded)[0].predicted == pytest.approx(
        min(loaded.predict(k.kernel, k.sizes) for k in kernels[:2])
    )


def test_an_unknown_device_needs_a_machine():
    kernels = stencils("64,128")
    device = device_of(kernels, name="Some GPU")
    with pytest.raises(MachineError, match="no machine is called 'Some GPU'"):
        calibrate(MODEL, kernels, device=device)
    with using_machine("K20"):
        assert calibrate(MODEL, kernels, device=device).machine == "K20"


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, partial(ProcessPoolExecutor, mp_context=get_context("spawn"))])
def test_the_machine_reaches_an_executors_workers(pool):
    kernels = stencils("64,128")
    with using_machine("K20"), pool(2) as executor:
        here = gather_feature_values(["f_waves", "f_su_v_l2"], kernels)
        there = gather_feature_values(["f_waves", "f_su_v_l2"], kernels, run=RunOptions(executor))
    assert np.array_equal(here.values, there.values)
    assert here.machine == there.machine == "K20"


def test_no_work_groups_are_refused():
    from perflex.features import scop_from_yaml

    text = """
schema: perflex-scop/2
name: empty
parameters: [n]
assumptions: "[n] -> { : n >= 0 }"
launches:
- {groups: ["floor(n/32)"], items: [32]}
arrays: []
statements: []
"""
    with pytest.raises(UnsupportedKernelError, match="no work-groups at these sizes"):
        values(scop_from_yaml(text), {"n": 5}, "V100")


VOLUMES = tuple(f"f_ecm_vol_{level}" for level in ("l1", "l2", "l3", "mem"))
CYCLES = tuple(f"f_ecm_cycles_{level}" for level in ("l1", "l2", "l3", "mem"))


def test_values_are_those_of_the_estimate_per_run():
    kernel, sizes = matmul(prefetch=True), {"n": 2048}
    found = kernel_feature_values((*VOLUMES, *CYCLES), kernel, sizes, machine="rome")
    estimate = estimate_ecm(extract_scop(kernel), sizes, "rome")
    for level, volume, cycles in zip(estimate.levels, VOLUMES, CYCLES, strict=True):
        assert found[volume] == level.launch_bytes > 0
        assert found[cycles] == level.launch_cycles > 0


def test_values_of_several_cores_are_those_of_their_estimate():
    kernel, sizes = matmul(prefetch=True), {"n": 2048}
    names = [f"{name}_cores:4" for name in (*VOLUMES, *CYCLES, "f_ecm_cycles_penalty")]
    found = kernel_feature_values(names, kernel, sizes, machine="rome")
    estimate = estimate_ecm(extract_scop(kernel), sizes, "rome", cores=4)
    assert found == {f"{name}_cores:4": value for name, value in estimate.features().items()}
    assert found["f_ecm_cycles_penalty_cores:4"] > 0
    with pytest.raises(MachineError, match="has 32 cores, not 33"):
        kernel_feature_values(["f_ecm_vol_l2_cores:33"], kernel, sizes, machine="rome")


def test_what_is_missing_is_an_error():
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


def test_a_model_of_cache_volumes_is_calibrated_on_the_machine_that_is_named():
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
        made = calibrate(model, kernels, device=FakeDevice(lambda label, _: seconds[label], name="x"))
    assert made.machine == "EPYC-7452"
    assert {name: made.params[name] for name in true} == pytest.approx(true, rel=1e-5)
    units = {parameter.name: parameter.unit for parameter in made.fit.parameters}
    assert (units["p_l1"], units["p_l3"]) == ("s per cycle", "s per B")
