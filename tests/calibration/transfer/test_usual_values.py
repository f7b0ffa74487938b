"""Usual values of ready models: they predict alone, times correct them, and a device is carried over with them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, PerflexWarning, transfer
from perflex.calibration.calibrating import calibration_from_table
from perflex.calibration.interval import interval_at
from perflex.calibration.usual_prior import NOISE as RESIDUAL
from perflex.calibration.usual_prior import fit_about_usual, usual_description
from perflex.models import load_model
from perflex.triton import LaunchedKernel
from support.triton_data import code_of, launch_of, stored
from support.usual_devices import GENERAL, MODEL, counted, in_interval, timed, usual

if TYPE_CHECKING:
    from pathlib import Path

NOISE, SPREAD = 0.1, 0.2


def device(machine: str, seed: int) -> FeatureTable:
    return timed(counted(machine), np.random.default_rng(seed), SPREAD, NOISE)


def calibrated(table: FeatureTable) -> Calibration:
    return calibration_from_table(MODEL, table, fit_about_usual(GENERAL, table))


def inside(calibration: Calibration, table: FeatureTable) -> float:
    return in_interval(interval_at(calibration, table.columns(MODEL.input_features())), table)


def test_usual_values_alone_predict_with_intervals(tmp_path: Path) -> None:
    calibration = usual("H100-SXM")
    assert dict(calibration.fit) == pytest.approx(dict(GENERAL.usual))
    assert [one.standard_error / one.value for one in calibration.fit.parameters] == pytest.approx([SPREAD] * 6)
    shares = [inside(calibration, device("H100-SXM", seed)) for seed in range(20)]
    # Rows have less noise than the model is taken to leave, and parameters the spread that it is taken to have.
    assert 0.94 < np.mean(shares) < 1
    calibration.save(tmp_path / "usual.yaml")
    loaded = Calibration.load(tmp_path / "usual.yaml")
    assert dict(loaded.fit) == dict(calibration.fit)
    assert interval_at(loaded, device("H100-SXM", 0).columns(MODEL.input_features())).doubts == (
        "no sample of this device: predicted from its machine's facts and the model's usual values alone",
    )


def volume(calibration: Calibration) -> float:
    """Return the determinant of the covariance of the parameters' logarithms."""
    return float(np.linalg.det(calibration.fit.covariance) / np.prod(calibration.fit.vector) ** 2)


def test_each_row_narrows_the_interval_of_another_product_and_it_holds(tmp_path: Path) -> None:
    rows, alone = counted("H100-SXM"), usual("H100-SXM")
    own, other = list(range(8)), rows.take(range(8, len(rows)))
    values = other.columns(MODEL.input_features())
    without = interval_at(alone, values)
    shares = []
    for seed in range(5):
        drawn = timed(rows, np.random.default_rng(seed), SPREAD, RESIDUAL)
        known = volume(alone)
        for count in (1, 2, 6):
            with warnings.catch_warnings(action="error"):
                calibration = calibrated(drawn.take(own[:count]))
                found = interval_at(calibration, values)
            before, known = known, volume(calibration)
            assert known < before
            ratio = np.log(found.high / found.low) / np.log(without.high / without.low)
            # Where another cost prevails than at the usual values, its own uncertainty counts more.
            assert np.median(ratio) < 1
            assert np.max(ratio) < 1.1
            shares.append(in_interval(found, drawn.take(range(8, len(rows)))))
    assert 0.93 < np.mean(shares) < 0.98
    calibration.save(tmp_path / "six.yaml")
    assert interval_at(Calibration.load(tmp_path / "six.yaml"), values).low == pytest.approx(found.low)


def test_one_other_device_is_carried_over_half_way_and_intervals_hold() -> None:
    shares = []
    for seed in range(5):
        source = calibrated(device("A100-80GB", seed))
        with pytest.warns(PerflexWarning, match="no sample of this device"):
            carried = transfer([source], machine="H100-SXM")
        for name, value in GENERAL.usual.items():
            assert carried.fit[name] == pytest.approx(np.sqrt(source.fit[name] * value))
        shares.append(inside(carried, device("H100-SXM", 100 + seed)))
    assert np.mean(shares) > 0.94


def test_times_of_the_device_narrow_the_interval() -> None:
    source, table = calibrated(device("A100-80GB", 0)), device("H100-SXM", 10)
    with pytest.warns(PerflexWarning):
        without = transfer([source], machine="H100-SXM")
    with_samples = transfer([source], table.take(range(0, len(table), 4)), machine="H100-SXM")
    values = table.columns(MODEL.input_features())
    wide, narrow = (interval_at(one, values) for one in (without, with_samples))
    assert np.median(narrow.high / narrow.low) < 0.8 * np.median(wide.high / wide.low)


@pytest.mark.parametrize(("name", "deviation"), [("matmul_even", 0.0), ("matmul_fp8", np.log(2))])
def test_kernels_unlike_all_that_was_judged_have_wider_intervals(name: str, deviation: float) -> None:
    calibration, case = usual("A100-80GB"), stored(name)
    program = code_of(case, case["ttir"]["3.9.0"]["80"]).program(launch_of(case))
    kernel = LaunchedKernel(lambda: None)
    with mock.patch.object(kernel, "program", return_value=program):
        with pytest.warns(PerflexWarning) as told:
            found = calibration.predict_interval(kernel, {})
        alone = interval_at(calibration, calibration.feature_values(kernel, {}))
    assert any("products of f8E5M2" in str(one.message) for one in told) == bool(deviation)
    for end in ("low", "high"):
        widths = [abs(np.log(getattr(one, end) / one.predicted)) for one in (found, alone)]
        assert widths[0] == pytest.approx(np.hypot(widths[1], 1.96 * deviation), rel=1e-3)


def test_other_models_have_no_usual_values() -> None:
    assert usual_description(MODEL) is not None
    assert usual_description(load_model("matmul_sq").model()) is None
