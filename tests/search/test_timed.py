"""Variants that are timed beside their predictions: variants that a calibration gets wrong are put right."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
import pytest

import perflex.calibration.device_match
from perflex import Calibration, Model, TimingOptions, calibrate, rank, time_kernel
from perflex.__main__ import main
from perflex.errors import CalibrationError, MeasurementError, MissingSizeError, PerflexWarning
from perflex.testing import FakeDevice
from support.saved_calibrations import saved_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytestmark = pytest.mark.filterwarnings("ignore:this prediction is doubtful")

SIZES = {"n": 1 << 17}
# What a launch takes, in seconds; by its source each variant looks the better the larger its number.
COST = {"v0": 3e-5, "v1": 1e-5, "v2": 5e-5, "v3": 4e-5, "v4": 2e-5}
DEVICE = FakeDevice(lambda label, _sizes: COST[label])
EXAMPLE = Path(__file__).parents[2] / "examples" / "matmul.py"


def variant(name: str) -> lp.TranslationUnit:
    # Products alone: the model that is calibrated below knows no sums.
    terms = "*".join(["a[i]"] * (7 - int(name[1])))
    kernel = lp.make_kernel("{[i]: 0<=i<n}", f"b[i] = {terms}", assumptions="n>=1", lang_version=(2018, 2), name=name)
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


@pytest.fixture(scope="module")
def variants() -> Mapping[str, Any]:
    return {name: variant(name) for name in COST}


def calibrated(output: str = "f_cl_wall_time") -> Calibration:
    model = Model(output, "p_launch * f_sync_kernel_launch + p_mul * f_op_float32_mul")
    kernels = [(variant("v0"), {"n": n}) for n in (2048, 4096, 8192, 16384)]
    return calibrate(model, kernels, device=FakeDevice(lambda _label, sizes: 1e-6 + 1e-10 * sizes["n"]))


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return calibrated()


def test_ranks_follow_the_times_and_predictions_stay(calibration: Calibration, variants: Mapping[str, Any]) -> None:
    by_counts = rank(variants, calibration, SIZES)
    timed = rank(variants, calibration, SIZES, time=DEVICE)
    assert [each.name for each in by_counts] == ["v4", "v3", "v2", "v1", "v0"]
    assert all(math.isnan(each.measured) for each in by_counts)
    assert [each.name for each in timed] == sorted(COST, key=COST.__getitem__)
    predicted = {each.name: each.predicted for each in by_counts}
    for each in timed:
        assert each.measured == pytest.approx(COST[each.name])
        assert each.ratio == pytest.approx(COST[each.name] / 1e-5)
        assert (each.predicted, each.knowledge) == (predicted[each.name], "nothing")


def test_variants_that_fail_are_last_as_predicted(calibration: Calibration, variants: Mapping[str, Any]) -> None:
    def broken(name: str, _sizes: Mapping[str, int]) -> float:
        if name in {"v1", "v3"}:
            msg = f"{name} does not run"
            raise MeasurementError(msg)
        return COST[name]

    with pytest.warns(PerflexWarning, match="v[13] does not run; the variant is not timed"):
        places = rank(variants, calibration, SIZES, time=FakeDevice(broken))
    assert [each.name for each in places] == ["v4", "v0", "v2", "v3", "v1"]
    assert [math.isnan(each.measured) for each in places] == [False] * 3 + [True] * 2


@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
def test_all_that_fail_are_an_error(calibration: Calibration, variants: Mapping[str, Any]) -> None:
    def never(name: str, _sizes: Mapping[str, int]) -> float:
        msg = f"{name} does not run"
        raise MeasurementError(msg)

    with pytest.raises(MeasurementError, match="none of the 5 variants could be timed; the last: v4 does not run"):
        rank(variants, calibration, SIZES, time=FakeDevice(never))


def test_what_is_no_time_is_not_timed(calibration: Calibration, variants: Mapping[str, Any]) -> None:
    other = Model("f_op_float32_add", calibration.model.expression)
    with pytest.raises(CalibrationError, match="output f_op_float32_add is not a time"):
        rank(variants, Calibration(other, calibration.fit, calibration.table), SIZES, time=DEVICE)


def test_a_kernel_is_timed_without_a_calibration() -> None:
    timing = time_kernel(variant("v0"), {"n": 2048}, FakeDevice(lambda _label, _sizes: 2e-4))
    assert timing.seconds == pytest.approx(2e-4)
    with pytest.raises(MeasurementError, match="does not run"):
        time_kernel(variant("v0"), {"n": 2048}, FakeDevice(failing))


def failing(_name: str, _sizes: Mapping[str, int]) -> float:
    msg = "it does not run"
    raise MeasurementError(msg)


@pytest.mark.parametrize("isolate", [True, False])
def test_a_real_kernel_is_timed(default_device: Any, *, isolate: bool) -> None:
    # Too little is known of a test machine's load for more than an order of magnitude.
    options = TimingOptions(isolate=isolate, budget_s=0.05)
    assert 1e-6 < time_kernel(variant("v0"), {"n": 1 << 22}, default_device, options).seconds < 1
    with pytest.raises(MissingSizeError):
        time_kernel(variant("v0"), {}, default_device)


# The commands


class Counted(FakeDevice):
    """Counts how often it is opened."""

    opened = 0

    def backend(self) -> Any:
        type(self).opened += 1
        return super().backend()


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeDevice], None]:
    """Make a device that of all calibrations."""

    def place(device: FakeDevice) -> None:
        monkeypatch.setattr(perflex.calibration.device_match, "device_of_calibration", lambda *_: device)

    return place


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "matmul.yaml"
    path.write_text(saved_text("matmul_sq_amd_epyc_4cores_intel_opencl"), encoding="utf-8")
    return str(path)


def test_predict_says_what_was_measured_beside(
    file: str, capfd: pytest.CaptureFixture[str], on: Callable[[FakeDevice], None]
) -> None:
    on(Counted(lambda _label, _sizes: 5e-4))
    Counted.opened = 0
    words = ["predict", file, f"{EXAMPLE}:naive", "n=512,1024", "--json"]
    assert main(words) == 0
    alone = json.loads(capfd.readouterr().out)
    assert main([*words, "--time"]) == 0
    timed = json.loads(capfd.readouterr().out)
    assert Counted.opened == 1
    for entry, before in zip(timed, alone, strict=True):
        low, high = entry.pop("measured_low_s"), entry.pop("measured_high_s")
        assert [low, high, entry.pop("measured_s")] == pytest.approx([5e-4] * 3)
        assert entry.pop("measured_on") == str(FakeDevice(failing))
        assert entry.pop("disturbed") is False
        assert entry == before
    assert main([*words[:-1], "--time"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.count(f"  measured: 500 us (500 us to 500 us) on {FakeDevice(failing)}\n") == 2


def test_sizes_that_fail_are_told(
    file: str, capfd: pytest.CaptureFixture[str], on: Callable[[FakeDevice], None]
) -> None:
    on(FakeDevice(lambda name, sizes: 5e-4 if sizes["n"] < 1000 else failing(name, sizes)))
    words = ["predict", file, f"{EXAMPLE}:naive", "--time"]
    assert main([*words, "n=512,1024"]) == 0
    out = capfd.readouterr().out
    assert out.count("  measured: ") == out.count("  not measured: ") == 1
    assert "it does not run" in out
    assert main([*words, "n=1024"]) == 1
    assert "it does not run" in capfd.readouterr().err


def test_rank_orders_by_what_was_measured(
    file: str, capfd: pytest.CaptureFixture[str], on: Callable[[FakeDevice], None]
) -> None:
    on(FakeDevice(lambda name, sizes: 5e-4 if "naive" in name else failing(name, sizes)))
    words = ["rank", file, f"{EXAMPLE}:prefetching", f"{EXAMPLE}:naive", "n=512", "--time"]
    assert main(words) == 0
    out, err = capfd.readouterr()
    first, last = out.splitlines()
    assert first.startswith(f"1. {EXAMPLE}:naive: measured 500 us (1.00 x), predicted ")
    assert last.startswith(f"2. {EXAMPLE}:prefetching: not measured, predicted ")
    assert "nan" not in out
    assert "the variant is not timed" in err
    assert main([*words, "--json"]) == 0
    best, worst = json.loads(capfd.readouterr().out)
    assert (best["measured_s"], worst["measured_s"]) == (pytest.approx(5e-4), None)
    assert best["knowledge"] == "nothing"
