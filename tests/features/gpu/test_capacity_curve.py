"""Capacity curves fitted to data."""

from __future__ import annotations

import numpy as np
import pytest

from perflex import fit_capacity_curve
from perflex.errors import CalibrationError
from perflex.features.gpu.rules import gompertz


@pytest.mark.slow
@pytest.mark.parametrize("curve", [(0.9, 100.0, 5.0), (1.0, 30.0, 2.0), (0.6, 4.0, 1.0), (1.0, 5000.0, 8.0)])
def test_coefficients_come_back(curve: tuple[float, float, float]) -> None:
    o = np.linspace(0, 4, 30)
    found = fit_capacity_curve(o, [gompertz(curve, value) for value in o])
    assert found.curve == pytest.approx(curve, rel=1e-4)
    assert found.residual < 1e-4


def test_noise_leaves_the_curve_within_it() -> None:
    curve = (0.95, 60.0, 4.0)
    o = np.linspace(0.1, 3, 60)
    truth = np.array([gompertz(curve, value) for value in o])
    noisy = np.clip(truth + np.random.default_rng(3).normal(0, 0.03, len(o)), 0, 1)
    found = fit_capacity_curve(o, noisy)
    assert found.residual == pytest.approx(0.03, rel=0.4)
    assert np.abs([gompertz(found.curve, value) for value in o] - truth).max() < 0.04


@pytest.mark.parametrize(
    ("o", "rate", "words"),
    [
        ([0, 1, 2], [0, 0.5, 1], "at least four points"),
        ([1, 1, 2, 2], [0, 0, 1, 1], "three different"),
        ([0, 1, 2, 3], [0, 0.5, 1], "as many rates"),
        ([0, 1, 2, np.nan], [0, 0.5, 1, 1], "finite"),
        ([0, 1, 2, -3], [0, 0.5, 1, 1], "not negative"),
        ([0, 1, 2, 3], [0, 0.5, 1, 1.2], "shares from 0 to 1"),
    ],
)
def test_data_that_fit_no_curve(o, rate, words) -> None:
    with pytest.raises(CalibrationError, match=words):
        fit_capacity_curve(o, rate)
