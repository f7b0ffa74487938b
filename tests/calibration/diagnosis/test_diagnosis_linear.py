"""Leverage, influence and information against their definitions, computed the long way."""

import numpy as np
import pytest

from perflex.calibration.diagnosis.linear import LinearFit

ROWS, COLUMNS = 24, 4


def regression(seed=0):
    """Return a design over many decades, measurements, and the fit of the one to the other."""
    random = np.random.default_rng(seed)
    design = random.uniform(0, 1, (ROWS, COLUMNS)) * (random.random((ROWS, COLUMNS)) < 0.7) * [1e12, 1e3, 1.0, 1e-9]
    design[:COLUMNS] += np.diag([1e12, 1e3, 1.0, 1e-9])
    measured = design @ [2e-12, 1e-3, 3.0, 1e9] + 0.1 * random.normal(size=ROWS)
    solution = solve(design, measured)
    return design, measured, LinearFit(design, design @ solution - measured)


def inverse_length(design):
    return 1 / np.linalg.norm(design, axis=0)


def solve(design, measured):
    return np.linalg.lstsq(design * inverse_length(design), measured, rcond=None)[0] * inverse_length(design)


def variances(design):
    """Return the diagonal of inv(X' X), by exact scaling."""
    scaled = design * inverse_length(design)
    return np.diag(np.linalg.inv(scaled.T @ scaled)) * inverse_length(design) ** 2


def test_studentised_residuals_and_cooks_distance_are_those_of_fits_without_each_row():
    design, measured, fit = regression()
    whole = design @ solve(design, measured)
    variance = fit.residual @ fit.residual / (ROWS - COLUMNS)
    for row in range(ROWS):
        rest = np.arange(ROWS) != row
        solution = solve(design[rest], measured[rest])
        other, moved = design[rest] @ solution - measured[rest], design @ solution - whole
        expected = fit.residual[row] / np.sqrt(other @ other / (ROWS - 1 - COLUMNS) * (1 - fit.leverage[row]))
        assert fit.studentised[row] == pytest.approx(expected, rel=1e-8)
        assert fit.cooks_distance[row] == pytest.approx(moved @ moved / (COLUMNS * variance), rel=1e-7)


def test_information_is_each_rows_part_of_the_estimates_variance():
    design, _, fit = regression()
    scaled = design * inverse_length(design)
    weights = np.linalg.pinv(scaled) ** 2
    np.testing.assert_allclose(fit.information, (weights / weights.sum(axis=1, keepdims=True)).T, rtol=1e-8)
    np.testing.assert_allclose(fit.information.sum(axis=0), 1.0)


def test_error_ratio_is_that_of_the_standard_error_without_the_rows():
    design, _, fit = regression()
    before = variances(design)
    for row in range(ROWS):
        rest = np.arange(ROWS) != row
        np.testing.assert_allclose(fit.error_ratio[row], np.sqrt(variances(design[rest]) / before), rtol=1e-8)
        np.testing.assert_allclose(fit.error_ratio_without(~rest), fit.error_ratio[row], rtol=1e-8)
    block = np.arange(ROWS) < 9
    np.testing.assert_allclose(fit.error_ratio_without(block), np.sqrt(variances(design[~block]) / before), rtol=1e-8)


def test_rows_without_which_a_parameter_is_free():
    design = np.zeros((8, 3))
    design[:, 0] = 1.0
    design[4, 1] = 5.0  # the only row of the second parameter
    design[5:7, 2] = 1e-9  # the only rows of the third
    residual = np.array([0.1, -0.1, 0.2, -0.2, 0.0, 0.1, -0.1, 0.0])
    fit = LinearFit(design, residual)
    assert fit.leverage[4] == pytest.approx(1.0)
    assert np.isnan(fit.leave_one_out[4])
    assert np.isnan(fit.studentised[4])
    np.testing.assert_array_equal(np.isinf(fit.error_ratio[4]), [False, True, False])
    # Five other rows give the constant that is subtracted from it, each a fifth.
    assert fit.information[4, 1] == pytest.approx(1 / (1 + 5 * 0.2**2))
    group = np.isin(np.arange(8), [5, 6])
    np.testing.assert_array_equal(np.isinf(fit.error_ratio_without(group)), [False, False, True])
    np.testing.assert_array_equal(np.isinf(fit.error_ratio_without(np.arange(8) >= 1)), [False, True, True])
    assert np.isinf(fit.error_ratio_without(np.ones(8, dtype=bool))).all()
