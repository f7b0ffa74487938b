"""What is predicted of a change, and how sure that is."""

import math

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model
from perflex.calibration.change import change_of
from perflex.calibration.interval import interval_at
from perflex.calibration.prediction import Prediction
from perflex.errors import CalibrationError
from support.fitted import fitted

OUTPUT = "f_cl_wall_time_test"
GENERAL = Calibration.load("general_gpu")


def predicted(calibration=GENERAL, **values):
    values = dict.fromkeys(calibration.model.input_features(), 0.0) | values
    found = interval_at(calibration, values)
    return Prediction("k", {}, found.predicted, (), "nothing", values, calibration, found)


def test_nothing_changes_exactly():
    one = predicted(f_peak_dram=1e-3, f_peak_fp32=4e-4)
    found = change_of(one, predicted(f_peak_dram=1e-3, f_peak_fp32=4e-4))
    assert (found.low, found.ratio, found.high, found.confidence) == (1, 1, 1, 0.95)


def test_what_both_have_alike_cancels():
    # One cost alone, before and after: of its parameter and of a kernel's factor on it, nothing is left.
    old, new = predicted(f_peak_dram=1e-3), predicted(f_peak_dram=2e-3)
    own = GENERAL.transferred.unknown
    for confidence in (0.5, 0.9):
        found = change_of(old, new, confidence)
        width = GENERAL.transferred.half_width(confidence) * math.sqrt(2) * own
        assert found.ratio == pytest.approx(2)
        assert math.log(found.high / found.ratio) == pytest.approx(width)
        assert math.log(found.ratio / found.low) == pytest.approx(width)


def test_another_cost_brings_what_is_not_known_of_both():
    old, new = predicted(f_peak_dram=1e-3), predicted(f_peak_fp64=1e-3)
    found, names = change_of(old, new), [parameter.name for parameter in GENERAL.fit.parameters]
    share = np.zeros(len(names))
    share[[names.index("p_dram"), names.index("p_fp64")]] = -1, 1
    covariance = GENERAL.fit.covariance / np.outer(GENERAL.fit.vector, GENERAL.fit.vector)
    variance = share @ covariance @ share + 4 * GENERAL.transferred.unknown**2
    width = GENERAL.transferred.half_width(0.95) * math.sqrt(variance)
    assert math.log(found.high / found.ratio) == pytest.approx(width, rel=1e-6)


def test_calibrations_of_one_device():
    counts = np.array([[1e6, 0], [0, 1e6], [1e6, 1e6], [3e6, 1e6], [1e6, 4e6], [5e6, 2e6]])
    names = ("f_op_float32_add", "f_op_float32_mul")
    seconds = counts @ [1e-9, 3e-9] * [1.02, 0.97, 1.01, 0.99, 1.03, 0.98]
    table = FeatureTable(OUTPUT, (OUTPUT, *names), tuple("abcdef"), np.column_stack([seconds, counts]))
    own = fitted(Model(OUTPUT, "p_a * f_op_float32_add + p_b * f_op_float32_mul"), table)
    old, new = (predicted(own, **dict(zip(names, row, strict=True))) for row in ((2e6, 1e6), (2e6, 2e6)))
    found = change_of(old, new)
    assert found.ratio == pytest.approx(8 / 5, rel=0.03)
    assert new.low / old.high < found.low < found.ratio < found.high < new.high / old.low
    assert found.high / found.low > change_of(old, new, 0.5).high / change_of(old, new, 0.5).low


def test_errors():
    one = predicted(f_peak_dram=1e-3)
    with pytest.raises(CalibrationError, match="not above zero"):
        change_of(one, Prediction("k", {}, -1.0, (), "nothing", one.values, GENERAL, one.interval))
    with pytest.raises(ValueError, match="needs intervals"):
        change_of(one, Prediction("k", {}, 1.0, (), "nothing", one.values, GENERAL))
