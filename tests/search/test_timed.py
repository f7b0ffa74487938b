"""Variants that are timed beside their predictions: variants that a calibration gets wrong are put right."""

import math

import loopy as lp
import numpy as np
import pytest

from perflex import Calibration, Model, TimingOptions, calibrate, rank, time_kernel
from perflex.errors import CalibrationError, DeviceError, MeasurementError, MissingSizeError, PerflexWarning
from perflex.testing import FakeDevice

pytestmark = pytest.mark.filterwarnings("ignore::perflex.errors.DoubtfulPredictionWarning")

SIZES = {"n": 1 << 17}
# What a launch takes, in seconds; by its source each variant looks the better the larger its number.
COST = {"v0": 3e-5, "v1": 1e-5, "v2": 5e-5, "v3": 4e-5, "v4": 2e-5}
DEVICE = FakeDevice(lambda label, _sizes: COST[label])


def variant(name):
    # Products alone: the model that is calibrated below knows no sums.
    terms = "*".join(["a[i]"] * (7 - int(name[1])))
    kernel = lp.make_kernel("{[i]: 0<=i<n}", f"b[i] = {terms}", assumptions="n>=1", lang_version=(2018, 2), name=name)
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


@pytest.fixture(scope="module")
def variants():
    return {name: variant(name) for name in COST}


@pytest.fixture(scope="module")
def calibration():
    model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_mul * f_op_float32_mul")
    kernels = [(variant("v0"), {"n": n}) for n in (2048, 4096, 8192, 16384)]
    return calibrate(model, kernels, device=FakeDevice(lambda _label, sizes: 1e-6 + 1e-10 * sizes["n"]))


def test_ranks_follow_the_times_and_predictions_stay(calibration, variants):
    by_counts = rank(variants, calibration, SIZES)
    assert [each.name for each in by_counts] == ["v4", "v3", "v2", "v1", "v0"]
    assert all(math.isnan(each.measured) for each in by_counts)
    predicted = {each.name: each.predicted for each in by_counts}
    timed = rank(variants, calibration, SIZES, time=DEVICE)
    assert [each.name for each in timed] == sorted(COST, key=COST.__getitem__)
    for each in timed:
        assert (each.measured, each.ratio) == pytest.approx((COST[each.name], COST[each.name] / 1e-5))
        assert (each.predicted, each.knowledge) == (predicted[each.name], "nothing")
        times = f"measured {each.measured:.4g} ({each.ratio:.2f} times the fastest), predicted {each.predicted:.4g}"
        assert str(each).startswith(f"{each.rank}. {each.name}: {times}")
    first = by_counts[0]
    assert str(first).startswith(f"1. v4: {first.predicted:.4g} (1.00 times the fastest)")


def test_variants_that_fail_are_last_as_predicted(calibration, variants):
    def broken(name, _sizes):
        if name in {"v1", "v3"}:
            msg = f"{name} does not run"
            raise MeasurementError(msg)
        return COST[name]

    with pytest.warns(PerflexWarning, match="v[13] does not run; the variant is not timed"):
        places = rank(variants, calibration, SIZES, time=FakeDevice(broken))
    assert [each.name for each in places] == ["v4", "v0", "v2", "v3", "v1"]
    assert [math.isnan(each.measured) for each in places] == [False] * 3 + [True] * 2
    assert str(places[-1]).startswith(f"5. v1: not measured, predicted {places[-1].predicted:.4g}")


@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
def test_all_that_fail_are_an_error(calibration, variants):
    with pytest.raises(MeasurementError, match="none of the 5 variants could be timed; the last: it does not run"):
        rank(variants, calibration, SIZES, time=FakeDevice(failing))


def test_what_is_no_device_is_refused(calibration, variants):
    with pytest.raises(DeviceError, match="1 is no device; give one of find_device"):
        rank(variants, calibration, SIZES, time=1)


def test_what_is_no_time_is_not_timed(calibration, variants):
    other = Model("f_op_float32_add", calibration.model.expression)
    with pytest.raises(CalibrationError, match="output f_op_float32_add is not a time"):
        rank(variants, Calibration(other, calibration.fit, calibration.table), SIZES, time=DEVICE)


def test_a_kernel_is_timed_without_a_calibration():
    timing = time_kernel(variant("v0"), {"n": 2048}, FakeDevice(lambda _label, _sizes: 2e-4))
    assert timing.seconds == pytest.approx(2e-4)
    with pytest.raises(MeasurementError, match="does not run"):
        time_kernel(variant("v0"), {"n": 2048}, FakeDevice(failing))


def failing(_name, _sizes):
    msg = "it does not run"
    raise MeasurementError(msg)


@pytest.mark.parametrize("isolate", [True, False])
def test_a_real_kernel_is_timed(default_device, *, isolate):
    # Too little is known of a test machine's load for more than an order of magnitude.
    options = TimingOptions(isolate=isolate, budget_s=0.05)
    assert 1e-6 < time_kernel(variant("v0"), {"n": 1 << 22}, default_device, options).seconds < 1
    with pytest.raises(MissingSizeError):
        time_kernel(variant("v0"), {}, default_device)
