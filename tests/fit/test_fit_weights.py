"""Rows that count more or less than others: weighted least squares in closed form, and under a robust loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perflex import (
    FeatureTable,
    Model,
    ParameterPrior,
    Prior,
    fit_model,
    scale_features_by_output,
    weigh_generators_alike,
)
from perflex.errors import CalibrationError

MODEL = Model("f_cl_wall_time", "p_a * f_sync_kernel_launch + p_b * f_thread_groups")
GROUPS = ("many",) * 12 + ("few",) * 3 + ("one",)


def noisy() -> FeatureTable:
    """Rows of three generators, of which that with the most rows takes 30 % longer than the others say."""
    random = np.random.default_rng(7)
    launches, groups = random.uniform(1, 2, len(GROUPS)), random.uniform(10, 200, len(GROUPS))
    late = np.where(np.array(GROUPS) == "many", 1.3, 1.0) * random.normal(1, 0.02, len(GROUPS))
    seconds = (5e-6 * launches + 2e-7 * groups) * late
    return FeatureTable(
        "f_cl_wall_time",
        ("f_cl_wall_time", "f_sync_kernel_launch", "f_thread_groups"),
        tuple(f"row {i}" for i in range(len(GROUPS))),
        np.column_stack([seconds, launches, groups]),
        groups=GROUPS,
    )


def test_generators_count_alike() -> None:
    table = weigh_generators_alike(noisy())
    assert table.weights is not None
    totals = {name: table.weights[np.array(GROUPS) == name].sum() for name in set(GROUPS)}
    np.testing.assert_allclose(list(totals.values()), len(GROUPS) / 3)
    part = table.take([0, 12])
    assert part.weights is not None
    np.testing.assert_array_equal(part.weights, table.weights[[0, 12]])


@pytest.mark.parametrize("scaled", [False, True])
def test_weighted_least_squares_in_closed_form(scaled: bool) -> None:
    table = weigh_generators_alike(scale_features_by_output(noisy()) if scaled else noisy())
    fit = fit_model(MODEL, table)
    seconds, features = table.values[:, 0], table.values[:, 1:]
    scale = 1 / seconds if scaled else np.ones(len(table))
    columns, target = features * scale[:, None], seconds * scale
    weights = np.diag([16 / 36] * 12 + [16 / 9] * 3 + [16 / 3])
    normal = columns.T @ weights @ columns
    expected = np.linalg.solve(normal, columns.T @ weights @ target)
    np.testing.assert_allclose(list(fit.values()), expected, rtol=1e-8)
    rest = target - columns @ expected
    covariance = rest @ weights @ rest / (len(table) - 2) * np.linalg.inv(normal)
    np.testing.assert_allclose(fit.covariance, covariance, rtol=1e-6)
    plain = fit_model(MODEL, replace(table, weights=None))
    assert abs(fit["p_b"] / plain["p_b"] - 1) > 0.02, "weights must matter here"


def test_a_weight_is_how_often_a_robust_loss_counts() -> None:
    table = weigh_generators_alike(scale_features_by_output(noisy()))
    fit = fit_model(MODEL, table, loss="soft_l1")
    assert table.weights is not None
    assert fit.loss_scale is not None
    values = np.array(list(fit.values()))
    predicted = table.values[:, 1:] @ values
    residual = np.log(predicted / table.values[:, 0])
    influence = table.weights * residual / np.hypot(1, residual / fit.loss_scale)
    gradient = (table.values[:, 1:] / predicted[:, None] * values).T @ influence
    # The derivative of the weighted loss by the parameters' logarithms, beside the size of what cancels.
    assert np.abs(gradient).max() < 1e-5 * np.abs(influence).sum()


def test_equal_weights_change_nothing() -> None:
    table = scale_features_by_output(noisy())
    for loss in ("squared", "soft_l1"):
        plain = fit_model(MODEL, table, loss=loss)
        same = fit_model(MODEL, replace(table, weights=np.ones(len(table))), loss=loss)
        assert dict(same) == dict(plain)
        np.testing.assert_array_equal(same.covariance, plain.covariance)
        assert same.interval("p_b") == plain.interval("p_b")


def test_what_does_not_go_with_weights_is_refused() -> None:
    table = scale_features_by_output(noisy())
    with pytest.raises(CalibrationError, match="does not name the generators"):
        weigh_generators_alike(replace(table, groups=()))
    with pytest.raises(CalibrationError, match="weight of row 2 is 0"):
        fit_model(MODEL, replace(table, weights=np.array([1.0, 1, 0] + [1] * 13)))
    with pytest.raises(CalibrationError, match="weights is not a finite number for row 0"):
        fit_model(MODEL, replace(table, weights=np.array([np.nan] + [1] * 15)))
    prior = Prior({name: ParameterPrior(0.0, 1.0) for name in MODEL.params()}, 0.1)
    with pytest.raises(CalibrationError, match="leave out the table's weights"):
        fit_model(MODEL, weigh_generators_alike(table), prior=prior)
