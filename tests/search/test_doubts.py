"""Doubts about variants' predictions: those that the calibration has of each kernel alone, told where it is ranked."""

from dataclasses import replace

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model, VariantSpace, prune, rank, source_kernel, tune, using_machine
from perflex.errors import DoubtfulPredictionWarning, MachineError
from perflex.search.variant_doubts import doubt_lines
from perflex.testing import FakeDevice
from support.fitted import fitted
from support.html_structure import checked
from support.source_kernels import axpy
from support.spaces_for_tests import scaled, small_space

MODEL = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_mul * f_op_float32_mul")
SIZES = {"n": 4096}
LIMITED = {"name": "some GPU", "kind": "gpu", "max_work_group_size": 32, "sub_group_size": 32}


@pytest.fixture(scope="module")
def calibration():
    """Of kernels with up to 300 products, on a device with work-groups of up to 32 work-items."""
    rows = np.array([[1e-6 + 1e-9 * muls, 1.0, muls] for muls in (50.0, 100.0, 150.0, 200.0, 250.0, 300.0)])
    labels = tuple(f"k{number}(n=1)" for number in range(len(rows)))
    table = FeatureTable("f_cl_wall_time", tuple(MODEL.all_features()), labels, rows, groups=labels)
    return replace(fitted(MODEL, table), device=LIMITED)


def alone(calibration, kernel):
    return calibration.doubts(kernel, SIZES)


def test_a_ranking_has_the_doubts_of_each_kernel(calibration):
    kernels = {f"{lsize}x{repeats}": scaled(lsize=lsize, repeats=repeats) for lsize in (32, 64) for repeats in (1, 4)}
    with pytest.warns(DoubtfulPredictionWarning, match="^3 of 4 predictions are doubtful: .*the device cannot run it"):
        ranking = rank(kernels, calibration, SIZES)
    doubts = {place.name: place.doubts for place in ranking}
    assert doubts == {name: alone(calibration, kernel) for name, kernel in kernels.items()}
    # 128 sub-groups with 1 or 4 products each: more than 300, and of larger leverage; or too large work-groups.
    assert [len(doubts[name]) for name in ("32x1", "32x4", "64x1", "64x4")] == [0, 2, 1, 3]
    assert all(str(place).endswith("(doubtful)") == bool(place.doubts) for place in ranking)
    shown = [text for _, text in checked(ranking._repr_html_()).notices]
    assert shown == [f"Warning: doubtful: {line}" for line in ranking.doubt_lines]
    assert len(shown) == 3


def test_a_pruning_has_the_doubts_of_kept_variants_and_the_range_of_the_others(calibration, tmp_path):
    with pytest.warns(DoubtfulPredictionWarning, match="of 9 predictions"):
        found = prune(small_space(), calibration, SIZES, keep=4)
    for variant in found:
        own = alone(calibration, scaled(**variant.settings))
        assert variant.doubts == (own if variant.kept else tuple(text for text in own if "cannot run" not in text))
    assert any("cannot run" in text for variant in found.kept for text in variant.doubts)
    assert all(f"  doubtful: {line}" in repr(found) for line in found.doubt_lines)
    assert [row["doubts"] for row in found.table().records()] == [list(variant.doubts) for variant in found]
    notices = [text for _, text in checked(found._repr_html_()).notices]
    assert notices == [f"Warning: doubtful: {line}" for line in found.doubt_lines]


def test_tuning_says_what_its_start_is_worth(calibration):
    device = FakeDevice(lambda _label, _sizes: 1e-3)
    with pytest.warns(DoubtfulPredictionWarning, match="starts from doubtful predictions: larger than all"):
        found = tune(small_space(), SIZES, calibration=calibration, device=device)
    assert "f_op_float32_mul is 3.41 times the largest" in found.doubts[0]  # 1024 of 300
    assert f"doubtful start: {found.doubts[0]}" in repr(found)


def test_a_device_without_samples_is_said_of_every_variant():
    calibration = Calibration.load("general_gpu")
    kernels = {str(items): axpy(items) for items in (32, 64)}
    with pytest.warns(DoubtfulPredictionWarning, match="^2 of 2 predictions are doubtful: no sample of this device"):
        ranking = rank(kernels, calibration, {"n": 4096}, machine="A100-40GB")
    for place in ranking:
        assert place.doubts == calibration.doubts(kernels[place.name], {"n": 4096}, machine="A100-40GB")
    assert len(ranking.doubt_lines) == 1


@pytest.mark.parametrize(("update", "told"), [("= j", True), ("+= 1", False)])
def test_work_of_few_sub_groups_is_doubted_on_any_gpu_with_a_machine_file(update, told):
    """The calibration for any GPU knows no limits of a device, but what kind the machine is of, and waits for loads."""
    text = "__global__ void f(float *b, int n) { if (blockIdx.x == 0) for (int j = 0; j < n; ++j) b[j] %s; }"
    kernel, calibration = source_kernel(text % update, "f", local=64, groups=4096), Calibration.load("general_gpu")
    found = calibration.doubts(kernel, {"n": 1 << 18}, machine="A100-40GB")
    what = "2 of 8192 sub-groups execute line 1, but the model shares their work out"
    assert any(what in each for each in found) == told


MIXED = "calibrated on H100-SXM, predicted with facts of T4"


def test_facts_of_another_machine_are_told():
    calibration, kernel, sizes = Calibration.load("general_gpu_h100_cuda"), axpy(64), {"n": 1 << 20}
    for machine, mixed in (("T4", True), ("H100-SXM", False), (None, False), ("NVIDIA H100 80GB HBM3", False)):
        assert (MIXED in calibration.doubts(kernel, sizes, machine=machine)) == mixed
    with pytest.warns(DoubtfulPredictionWarning, match=MIXED):
        calibration.predict(kernel, sizes, machine="T4")
    with pytest.warns(DoubtfulPredictionWarning, match=MIXED):
        assert MIXED in calibration.predict_interval(kernel, sizes, machine="T4").doubts
    space = VariantSpace(axpy, {"items": (32, 64)})
    with pytest.warns(DoubtfulPredictionWarning, match=MIXED):
        assert all(MIXED in variant.doubts for variant in prune(space, calibration, sizes, machine="T4"))
    device = FakeDevice(lambda _label, _sizes: 1e-3)
    with pytest.warns(DoubtfulPredictionWarning, match=MIXED):
        assert MIXED in tune(space, sizes, calibration=calibration, machine="T4", device=device).doubts


@pytest.mark.parametrize(("machine", "told"), [("W7800", True), ("V100", False)])
def test_another_maker_than_that_of_all_sources_is_told(machine, told):
    doubts = Calibration.load("general_gpu").doubts(axpy(64), {"n": 1 << 20}, machine=machine)
    assert any("only times of NVIDIA's devices are behind it" in doubt for doubt in doubts) == told


@pytest.mark.parametrize(
    ("name", "machine"), [("matmul_sq_amd_epyc_4cores_pocl", "V100"), ("general_gpu_h100_cuda", "Gold-6248")]
)
def test_a_machine_of_another_kind_is_refused(name, machine):
    calibration = Calibration.load(name)
    with pytest.raises(MachineError, match=f"^{machine} is a .PU, and the calibration is of .*, a .PU; name a machine"):
        calibration.predict(scaled(lsize=32, repeats=1), SIZES, machine=machine)
    with using_machine(machine), pytest.raises(MachineError, match="and the calibration is of"):
        rank([scaled(lsize=32, repeats=1)], calibration, SIZES)


@pytest.mark.parametrize(
    ("doubts", "lines"),
    [
        ([["x 1"], ["x 1"], ["x 1"]], ["x 1"]),
        ([["x 1"], ["x 2"], ["y"]], ["a: x 1 (and 1 more alike)", "c: y"]),
        ([[], ["y"], ["y"]], ["b: y (and 1 more alike)"]),
        ([list("rstuvw"), [], []], ["a: r", "a: s", "a: t", "a: u", "a: v", "and 1 more"]),
        ([[], [], []], []),
    ],
)
def test_doubts_in_a_few_lines(doubts, lines):
    assert doubt_lines(["a", "b", "c"], doubts) == lines


def test_ranking_names_assumed_facts_as_prediction_does():
    text = "__global__ void f(double *a, double *b, int n) { int i = blockIdx.x * 64 + threadIdx.x; if (i < n) %s }"
    kernel = source_kernel(text % "a[i] = b[i];", "f", local=64, groups="ceil_div(n, 64)")
    calibration = Calibration.load("general_gpu")
    with pytest.warns(DoubtfulPredictionWarning, match="group_start_rate of RTX-4070"):
        (place,) = rank({"f": kernel}, calibration, {"n": 200_000}, machine="RTX-4070")
    assert set(place.doubts) == set(calibration.doubts(kernel, {"n": 200_000}, machine="RTX-4070"))
