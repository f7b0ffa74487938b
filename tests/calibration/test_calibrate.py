"""From measurement kernels to predictions and rankings: on a fake device with a known law, and on real ones."""

import math
from dataclasses import replace

import pytest

from perflex import Calibration, FitOptions, Model, calibrate, fit_model, gather_feature_values, rank
from perflex.devices.listing import wall_time_identifier
from perflex.errors import (
    CalibrationError,
    DoubtfulPredictionWarning,
    MeasurementError,
    MissingSizeError,
    NoMatchError,
    PerflexWarning,
)
from perflex.features import kernel_feature_values, register_feature, unregister_feature
from perflex.testing import FakeDevice
from sample_kernels import matmul
from uipick import ALL_GENERATORS, KernelCollection, tag_accesses

TRUE = {"p_launch": 4e-6, "p_group": 2e-8, "p_madd": 3e-11, "p_load": 5e-12, "p_store": 7e-12}
EXPRESSION = (
    "p_launch * f_sync_kernel_launch + p_group * f_thread_groups + p_madd * f_op_float32_madd"
    " + p_load * f_mem_access_global_float32_load + p_store * f_mem_access_global_float32_store"
)
MODEL = Model("f_cl_wall_time_fake", EXPRESSION)


def measurement_kernels():
    collection = KernelCollection(ALL_GENERATORS)
    tiles = ["dtype:float32", "groups_fit:True"]
    return [
        *collection.generate_kernels(["matmul_sq", *tiles, "n:32,64,128"]),
        *collection.generate_kernels(["flops_madd_pattern", *tiles, "lid_stride_1:64", "nelements:4096", "m:64,128"]),
        *collection.generate_kernels(
            ["gmem_pattern", *tiles, "lid_stride_1:64", "n_arrays:1,3", "nelements:4096,65536"]
        ),
        *collection.generate_kernels(["empty", "ngroups:16,256"]),
    ]


def device_with_law(kernels):
    """Return a device on which the model is true."""
    truth = {}
    for kernel in kernels:
        values = kernel_feature_values(MODEL.input_features(), kernel, kernel.sizes)
        truth[kernel.name] = MODEL.evaluate(TRUE, values)
    return FakeDevice(lambda label, _: truth[label])


@pytest.fixture(scope="module")
def kernels():
    return measurement_kernels()


@pytest.fixture(scope="module")
def calibration(kernels):
    return calibrate(MODEL, kernels, device=device_with_law(kernels))


def test_a_known_law_is_found_again(calibration):
    assert dict(calibration.params) == pytest.approx(TRUE, rel=1e-6)
    assert calibration.fit.geometric_mean_error < 1e-5
    assert calibration.noise_floor == pytest.approx(0.0)
    assert calibration.device["name"] == "fake device"
    assert calibration.versions["perflex"]


def test_what_no_kernel_contains_is_refused_before_anything_is_timed(kernels):
    def law(label, _):
        pytest.fail(f"{label} was timed")

    @register_feature("f_test_none", unit="1")
    def none(*_):
        return 0.0

    model = Model("f_cl_wall_time_fake", f"{EXPRESSION} + p_none * f_test_none * f_thread_groups")
    try:
        with pytest.raises(CalibrationError, match="p_none is determined by no kernel") as caught:
            calibrate(model, kernels, device=FakeDevice(law))
    finally:
        unregister_feature("f_test_none")
    assert caught.value.parameters == ("p_none",)
    with pytest.raises(CalibrationError, match="'f_thread_groups' is no wall time"):
        calibrate(Model("f_thread_groups", "p_a * f_op_float32_madd"), kernels)


@pytest.mark.parametrize("budget_s", [None, 1e3])
def test_parameters_that_lack_kernels_that_a_device_does_not_run_are_named(kernels, budget_s):
    device = device_with_law(kernels)

    def law(label, sizes):
        if label.startswith(("matmul", "flops")):  # they alone have multiply-adds
            msg = f"{label}: needs a work-group of 256 work-items"
            raise MeasurementError(msg, kernel=label)
        return device.law(label, sizes)

    with (
        pytest.warns(PerflexWarning, match="is left out: needs a work-group of 256"),
        pytest.raises(
            CalibrationError, match=r"p_madd is determined by no kernel.*8 kernels.*; the first: m"
        ) as caught,
    ):
        calibrate(MODEL, kernels, device=replace(device, law=law), budget_s=budget_s)
    assert caught.value.parameters == ("p_madd",)


def test_a_ready_model_may_have_costs_that_the_device_lacks(kernels, tmp_path):
    units = ("launch", "work-group", "sub-group operation", "access", "access", "barrier per work-item")
    named = zip([*TRUE, "p_none"], units, strict=True)
    costs = "\n".join(f"  {name}: {{meaning: m, unit: s per {unit}}}" for name, unit in named)
    (tmp_path / "mine.yaml").write_text(
        "schema: perflex-model/1\nname: mine\ndescription: Mine.\noutput: f_cl_wall_time\n"
        f"expression: {EXPRESSION} + p_none * f_sync_barrier_local\nparameters:\n{costs}\n"
        "measurement_kernels: []\nfit: {residual: logarithmic, on_undetermined: warn}\n",
        encoding="utf-8",
    )
    untiled = [kernel for kernel in kernels if not kernel.name.startswith("matmul")]
    device = device_with_law(untiled)
    with pytest.warns(PerflexWarning, match="do not determine p_none") as caught:
        calibration = calibrate(str(tmp_path / "mine.yaml"), untiled, device=device)
    # However deep it is found, a warning is of the user's line.
    assert {warning.filename for warning in caught} == {__file__}
    assert calibration.fit.residual == "logarithmic"
    assert calibration.fit.undetermined == ("p_none",)
    calibration.save(tmp_path / "mine-fake.yaml")
    assert Calibration.load(tmp_path / "mine-fake.yaml").params == calibration.params
    with pytest.raises(NoMatchError, match="f_sync_barrier_local matches nothing"):
        calibrate(str(tmp_path / "mine.yaml"), untiled, device=device, fit=FitOptions(on_undetermined="error"))


@pytest.mark.filterwarnings("ignore:this prediction is doubtful")
def test_predictions_for_kernels_and_sizes_never_measured(calibration):
    n = 1024
    expected = MODEL.evaluate(
        TRUE,
        {
            "f_sync_kernel_launch": 1,
            "f_thread_groups": (n / 16) ** 2,
            "f_op_float32_madd": n**3 / 32,
            # a is uniform along lid(0) and counts per sub-group, b per work-item.
            "f_mem_access_global_float32_load": n**3 / 32 + n**3,
            "f_mem_access_global_float32_store": n**2,
        },
    )
    assert calibration.predict(matmul(prefetch=False), {"n": n}) == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore::perflex.errors.DoubtfulPredictionWarning")
def test_ranking(calibration):
    slow, fast = matmul(prefetch=False), matmul(prefetch=True)
    with pytest.warns(DoubtfulPredictionWarning, match="2 of 2 predictions .* slow: .* 64 times the largest"):
        places = rank({"slow": slow, "fast": fast}, calibration, {"n": 512})
    assert [(place.rank, place.name) for place in places] == [(1, "fast"), (2, "slow")]
    assert places[0].ratio == 1.0
    assert places[1].ratio == pytest.approx(places[1].predicted / places[0].predicted)
    assert sum(places[1].terms.values()) == pytest.approx(places[1].predicted)
    assert places.kernel(places[1]) is slow


def test_equal_times_keep_their_order_and_names_become_unique(calibration):
    kernel = matmul(prefetch=True)
    places = rank([kernel, kernel, kernel], calibration, {"n": 64})
    assert [place.name for place in places] == ["matmul", "matmul #2", "matmul #3"]
    assert {place.ratio for place in places} == {1.0}


def test_measurement_kernels_bring_their_sizes(calibration, kernels):
    chosen = [kernel for kernel in kernels if kernel.generator == "matmul_sq"]
    places = rank(chosen, calibration)
    assert {place.name for place in places} == {kernel.name for kernel in chosen}
    assert [place.predicted for place in places] == sorted(place.predicted for place in places)


def test_ranking_errors(calibration):
    with pytest.raises(CalibrationError, match="no variants"):
        rank([], calibration, {"n": 64})
    with pytest.raises(CalibrationError, match="variant 'a' needs sizes"):
        rank({"a": matmul(prefetch=True)}, calibration)
    with pytest.raises(MissingSizeError, match="needs a value for size n"):
        rank({"a": matmul(prefetch=True)}, calibration, {"m": 64})


def test_the_papers_first_example(default_device):
    """Section 2.2: one parameter from four sizes of the same variant, then a prediction for another size."""
    model = Model(wall_time_identifier(default_device), "p_f32madd * f_op_float32_madd")
    tags = ["matmul_sq", "dtype:float32", "prefetch:True", "lsize_0:16", "lsize_1:16", "groups_fit:True"]
    m_knls = KernelCollection(ALL_GENERATORS).generate_kernels([*tags, "n:64,96,128,160"])
    params = fit_model(model, gather_feature_values(model.all_features(), m_knls))
    assert params["p_f32madd"] > 0
    kernel = tag_accesses(matmul(prefetch=True), loads={"a": "aLD"})
    assert 0 < model.eval_with_kernel(params, kernel, {"n": 192}) < math.inf
