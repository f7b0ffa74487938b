"""Scops are counted and predicted; what would launch one says that it cannot be, and what to give instead."""

import pytest

from perflex import Model, calibrate, rank, time_kernel
from perflex.errors import CalibrationError, DoubtfulPredictionWarning, MeasurementError, PerflexWarning
from perflex.features import SizedKernel, extract_scop
from perflex.testing import FakeDevice
from perflex.timing.launch.request import request_for
from sample_kernels import pointwise

KERNEL = pointwise("x[i] * 2")
SCOP = extract_scop(KERNEL)
SIZES = {"n": 64}
REFUSAL = r"kernel 'knl' is a description \(Scop\), which can be counted but not built or launched; give a loopy kernel"


@pytest.fixture(scope="module")
def calibration():
    model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_mul * f_op_float32_mul")
    kernels = [(KERNEL, {"n": n}) for n in (2048, 4096, 8192, 16384)]
    return calibrate(model, kernels, device=FakeDevice(lambda _label, sizes: 1e-6 + 1e-10 * sizes["n"]))


def test_launching_is_refused(calibration, default_device):
    with pytest.raises(MeasurementError, match=REFUSAL):
        time_kernel(SCOP, SIZES, default_device)
    with pytest.raises(MeasurementError, match=REFUSAL):
        request_for(SizedKernel(SCOP, SIZES, "x"), default_device)
    with pytest.warns(PerflexWarning, match=REFUSAL), pytest.raises(MeasurementError, match=REFUSAL):
        rank([SCOP], calibration, SIZES, time=default_device)
    with pytest.warns(PerflexWarning, match=f"is left out: {REFUSAL}"), pytest.raises(CalibrationError, match=REFUSAL):
        calibrate(calibration.model, [(SCOP, SIZES)], device=FakeDevice(lambda _label, _sizes: 1e-4))


def test_predictions_are_those_of_the_loopy_kernel(calibration):
    with pytest.warns(DoubtfulPredictionWarning, match="2 of 2 predictions"):
        found = [place.predicted for place in rank([KERNEL, SCOP], calibration, SIZES)]
    assert found[0] == found[1] > 0
