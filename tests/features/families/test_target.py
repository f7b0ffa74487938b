"""A feature's value is a function of its arguments: no context, no thread, no order of calls changes it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from perflex import load_machine, using_machine
from perflex.errors import MachineError, PerflexWarning
from perflex.features import SizedKernel, Target, extract_scop, parse_feature, register_feature, unregister_feature
from perflex.features.many import count_rows
from perflex.machines.resources import Resources
from sample_kernels import matmul, pointwise

SIZES = {"n": 512}


@pytest.mark.parametrize("identifier", ["f_waves", "f_vol_dram_load", "f_ecm_vol_l2", "f_registers"])
def test_the_machine_in_the_context_changes_no_value(identifier: str) -> None:
    scop, feature = extract_scop(matmul(prefetch=False)), parse_feature(identifier)
    name = "clx" if "ecm" in identifier else "V100"
    target = Target(machine=load_machine(name), registers=64)
    value = feature.value(scop, SIZES, target)
    with using_machine("rome" if "ecm" in identifier else "K20", registers=128):
        assert feature.value(scop, SIZES, target) == value
        if identifier != "f_registers":
            with pytest.raises(MachineError, match=identifier):
                feature.value(scop, SIZES, Target())


def test_rows_are_counted_for_the_target_they_are_sent_with() -> None:
    features = [parse_feature("f_waves"), parse_feature("f_registers")]
    rows = [SizedKernel(matmul(prefetch=False), SIZES, label) for label in ("few", "many")]
    built = [Resources(registers=32), Resources(registers=128)]
    target = Target(machine=load_machine("V100"))
    here = count_rows(features, rows, target, resources=built)
    with ThreadPoolExecutor(2) as pool, using_machine("K20"):
        assert count_rows(features, rows, target, pool, resources=built) == here
    assert [row.values for row in here] == [(1024 / (8 * 80), 32.0), (1024 / (2 * 80), 128.0)]


def test_a_users_feature_takes_kernel_and_sizes_only() -> None:
    @register_feature("f_statements_of_mine", unit="statement")
    def _(scop, sizes):
        return len(scop.statements) * sizes["n"]

    try:
        scop, feature = extract_scop(matmul(prefetch=False)), parse_feature("f_statements_of_mine")
        assert feature.value(scop, SIZES, Target()) == len(scop.statements) * 512
        assert feature.amount(scop, SIZES, Target()) is None
    finally:
        unregister_feature("f_statements_of_mine")


def test_a_built_kernel_that_spills_is_told() -> None:
    scop, machine = extract_scop(pointwise("x[i] * x[i]")), load_machine("A100-40GB")
    target = Target(32, machine, resources=Resources(registers=64, spill_bytes=16))
    with pytest.warns(PerflexWarning, match="spills 16 B of each work-item"):
        parse_feature("f_txn_global").value(scop, {"n": 4096}, target)
