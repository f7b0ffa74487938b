"""What is squared and added up: relative, logarithmic or absolute errors; against scipy and simulated truth."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from perflex import FeatureTable, FitOptions, Model, fit_model

OUTPUT = "f_cl_wall_time_test"
LINEAR = Model(OUTPUT, "p_a * f_thread_groups + p_b * f_waves + p_launch")
OVERLAP = Model(OUTPUT, "p_launch + p_a * f_thread_groups + overlap(p_b * f_waves, p_c * f_sync_barrier_local, p_edge)")
TRUTH = {"p_a": 1e-11, "p_b": 3e-10, "p_launch": 2e-6, "p_c": 8e-11, "p_edge": 1e5}
ROWS = 50


def truth_of(model):
    return {name: TRUTH[name] for name in model.params()}


def counted(model, random):
    return {name: 10 ** random.uniform(3, 7, ROWS) for name in model.input_features()}


def table_of(inputs, seconds):
    labels = tuple(f"kernel {i}" for i in range(len(seconds)))
    return FeatureTable(OUTPUT, (OUTPUT, *inputs), labels, np.column_stack([seconds, *inputs.values()]))


def noisy(random, noise=0.05):
    inputs = counted(LINEAR, random)
    seconds = np.asarray(LINEAR.evaluate(truth_of(LINEAR), inputs))
    return inputs, seconds, seconds * np.exp(noise * random.normal(size=ROWS))


@pytest.mark.parametrize("model", [LINEAR, OVERLAP], ids=["linear", "overlap"])
@pytest.mark.parametrize("residual", ["relative", "logarithmic", "absolute"])
def test_exact_data_are_fitted_to_the_last_digits(model, residual):
    inputs = counted(model, np.random.default_rng(4))
    fit = fit_model(model, table_of(inputs, model.evaluate(truth_of(model), inputs)), FitOptions(residual=residual))
    assert dict(fit) == pytest.approx(truth_of(model), rel=1e-8, abs=0)
    assert max(map(abs, fit.relative_errors)) < 1e-11
    assert fit.status.valid


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_logarithms_are_scipys_with_the_standard_errors_of_least_squares(seed):
    inputs, _, seconds = noisy(np.random.default_rng(seed))
    fit = fit_model(LINEAR, table_of(inputs, seconds), FitOptions(residual="logarithmic"))
    values = np.array(list(fit.values()))

    def residual(factors):
        return np.log(LINEAR.evaluate(dict(zip(fit, factors * values, strict=True)), inputs) / seconds)

    found = least_squares(residual, [1.1, 0.9, 1.05], xtol=1e-15, ftol=1e-15, gtol=1e-15)
    errors = np.array([p.standard_error for p in fit.parameters]) / values
    assert (np.abs(found.x - 1) < 1e-4 * errors).all()
    covariance = np.linalg.inv(found.jac.T @ found.jac) * 2 * found.cost / (ROWS - 3)
    np.testing.assert_allclose(errors, np.sqrt(np.diag(covariance)), rtol=1e-4)
    assert fit.residual_norm == pytest.approx(np.sqrt(2 * found.cost), rel=1e-9)


def test_noise_pulls_predictions_down_but_not_of_logarithms():
    def bias(residual):
        found = []
        for seed in range(30):
            inputs, exact, seconds = noisy(np.random.default_rng(seed), 0.1)
            fit = fit_model(LINEAR, table_of(inputs, seconds), FitOptions(residual=residual, on_undetermined="warn"))
            found.append(float(np.mean(np.log(LINEAR.evaluate(fit, inputs) / exact))))
        return np.mean(found)

    # To second order by the variance of the noise and a half, for its mean square is in the denominators.
    assert bias("relative") == pytest.approx(-1.5 * 0.1**2, abs=0.005)
    assert abs(bias("logarithmic")) < 0.004


def test_absolute_errors_have_no_logarithms():
    # Outputs below zero, which have no logarithm.
    inputs = counted(LINEAR, np.random.default_rng(0))
    model = Model(OUTPUT, "p_a * f_thread_groups - p_b * f_waves")
    exact = 2.0 * inputs["f_thread_groups"] - 5.0 * inputs["f_waves"]
    fit = fit_model(model, table_of(inputs, exact), FitOptions(nonnegative=False, residual="absolute"))
    assert dict(fit) == pytest.approx({"p_a": 2.0, "p_b": 5.0}, rel=1e-3)
