"""Short launches in predictions, ranks and prunings: variants that a calibration gets wrong are put right."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
import pytest

from perflex import Calibration, Model, Promise, VariantSpace, calibrate, prune, rank, tune
from perflex.errors import CalibrationError, MeasurementError, PerflexWarning
from perflex.search.tuning.tuning import _probed_prior
from perflex.testing import FakeDevice
from support.slab_device import SlabDevice

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.filterwarnings("ignore:this prediction is doubtful")

GROUPS = 4096
SIZES = {"n": 32 * GROUPS}
# What a work-group costs, in seconds; by its source each variant looks the better the larger its number.
COST = {"v0": 3e-5, "v1": 1e-5, "v2": 5e-5, "v3": 4e-5, "v4": 2e-5}


def variant(name: str) -> lp.TranslationUnit:
    # Products alone: the model that is calibrated below knows no sums.
    terms = "*".join(["a[i]"] * (7 - int(name[1])))
    kernel = lp.make_kernel("{[i]: 0<=i<n}", f"b[i] = {terms}", assumptions="n>=1", lang_version=(2018, 2), name=name)
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


def law(name: str, _number: int, _cold: bool) -> float:
    return COST[name]


def truth(name: str) -> float:
    return SlabDevice.START_S + COST[name] * GROUPS / 2


@pytest.fixture(scope="module")
def variants() -> Mapping[str, Any]:
    return {name: variant(name) for name in COST}


@pytest.fixture(scope="module")
def calibration(variants: Mapping[str, Any]) -> Calibration:
    model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_mul * f_op_float32_mul")
    kernels = [(variants["v0"], {"n": n}) for n in (2048, 4096, 8192, 16384)]
    return calibrate(model, kernels, device=FakeDevice(lambda _label, sizes: 1e-6 + 1e-10 * sizes["n"]))


@pytest.fixture
def device() -> SlabDevice:
    return SlabDevice(law, named=True)


def test_a_prediction_by_a_short_launch(
    calibration: Calibration, variants: Mapping[str, Any], device: SlabDevice
) -> None:
    assert calibration.predict(variants["v1"], SIZES, probe=device) == pytest.approx(truth("v1"), rel=0.03)
    found = calibration.predict_interval(variants["v1"], SIZES, 0.9, probe=device)
    wide = calibration.predict_interval(variants["v1"], SIZES, 0.99, probe=device)
    assert wide.low < found.low < truth("v1") < found.high < wide.high
    assert found.low * found.high == pytest.approx(found.predicted**2)
    assert found.confidence == 0.9


def test_probes_have_single_sizes_and_tell_times(
    calibration: Calibration, variants: Mapping[str, Any], device: SlabDevice
) -> None:
    with pytest.raises(CalibrationError, match="one value for each size"):
        calibration.predict(variants["v1"], {"n": np.array([1024, 2048])}, probe=device)
    with pytest.raises(CalibrationError, match="between 0 and 1"):
        calibration.predict_interval(variants["v1"], SIZES, 2.0, probe=device)


def test_ranks_follow_the_launches(calibration: Calibration, variants: Mapping[str, Any], device: SlabDevice) -> None:
    by_counts = [each.name for each in rank(variants, calibration, SIZES)]
    by_launches = rank(variants, calibration, SIZES, probe=device)
    assert by_counts == ["v4", "v3", "v2", "v1", "v0"]
    assert [each.name for each in by_launches] == sorted(COST, key=COST.__getitem__)
    for each in by_launches:
        assert each.predicted == pytest.approx(truth(each.name), rel=0.03)


def test_of_those_predicted_fastest_the_fastest_by_launches_are_kept(
    calibration: Calibration, variants: Mapping[str, Any], device: SlabDevice
) -> None:
    pruning = prune(variants, calibration, SIZES, keep=1, probe=device)
    # Four are probed for one that is kept: all but v0, which the calibration expects to be slowest.
    assert [each.name for each in pruning.kept] == ["v1"]
    known = {each.name: each for each in pruning.variants}
    assert known["v4"].predicted == pytest.approx(truth("v4"), rel=0.03)
    assert known["v1"].low < truth("v1") < known["v1"].high
    model = {each.name: each.predicted for each in rank(variants, calibration, SIZES)}
    ratio = np.median([known[name].predicted / model[name] for name in ("v1", "v2", "v3", "v4")])
    assert known["v0"].predicted == pytest.approx(model["v0"] * ratio)
    plain = {each.name: each for each in prune(variants, calibration, SIZES, keep=1).variants}
    assert known["v0"].low == pytest.approx(plain["v0"].low * ratio)
    assert known["v0"].high == pytest.approx(plain["v0"].high * ratio)


def test_a_pruning_says_whose_launch_failed(calibration: Calibration, variants: Mapping[str, Any]) -> None:
    with pytest.warns(PerflexWarning, match="v1 does not run"):
        pruning = prune(variants, calibration, SIZES, keep=1, probe=SlabDevice(broken, named=True))
    last = pruning.variants[-1]
    assert (last.name, last.reason, last.kept) == ("v1", "its short launch failed", False)
    assert math.isnan(last.low)
    assert math.isnan(last.high)


def test_nothing_is_probed_where_all_is_measured(
    calibration: Calibration, variants: Mapping[str, Any], device: SlabDevice
) -> None:
    pruning = prune(variants, calibration, SIZES, keep=1, probe=device, measured={name: truth(name) for name in COST})
    assert [each.name for each in pruning.kept] == ["v1"]
    assert device.restored == []


def broken(name: str, number: int, cold: bool) -> float:
    if name == "v1":
        msg = "v1 does not run"
        raise MeasurementError(msg)
    return law(name, number, cold)


def test_a_variant_that_fails_is_last(calibration: Calibration, variants: Mapping[str, Any]) -> None:
    with pytest.warns(PerflexWarning, match="v1 does not run; the variant is not probed"):
        places = rank(variants, calibration, SIZES, probe=SlabDevice(broken, named=True))
    assert [each.name for each in places] == ["v4", "v0", "v3", "v2", "v1"]
    assert math.isinf(places[-1].predicted)


def test_all_that_fail_are_an_error(calibration: Calibration, variants: Mapping[str, Any]) -> None:
    device = FakeDevice(lambda _label, _sizes: 1e-3)
    with pytest.warns(PerflexWarning), pytest.raises(MeasurementError, match="none of the 5 variants could be probed"):
        rank(variants, calibration, SIZES, probe=device)


def test_a_promise_is_not_for_probes(calibration: Calibration, variants: Mapping[str, Any], device: SlabDevice) -> None:
    with pytest.raises(CalibrationError, match="a promise rests on predictions of one kind"):
        prune(variants, calibration, SIZES, keep=Promise(), probe=device)


def test_tuning_begins_with_short_launches(calibration: Calibration, device: SlabDevice) -> None:
    space = VariantSpace(numbered, {"number": (0, 1, 2, 3, 4)}, name="numbered")
    found = tune(space, SIZES, device=device, calibration=calibration, budget=5, first=2)
    assert (found.best.settings["number"], device.restored) == (1, [])
    found = tune(space, SIZES, device=device, calibration=calibration, budget=5, first=2, probe=True)
    assert found.best.settings["number"] == 1
    assert device.restored
    # Those predicted fastest are expected to take what the launches say, the others more than before by their ratio.
    extracted = space.extract(calibration.model.input_features(), SIZES)
    prior = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    expected = _probed_prior(extracted, prior, 3, device)
    launched = [truth(f"v{number}") for number in (2, 3, 4)]
    ratio = np.median([launched[0] / 3, launched[1] / 2, launched[2] / 1])
    assert expected == pytest.approx([5 * ratio, 4 * ratio, *launched], rel=0.03)
    # Of a budget in seconds short launches leave some for measurements: here one is all that begins in time.
    in_time = _probed_prior(extracted, prior, 3, device, limit_s=0.0)
    assert in_time == pytest.approx(prior * launched[2], rel=0.03)
    with pytest.raises(CalibrationError, match="short launches run on a device, and a calibration chooses"):
        tune(space, SIZES, device=device, probe=True)


def numbered(number: int) -> lp.TranslationUnit:
    return variant(f"v{number}")
