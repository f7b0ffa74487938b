"""`Calibration.explain` says what `predict`, `predict_interval`, `doubts` and the model's terms say."""

import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import perflex
from perflex import Calibration, PerflexError, source_kernel
from perflex.calibration.prediction import doubt_lines, prediction_table, timed
from perflex.errors import MeasurementError, PerflexWarning
from perflex.testing import FakeDevice
from perflex.triton import LaunchedKernel
from sample_kernels import matmul
from support.triton_data import code_of, launch_of, stored

CL = Path(__file__).parents[2] / "examples/matmul.cl"
SHIPPED = "matmul_sq_amd_epyc_4cores_intel_opencl"
KERNEL = matmul(prefetch=False)
CASES = {
    "loopy": (SHIPPED, KERNEL, {"n": 480}, None),
    "arrays": (SHIPPED, KERNEL, {"n": np.array([480, 960])}, None),
    "source": ("general_gpu", source_kernel(CL, "tiled", local=[16, 16], global_size=["n", "n"]), {"n": 512}, "A40"),
}


def launched(name):
    """Return what stands for a launch of a kernel whose tile program is stored."""
    case, told = stored(name), []

    class Stored(LaunchedKernel):
        def program(self, _sizes):
            told.append(self.capability)
            return code_of(case, case["ttir"]["3.9.0"]["80"]).program(launch_of(case))

    kernel = Stored(lambda: None)
    kernel.told = told
    return kernel


@pytest.mark.parametrize("name", [*CASES, "tiles"])
def test_all_that_is_said_is_said_by_the_others(name):
    tiles = ("general_tile", launched("matmul_even"), {}, "H100-SXM")
    which, kernel, sizes, machine = tiles if name == "tiles" else CASES[name]
    calibration = Calibration.load(which)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        found, plain = (calibration.explain(kernel, sizes, share, machine=machine) for share in (0.9, None))
        interval = calibration.predict_interval(kernel, sizes, 0.9, machine=machine)
        predicted = calibration.predict(kernel, sizes, machine=machine)
    for one in (found.seconds, plain.seconds, interval.predicted):
        assert np.array_equal(one, predicted) or one == pytest.approx(predicted, rel=1e-14)
    assert np.array_equal([found.low, found.high], [interval.low, interval.high])
    assert found.confidence == 0.9
    assert np.array_equal(found.extrapolated, interval.extrapolated)
    assert (plain.low, plain.high, plain.confidence, plain.extrapolated) == (None,) * 4
    assert found.doubts == plain.doubts == interval.doubts == calibration.doubts(kernel, sizes, machine=machine)
    values = calibration.feature_values(kernel, sizes, machine=machine)
    assert found.values.keys() == values.keys()
    assert all(np.array_equal(found.values[name], values[name]) for name in values)
    terms = calibration.model.terms(calibration.params, values)
    assert all(np.array_equal(found.terms[text], terms[text]) for text in terms)
    assert sum(found.terms.values()) == pytest.approx(calibration.evaluate(values))
    assert found.knowledge == ("code" if name == "tiles" else "nothing")


@pytest.mark.parametrize(("machine", "capability"), [("A100-80GB", 80), ("H100-SXM", 90), ("B200", 100)])
def test_a_launch_is_compiled_for_the_machine(machine, capability):
    """As in `rank`: what a kernel does may depend on it."""
    kernel = launched("matmul_even")
    Calibration.load("general_tile").explain(kernel, {}, None, machine=machine)
    assert set(kernel.told) == {capability}
    assert kernel.capability == 80


def test_what_is_unlike_all_that_was_judged_has_a_wider_interval():
    calibration, ratios = Calibration.load("general_tile"), []
    for name, doubt in (("matmul_even", "no sample"), ("matmul_fp8", "products of f8E5M2")):
        found = calibration.explain(launched(name), {}, machine="A100-80GB")
        assert doubt in found.doubts[-1]
        ratios.append(found.high / found.low)
    assert ratios[1] > 5 * ratios[0]


def test_usual_values_of_general_tile_are_a_calibration():
    calibration = Calibration.load("general_tile")
    assert dict(calibration.params) == pytest.approx(dict(perflex.load_model("general_tile").usual))
    assert not calibration.has_samples
    with pytest.raises(PerflexError, match="needs a machine"):
        calibration.predict(launched("matmul_even"), {})
    with pytest.raises(PerflexError, match="is no GPU of NVIDIA"):
        calibration.predict(launched("matmul_even"), {}, machine="MI210")
    with pytest.raises(PerflexError, match="of another model than general_tile"):
        Calibration.load("general_gpu").predict(launched("matmul_even"), {}, machine="H100-SXM")


def test_tables_say_what_the_prediction_holds():
    calibration = Calibration.load(SHIPPED)
    found = [calibration.explain(KERNEL, {"n": n}, share) for n, share in ((480, 0.9), (960, None))]
    device = FakeDevice(lambda _label, sizes: 2 * found[0].seconds if sizes["n"] == 480 else _fail())
    first, second = timed(found, KERNEL, device)
    rows = prediction_table([first, second]).records()
    assert rows[0]["error"] == pytest.approx(-0.5, rel=1e-6)
    assert [rows[0][name] for name in ("n", "predicted_s", "low_s", "high_s", "confidence")] == [
        480, first.seconds, first.low, first.high, 0.9
    ]  # fmt: skip
    assert (rows[1]["measured_s"], rows[1]["low_s"]) == (None, None)
    assert "it does not run" in second.failure
    with pytest.raises(MeasurementError):
        timed(found[1:], KERNEL, device)
    shares = [row["share"] for row in first.cost_table(2).records()]
    assert len(shares) == 3
    assert sum(shares) == pytest.approx(1.0)
    assert [row["predicted_s"] for row in first.cost_table().records()] == sorted(
        filter(None, first.terms.values()), reverse=True
    )
    shown = first._repr_html_()
    assert "Predicted times of " in shown
    assert "Costs at n=480" in shown


def _fail():
    msg = "it does not run"
    raise MeasurementError(msg)


def test_doubts_about_some_sizes_name_them():
    some: list = [
        SimpleNamespace(at=f"n={n}", timing=None, doubts=doubts) for n, doubts in ((1, ("far",)), (2, ("far", "odd")))
    ]
    assert doubt_lines(some) == ["doubtful: far", "doubtful at n=2: odd"]
    disturbed: list = [SimpleNamespace(at="n=1", timing=SimpleNamespace(disturbed=True), doubts=())]
    assert doubt_lines(disturbed) == ["doubtful: the measured time rests on samples that others disturbed"]
