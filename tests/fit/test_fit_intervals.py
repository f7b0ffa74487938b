"""Intervals of fitted costs: coverage by simulation where bounds hold parameters, and the pair that is collinear."""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import optimize, special, stats

from perflex import FeatureTable, Model, fit_model
from perflex.errors import PerflexWarning
from perflex.fit.confidence import confidence_intervals, residual_noise
from perflex.fit.problem import Problem

OUTPUT = "f_cl_wall_time_test"
FEATURES = ("f_op_float32_add", "f_op_float32_mul", "f_op_float32_div")
MODEL = Model(OUTPUT, "p_a * f_op_float32_add + p_b * f_op_float32_mul + p_c * f_op_float32_div")


def measured(seed, apart, *, noise=0.05, rows=30):
    """Return times of three equal costs of 1 ns; the first two features are alike but for a share `apart`."""
    random = np.random.default_rng(seed)
    first, second = 10 ** random.uniform(3, 6, (2, rows))
    if apart is not None:
        second = first * np.exp(apart * random.normal(size=rows))
    counts = np.column_stack([first, second, np.full(rows, 1e4)])
    seconds = counts.sum(axis=1) * 1e-9 * (1 + noise * random.normal(size=rows))
    labels = tuple(map(str, range(rows)))
    return FeatureTable(OUTPUT, (OUTPUT, *FEATURES), labels, np.column_stack([seconds, counts]))


def quietly(model, table):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        return fit_model(model, table)


def fitted(seed, apart, **options):
    return quietly(MODEL, measured(seed, apart, **options))


@pytest.mark.parametrize(("apart", "rows"), [(0.005, 30), (None, 140)])
@pytest.mark.slow
def test_intervals_of_costs_hold_them(apart, rows):
    fits = [fitted(seed, apart, rows=rows, noise=0.1 if rows > 100 else 0.05) for seed in range(200)]
    for name in ("p_a", "p_b"):
        inside = [low <= 1e-9 <= high for low, high in (fit.interval(name) for fit in fits)]
        assert 0.9 <= np.mean(inside) <= 0.99


def test_a_bound_hides_neither_costs_nor_the_pair():
    with pytest.warns(PerflexWarning, match=r"hardly separate p_a, p_b \(condition number \d+ without bounds\)"):
        assert "hardly separated: p_a, p_b" in repr(fit_model(MODEL, measured(0, 0.005)))
    seen = 0
    for seed in range(6):
        fit = fitted(seed, 0.005)
        if not set(fit.at_bound) & {"p_a", "p_b"}:
            continue
        seen += 1
        assert fit.condition_number > 100
        assert fit.collinear == ("p_a", "p_b")
        for name in fit.collinear:
            low, high = fit.interval(name)
            # All that is known is their sum of 2 ns.
            assert low < 1e-9 < high < 2.2e-9
            assert high - low > 1.5e-9
    assert seen > 2


def test_separated_costs_are_not_called_collinear():
    fit = fitted(0, None)
    assert fit.collinear == ()
    assert fit.condition_number < 30
    for parameter in fit.parameters:
        low, high = fit.interval(parameter.name)
        assert (low + high) / 2 == pytest.approx(parameter.value, rel=0.02)
    with pytest.raises(KeyError):
        fit.interval("p_none")


def test_far_from_bounds_the_interval_is_students():
    random = np.random.default_rng(1)
    jacobian = random.normal(size=(20, 3))
    truth = np.array([50.0, 60.0, 70.0])
    target = jacobian @ truth + random.normal(size=20)
    solution, squares, *_ = np.linalg.lstsq(jacobian, target, rcond=None)
    deviation = np.full(20, np.sqrt(squares[0] / 17))
    # From any point: the free solution is what counts.
    start = solution + random.normal(size=3)
    found = confidence_intervals(jacobian, jacobian @ start - target, start, np.ones(3, dtype=bool), deviation)
    error = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian))) * deviation[0]
    np.testing.assert_allclose(found.mean(axis=1), solution)
    np.testing.assert_allclose(np.diff(found)[:, 0] / 2, stats.t.ppf(0.975, 17) * error)


@cache
def limit(mean):
    """Return by how much the squares may rise for a normal mean that is not negative, from the normal distribution."""

    def held(rise):
        low, high = mean - np.sqrt(rise), mean + np.sqrt(rise)
        # Below zero the best mean is zero, and the rise mean**2 - 2 * x * mean.
        low = low if low >= 0 else (mean**2 - rise) / (2 * mean)
        return float(special.ndtr(high - mean) - special.ndtr(low - mean)) - 0.95

    return float(optimize.brentq(held, 1e-6, 20.0))


@pytest.mark.parametrize("x", [-1.0, 0.0, 1.0, 3.0])
def test_one_bounded_mean_has_the_limits_of_feldman_and_cousins(x):
    means = np.linspace(0.01, 6.0, 600)
    inside = [m for m in means if (x - m) ** 2 - (x - max(x, 0.0)) ** 2 <= limit(float(m))]
    rows = 2000
    jacobian = np.full((rows, 1), 1 / np.sqrt(rows))
    start = np.array([max(x, 0.0)])
    found = confidence_intervals(jacobian, jacobian @ (start - x), start, np.array([True]), np.ones(rows))
    np.testing.assert_allclose(found[0], (min(inside), max(inside)), atol=0.15)


def test_noise_is_found_where_it_was_measured_and_where_it_was_not():
    random = np.random.default_rng(5)
    output = 10 ** random.uniform(-6, -2, 300)
    true = np.where(output < 1e-4, 0.15, 0.02)
    residual, equal, basis = true * random.normal(size=300), random.normal(size=300), np.zeros((300, 0))
    unknown = Problem(MODEL, (), {}, output)
    # The samples' spread is three times the noise of their median.
    measured = replace(unknown, noise=3 * true)
    size, at = float(np.sqrt(np.mean(residual**2))), np.array([3e-6, 3e-3])
    found = residual_noise(measured, residual, basis, size)
    assert found.kind == "measured"
    np.testing.assert_allclose(found.deviation(at), (0.15, 0.02), rtol=0.15)
    found = residual_noise(unknown, residual, basis, size)
    assert found.kind == "power"
    np.testing.assert_allclose(found.deviation(at), (0.15, 0.02), rtol=0.5)
    found = residual_noise(unknown, equal, basis, 1.0)
    assert (found.kind, found.scale) == ("constant", 1.0)
    # Measured noise that residuals do not show has no part in them.
    np.testing.assert_allclose(residual_noise(measured, equal, basis, 1.0).deviation(at), 1.0, rtol=0.2)


def test_repeatability_comes_before_spread():
    table = measured(0, None, rows=4)
    spread, repeated = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.01, np.nan, 0.03, np.nan])
    assert replace(table, spread=spread, repeatability=repeated).noise is repeated
    assert replace(table, spread=spread, repeatability=np.where(repeated < 0.02, np.nan, repeated)).noise is spread
    assert table.noise is None


def test_an_interval_of_a_rate_is_that_of_its_cost():
    table = measured(0, None)
    rates = Model(OUTPUT, f"p_a * {FEATURES[0]} + {FEATURES[1]} / p_b + p_c * {FEATURES[2]}")
    low, high = quietly(MODEL, table).interval("p_b")
    assert quietly(rates, table).interval("p_b") == pytest.approx((1 / high, 1 / low), rel=1e-4)


def two_costs(model, truth, seed, rows, decades):
    """Return a fit to times that a law of the counts of two features gives, with noise."""
    random = np.random.default_rng(seed)
    counts = 10 ** random.uniform(*decades, (rows, 2))
    seconds = truth(counts) * (1 + 0.05 * random.normal(size=rows))
    names = (OUTPUT, *FEATURES[:2])
    return quietly(model, FeatureTable(OUTPUT, names, tuple(map(str, range(rows))), np.column_stack([seconds, counts])))


def test_all_that_is_hidden_has_an_interval_below_one():
    model = Model(OUTPUT, f"partial_overlap(p_a * {FEATURES[0]}, p_b * {FEATURES[1]}, 5.0, p_hidden)")
    held, inside = 0, 0

    def truth(counts):
        inputs = dict(zip(FEATURES, counts.T, strict=False))
        return model.evaluate({"p_a": 1e-9, "p_b": 1e-9, "p_hidden": 1.0}, inputs)

    for seed in range(8):
        fit = two_costs(model, truth, seed, 40, (4, 5))
        low, high = fit.interval("p_hidden")
        assert 0.8 < low < fit["p_hidden"] <= high <= 1.0
        held += "p_hidden" in fit.at_bound
        inside += high == 1.0
    assert held > 0
    assert inside >= 6


def test_a_sharpness_that_only_may_be_larger_is_not_near_zero():
    model = Model(OUTPUT, f"smooth_max(p_a * {FEATURES[0]}, p_b * {FEATURES[1]}, p_sharp)")
    fit = two_costs(model, lambda counts: (counts * 1e-9).max(axis=1), 0, 48, (4, 6))
    # The times are those of a maximum, which the largest sharpness stands for.
    low, high = fit.interval("p_sharp")
    assert 1.0 < low < high == pytest.approx(1000.0)
