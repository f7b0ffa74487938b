"""What is counted for a device that has no times of its own: its machine's sub-groups, not those of the sources."""

import math
from dataclasses import replace

import numpy as np
import pytest

from perflex import (
    Calibration,
    FeatureTable,
    Model,
    PerflexWarning,
    TimedKernel,
    TimesTable,
    calibrate,
    gather_feature_values,
    rank,
    source_kernel,
    transfer,
    using_machine,
)
from perflex.calibration.row_predictions import known_as
from perflex.testing import FakeDevice
from support.fitted import fitted
from support.source_kernels import axpy
from support.spaces_for_tests import scaled

pytestmark = pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")

MUL = "f_op_float32_mul"
MODEL = Model("f_cl_wall_time", f"p_launch * f_sync_kernel_launch + p_mul * {MUL}")
KERNEL, SIZES = scaled(lsize=64, repeats=3), {"n": 4096}
# Three products of each element, in sub-groups of 64 work-items, and of 32.
OF_64, OF_32 = 4096 / 64 * 3, 4096 / 32 * 3


def source(machine, slower):
    products = np.arange(1.0, 9.0) * 1e6
    values = np.column_stack([slower * (1e-6 + 1e-12 * products), np.ones(8), products])
    table = FeatureTable("f_cl_wall_time", tuple(MODEL.all_features()), tuple(f"k{n}" for n in range(8)), values)
    return replace(fitted(MODEL, replace(table, machine=machine)), device={"name": machine})


SOURCES = [source("V100", 1.0), source("T4", 2.5)]


def test_without_samples_sub_groups_are_the_machines():
    found = transfer(SOURCES, machine="MI210")
    assert found.sub_group_size == 64
    assert found.feature_values(KERNEL, SIZES)[MUL] == OF_64
    assert found.predict(KERNEL, SIZES) == pytest.approx(found.evaluate({"f_sync_kernel_launch": 1, MUL: OF_64}))


def test_without_a_machine_it_is_of_none():
    found = transfer(SOURCES)
    assert (found.machine, found.device) == ("", {})
    assert found.feature_values(KERNEL, SIZES)[MUL] == OF_32
    assert found.feature_values(KERNEL, SIZES, machine="MI210")[MUL] == OF_64


def test_samples_are_counted_for_the_machine_that_is_named():
    times = TimesTable([TimedKernel(KERNEL, SIZES, 1e-5)])
    found = transfer(SOURCES, times, machine="MI210")
    assert found.table.column(MUL) == [OF_64]
    assert (found.sub_group_size, found.feature_values(KERNEL, SIZES)[MUL]) == (64, OF_64)


@pytest.mark.parametrize(("machine", "told"), [("T4", True), ("V100", False), (None, False)])
def test_times_of_one_device_with_facts_of_another_are_told(machine, told, recwarn):
    times = TimesTable([TimedKernel(KERNEL, SIZES, 1e-5)], device="Tesla V100-SXM2-16GB")
    assert gather_feature_values(["f_cl_wall_time", MUL], times=times).column(MUL) == [OF_32]
    with using_machine(machine):
        gather_feature_values(["f_cl_wall_time", MUL], times=times)
    texts = [str(one.message) for one in recwarn if issubclass(one.category, PerflexWarning)]
    text = "the times are of Tesla V100-SXM2-16GB, and features are counted with facts of T4; name its own machine"
    assert texts == [text] * told


@pytest.mark.parametrize(("feature", "told"), [("f_waves", True), (MUL, False)])
def test_a_device_that_is_measured_with_facts_of_another_is_told(feature, told, recwarn):
    device = FakeDevice(lambda _label, _sizes: 1e-3, name="Tesla V100-SXM2-16GB")
    with using_machine("T4"):
        gather_feature_values(["f_cl_wall_time", feature], [(KERNEL, SIZES)], device=device)
    assert [str(one.message) for one in recwarn if "facts of T4; name its own" in str(one.message)] == [
        "the times are of Tesla V100-SXM2-16GB, and features are counted with facts of T4; name its own machine"
    ] * told


TWO_SIZES = """__kernel void added(int n, int m, __global float *x) {
  for (int j = 0; j < m; j++) x[get_global_id(0)] *= 3.0f;
}"""


def test_what_sources_have_timed_is_known_whatever_sizes_are_of_and_in_whichever_order():
    kernel = source_kernel(TWO_SIZES, "added", local=32, global_size="n")
    rows = [({"n": 4096, "m": m}, seconds) for m, seconds in ((8, 3e-6), (16, 9e-6), (64, 2e-5))]
    sources = [
        calibrate(MODEL, times=TimesTable([TimedKernel(kernel, sizes, slower * t) for sizes, t in rows], device=name))
        for name, slower in (("one", 1.0), ("two", 1.5))
    ]
    found = transfer(sources, TimesTable([TimedKernel(kernel, rows[0][0], 4e-6)], device="third"))
    one, other = (found.predict(kernel, sizes) for sizes, _ in rows[:2])
    # As for the label, and not as the model alone has it.
    assert "added(n=4096, m=16)" in found.transferred.kernels
    assert other != pytest.approx(found.evaluate(found.feature_values(kernel, rows[1][0])), rel=1e-3)
    for sizes in ({"n": 4096.0, "m": np.float32(16)}, {"m": np.int64(16), "n": 4096}):
        assert found.predict(kernel, sizes) == other
        assert rank({"added": kernel}, found, sizes)[0].predicted == other
    assert found.predict(kernel, {"m": np.array([8, 16]), "n": 4096}).tolist() == [one, other]
    assert found.predict(kernel, {"m": np.array([16]), "n": 4096}).tolist() == [other]


def test_sources_know_one_kernel_in_whichever_order_their_tables_have_its_sizes():
    kernel = source_kernel(TWO_SIZES, "added", local=32, global_size="n")
    rows = [({"n": 4096, "m": m}, seconds) for m, seconds in ((8, 3e-6), (16, 9e-6), (64, 2e-5))]

    def table(name, turned, count=3):
        ordered = [(dict(sorted(sizes.items())) if turned else sizes, seconds) for sizes, seconds in rows[:count]]
        return TimesTable([TimedKernel(kernel, *row) for row in ordered], name)

    def found(*turned):
        one, two = (calibrate(MODEL, times=table(*which)) for which in zip(("one", "two"), turned, strict=False))
        made = transfer([one, two], table("three", turned[2], 1))
        return list(made.transferred.kernels), made.predict(kernel, rows[1][0])

    wanted = found(False, False, False)
    assert len(wanted[0]) == 3
    assert found(False, True, True) == found(False, True, False) == wanted


@pytest.mark.parametrize(("alpha", "known"), [(0.5, True), (np.float32(0.5), True), (2, False), (math.nan, False)])
def test_what_sources_have_timed_with_a_scalar_is_known_for_that_scalar(alpha, known):
    kernel = source_kernel(TWO_SIZES.replace("int m,", "int m, float alpha,"), "added", local=32, global_size="n")
    rows = [({"n": 4096, "m": m, "alpha": 0.5}, seconds) for m, seconds in ((8, 3e-6), (16, 9e-6), (64, 2e-5))]
    rows += [({"n": 4096, "m": 16, "alpha": 0}, 9e-5)]
    table = TimesTable([TimedKernel(kernel, sizes, t) for sizes, t in rows], device="one")
    prior = transfer([calibrate(MODEL, times=table)]).transferred
    label, _ = known_as(prior, kernel, {"m": 16, "n": 4096, "alpha": alpha})[0]
    assert label == ("added(n=4096, m=16, alpha=0.5)" if known else f"added(m=16, n=4096, alpha={alpha})")


def test_the_calibration_for_any_gpu_counts_sub_groups_of_the_gpu():
    calibration, kernel, sizes = Calibration.load("general_gpu"), axpy(64), {"n": 1 << 20}
    features = calibration.model.input_features()
    with using_machine("MI50"):
        of_64, of_32 = (gather_feature_values(features, [(kernel, sizes)], sub_group_size=size) for size in (64, 32))
    wanted = {name: float(column[0]) for name, column in of_64.columns(features).items()}
    assert calibration.feature_values(kernel, sizes, machine="MI50") == wanted
    assert calibration.predict(kernel, sizes, machine="MI50") == pytest.approx(calibration.evaluate(wanted))
    # Half as many sub-groups issue instructions.
    assert wanted["f_peak_issue"] == of_32.column("f_peak_issue")[0] / 2


def test_what_no_device_measures_has_the_machines_sub_groups():
    for machine, products in ((None, OF_32), ("V100", OF_32), ("MI210", OF_64)):
        with using_machine(machine):
            assert gather_feature_values([MUL], [(KERNEL, SIZES)]).column(MUL) == [products]
            seconds = MODEL.eval_with_kernel({"p_launch": 0.0, "p_mul": 1.0}, KERNEL, SIZES)
        assert seconds == products
