"""Scops are counted and predicted; what would launch one says that it cannot be, and what to give instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import perflex.calibration.device_match
from perflex import Calibration, Model, calibrate, rank, time_kernel
from perflex.__main__ import main
from perflex.errors import CalibrationError, MeasurementError, PerflexWarning
from perflex.features import SizedKernel, extract_scop, scop_to_yaml
from perflex.testing import FakeDevice
from perflex.timing.launch.request import request_for
from sample_kernels import pointwise
from support.saved_calibrations import saved_text

KERNEL = pointwise("x[i] * 2")
SCOP = extract_scop(KERNEL)
SIZES = {"n": 64}
REFUSAL = r"kernel 'knl' is a description \(Scop\), which can be counted but not built or launched; give a loopy kernel"
EXAMPLE = Path(__file__).parents[2] / "examples" / "matmul.py"


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_mul * f_op_float32_mul")
    kernels = [(KERNEL, {"n": n}) for n in (2048, 4096, 8192, 16384)]
    return calibrate(model, kernels, device=FakeDevice(lambda _label, sizes: 1e-6 + 1e-10 * sizes["n"]))


def test_launching_is_refused(calibration: Calibration, default_device: Any) -> None:
    with pytest.raises(MeasurementError, match=REFUSAL):
        time_kernel(SCOP, SIZES, default_device)
    with pytest.warns(PerflexWarning, match=REFUSAL), pytest.raises(MeasurementError, match=REFUSAL):
        rank([SCOP], calibration, SIZES, time=default_device)
    with (
        pytest.warns(PerflexWarning, match=f"is left out: {REFUSAL}"),
        pytest.raises(CalibrationError, match=REFUSAL),
    ):
        calibrate(calibration.model, [(SCOP, SIZES)], device=FakeDevice(lambda _label, _sizes: 1e-4))


def test_no_code_is_generated(default_device: Any) -> None:
    with pytest.raises(MeasurementError, match=REFUSAL):
        request_for(SizedKernel(SCOP, SIZES, "x"), default_device)


def test_predictions_are_those_of_the_loopy_kernel(calibration: Calibration) -> None:
    found = [place.predicted for place in rank([KERNEL, SCOP], calibration, SIZES)]
    assert found[0] == found[1] > 0


def test_commands(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, default_device: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here.yaml").write_text(saved_text("matmul_sq_amd_epyc_4cores_intel_opencl"), encoding="utf-8")
    # A name that looks like a size.
    file = "kernel=1.yaml"
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    Path("make.py").write_text("from matmul import naive, prefetching\n")
    monkeypatch.setattr(perflex.calibration.device_match, "device_of_calibration", lambda *_: default_device)
    from matmul import prefetching

    Path(file).write_text(scop_to_yaml(extract_scop(prefetching())))
    assert main(["rank", "here.yaml", file, "make.py:prefetching", "make.py:naive", "n=512", "--json"]) == 0
    places = {place["name"]: place for place in json.loads(capfd.readouterr().out)}
    assert places[file]["predicted_s"] == places["make.py:prefetching"]["predicted_s"] > 0
    assert {place["rank"] for place in places.values()} == {1, 2, 3}
    assert main(["predict", "here.yaml", file, "n=512", "--time"]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("perflex: error: kernel 'loopy_kernel' is a description (Scop), which can be counted but not")
