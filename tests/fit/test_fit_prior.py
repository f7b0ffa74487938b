"""Fits with a prior: against a general minimiser of the objective, closed forms, and what is refused."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from perflex import FeatureTable, Model
from perflex.errors import CalibrationError
from perflex.fit.options import ParameterPrior, Prior
from perflex.fit.posterior import fit_with_prior

OUTPUT = "f_cl_wall_time"
INPUTS = ("f_op_float32_madd", "f_op_float64_madd", "f_sync_kernel_launch")
MODEL = Model(OUTPUT, f"p_a * {INPUTS[0]} + p_b * {INPUTS[1]} + p_c * {INPUTS[2]}")
PRIOR = Prior(
    {
        "p_a": ParameterPrior(math.log(2e-9), 0.5),
        "p_b": ParameterPrior(math.log(1e-9), 0.2),
        "p_c": ParameterPrior(math.log(1e-5), 1.0),
    },
    noise=0.1,
    sources=("one", "other"),
)


def _table(rows):
    rng = np.random.default_rng(2)
    features = 10 ** rng.uniform(3, 6, (rows, 3))
    features[:, 2] = 1.0
    seconds = features @ np.array([3e-9, 1.1e-9, 8e-6]) * np.exp(rng.normal(0, 0.1, rows))
    labels = tuple(f"kernel {row}" for row in range(rows))
    return FeatureTable(OUTPUT, (OUTPUT, *INPUTS), labels, np.column_stack([seconds, features]))


def _objective(logs, table):
    ratio = table.values[:, 1:] @ np.exp(logs) / table.values[:, 0]
    mean = np.array([entry.mean for entry in PRIOR.values()])
    spread = np.array([entry.spread for entry in PRIOR.values()])
    return float(((np.log(ratio) / 0.1) ** 2).sum() + (((logs - mean) / spread) ** 2).sum())


@pytest.mark.parametrize("rows", [1, 2, 12])
def test_the_mode_is_that_of_the_objective(rows):
    table = _table(rows)
    found = fit_with_prior(MODEL, table, PRIOR)
    start = np.array([entry.mean for entry in PRIOR.values()])
    best = minimize(_objective, start, (table,), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    np.testing.assert_allclose(list(found.values()), np.exp(best.x), rtol=1e-5)
    assert found.status.valid
    assert found.prior is PRIOR


def test_without_rows_it_is_the_prior():
    found = fit_with_prior(MODEL, _table(3).take([]), PRIOR)
    for name, entry in PRIOR.items():
        low, high = found.interval(name)
        assert found[name] == pytest.approx(entry.median)
        assert math.log(high / found[name]) == pytest.approx(1.96 * entry.spread, rel=1e-4)
        assert math.log(found[name] / low) == pytest.approx(1.96 * entry.spread, rel=1e-4)


def test_one_row_of_one_cost_is_a_weighted_mean():
    # log p is normal a priori and measured once: precisions add.
    model = Model(OUTPUT, f"p_a * {INPUTS[0]}")
    prior = Prior({"p_a": ParameterPrior(math.log(1e-9), 0.01)}, noise=0.02)
    table = FeatureTable(OUTPUT, (OUTPUT, INPUTS[0]), ("k",), np.array([[1.005e-6, 1e3]]))
    found = fit_with_prior(model, table, prior)
    weights = 1 / 0.01**2, 1 / 0.02**2
    expected = math.log(1e-9) + weights[1] * math.log(1.005) / sum(weights)
    assert math.log(found["p_a"]) == pytest.approx(expected, abs=1e-5)
    assert found.parameter("p_a").standard_error / found["p_a"] == pytest.approx(sum(weights) ** -0.5, rel=0.01)


def test_a_parameter_held_at_zero_stays():
    found = fit_with_prior(MODEL, _table(12), Prior({**PRIOR, "p_c": ParameterPrior(-math.inf, 0.0)}, PRIOR.noise))
    assert (found["p_c"], found.at_bound) == (0.0, ("p_c",))


def test_refusals():
    scaled = _table(4)
    with pytest.raises(CalibrationError, match="says nothing of p_b, p_c"):
        fit_with_prior(MODEL, scaled, Prior({"p_a": PRIOR["p_a"]}))
    with pytest.raises(CalibrationError, match="a spread above zero"):
        Prior({"p_a": ParameterPrior(0.0, 0.0)})
    with pytest.raises(CalibrationError, match="noise of a prior"):
        Prior({}, noise=0.0)
