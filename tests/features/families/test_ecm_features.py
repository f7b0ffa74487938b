"""Features of cache volumes and cycles: identifiers, values, and use in models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perflex import Model, calibrate, estimate_ecm, load_machine, using_machine
from perflex.errors import MachineError
from perflex.features import extract_scop, kernel_feature_values
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
        made = calibrate(model, kernels, device=FakeDevice(lambda label, _: seconds[label], name="x"))
    assert made.machine == "EPYC-7452"
    assert {name: made.params[name] for name in true} == pytest.approx(true, rel=1e-5)
    units = {parameter.name: parameter.unit for parameter in made.fit.parameters}
    assert (units["p_l1"], units["p_l3"]) == ("s per cycle", "s per B")
