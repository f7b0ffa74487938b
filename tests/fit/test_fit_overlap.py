"""fit_model where costs overlap, or do not: sharpness, edges and hidden fractions, their bounds, and rates as costs."""

import warnings

import numpy as np
import pytest

from perflex import FeatureTable, FitOptions, Model, fit_model
from perflex.errors import PerflexWarning

OUTPUT = "f_cl_wall_time"
FEATURES = ("f_vol_dram_load", "f_vol_l2_l1_load", "f_op_float64_madd")
LAUNCH = "f_sync_kernel_launch"
COSTS = np.array([1.2e-12, 4e-13, 5e-12])
RATES = ", ".join(f"{name} / p_{i}" for i, name in enumerate(FEATURES))
PRODUCTS = [f"p_{i} * {name}" for i, name in enumerate(FEATURES)]
OVERLAP = Model(OUTPUT, f"overlap({PRODUCTS[0]}, {PRODUCTS[1]} + {PRODUCTS[2]}, p_edge)")
PARTIAL = Model(OUTPUT, f"partial_overlap({PRODUCTS[0]}, {PRODUCTS[1]} + {PRODUCTS[2]}, 5, p_hidden)")


def costs_of(seed, *, decades=(-5.0, -2.0)):
    return 10 ** np.random.default_rng(seed).uniform(*decades, (50, 3))


def measured(seconds, costs, *, noise=0.03, seed=0):
    inputs = np.column_stack([np.ones(len(costs)), costs / COSTS])
    spoilt = seconds * (1 + noise * np.random.default_rng([seed, 1]).normal(size=len(costs)))
    names = (OUTPUT, LAUNCH, *FEATURES)
    labels = tuple(f"kernel {i}" for i in range(len(costs)))
    return FeatureTable(OUTPUT, names, labels, np.column_stack([spoilt, inputs]), groups=("a", "b") * 25)


def quietly(model, table, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        return fit_model(model, table, FitOptions(**options))


def costs_in(fit):
    return np.array([fit[f"p_{i}"] for i in range(3)])


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("launch", [0.0, 2e-5])
@pytest.mark.parametrize("seed", range(2))
def test_a_hard_maximum_is_fitted_in_costs_and_in_rates(seed, launch, nonnegative):
    costs = costs_of(seed, decades=(-5.5, -2.5))
    table = measured(costs.max(axis=1) + launch, costs, seed=seed)
    before = f"p_launch * {LAUNCH} + " if launch else ""
    in_rates = quietly(Model(OUTPUT, f"{before}smooth_max({RATES}, p_sharp)"), table, nonnegative=nonnegative)
    in_costs = quietly(
        Model(OUTPUT, f"{before}smooth_max({', '.join(PRODUCTS)}, p_sharp)"), table, nonnegative=nonnegative
    )
    assert [parameter.kind for parameter in in_rates.parameters][-4:] == ["rate", "rate", "rate", "shape"]
    assert in_rates.parameter("p_0").unit == "f_vol_dram_load/s"
    for fit in (in_rates, in_costs):
        assert fit.status.valid
        assert 0 <= fit["p_sharp"] <= 1000
        # A maximum may be too hard for its sharpness to be told, which is said of it alone.
        assert fit.undetermined in {(), ("p_sharp",)}
    np.testing.assert_allclose(1 / costs_in(in_rates), COSTS, rtol=0.05)
    # One model written in two ways has one minimum.
    np.testing.assert_allclose(1 / costs_in(in_rates), costs_in(in_costs), rtol=1e-3)
    assert in_rates.residual_norm == pytest.approx(in_costs.residual_norm, rel=2e-6)
    errors = [in_costs.parameter(f"p_{i}").standard_error / COSTS[i] for i in range(3)]
    relative = [in_rates.parameter(f"p_{i}").standard_error * COSTS[i] for i in range(3)]
    np.testing.assert_allclose(relative, errors, rtol=0.1)


def test_a_rate_that_no_kernel_shows_is_finite_and_at_its_bound():
    costs = costs_of(2)
    # The more of the third a kernel has, the less time it takes: any cost of it would be too much.
    seconds = costs[:, :2].sum(axis=1) * (1 - 0.2 * costs[:, 2] / costs.sum(axis=1))
    fit = quietly(Model(OUTPUT, f"smooth_max({RATES}, p_sharp)"), measured(seconds, costs))
    assert "p_2" in fit.at_bound
    assert np.isfinite(fit["p_2"])
    assert "at bound" in repr(fit)
    assert np.max(costs[:, 2] / COSTS[2] / fit["p_2"] / seconds) < 2e-6


def test_a_launch_that_explains_everything_is_no_valid_fit():
    costs = costs_of(3, decades=(-6.0, -5.0))
    # Kernels that take the longer, the less they do: no cost above zero says anything.
    table = measured(1e-9 / costs.sum(axis=1), costs)
    model = Model(OUTPUT, f"p_launch * {LAUNCH} + smooth_max({RATES}, p_sharp)")
    with pytest.warns(PerflexWarning, match="predicts the same time for all kernels"):
        fit = fit_model(model, table, FitOptions(on_undetermined="warn"))
    assert not fit.status.valid


@pytest.mark.parametrize("residual", ["relative", "logarithmic"])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_costs_that_are_added_are_found_and_said(nonnegative, residual):
    costs = costs_of(0)
    table = measured(costs.sum(axis=1), costs)
    with pytest.warns(PerflexWarning, match="no overlap was found"):
        fit = fit_model(OVERLAP, table, FitOptions(nonnegative=nonnegative, residual=residual))
    assert fit.status.valid
    assert fit.no_overlap == ("p_edge",)
    assert fit.at_bound == ("p_edge",)
    assert fit.undetermined == ()
    assert "no overlap" in repr(fit)
    np.testing.assert_allclose(costs_in(fit), COSTS, rtol=0.05)
    linear = fit_model(
        Model(OUTPUT, " + ".join(PRODUCTS)), table, FitOptions(nonnegative=nonnegative, residual=residual)
    )
    np.testing.assert_allclose(costs_in(fit), costs_in(linear), rtol=1e-8)
    assert fit.parameter("p_0").standard_error == pytest.approx(linear.parameter("p_0").standard_error, rel=0.05)
    values = {name: table.column(name) for name in FEATURES}
    np.testing.assert_allclose(
        OVERLAP.evaluate(fit, values), costs_in(fit) @ np.array(list(values.values())), rtol=1e-12
    )


@pytest.mark.parametrize("edge", [3e3, np.inf])
@pytest.mark.parametrize("seed", range(2))
def test_costs_that_overlap_are_not_taken_for_added(seed, edge):
    costs = costs_of(seed)
    one, other = costs[:, 0], costs[:, 1:].sum(axis=1)
    step = np.sign(one - other) if np.isinf(edge) else np.tanh(edge * (one - other))
    fit = quietly(OVERLAP, measured((one + other) / 2 + (one - other) / 2 * step, costs, seed=seed))
    assert fit.status.valid
    assert fit.no_overlap == ()
    np.testing.assert_allclose(costs_in(fit), COSTS, rtol=0.06)
    if np.isinf(edge):
        # Any larger one fits as well, which the result says.
        assert fit["p_edge"] > 1e4
    else:
        assert fit["p_edge"] == pytest.approx(edge, rel=0.5)


def test_an_edge_that_sum_and_maximum_leave_open_is_undetermined():
    costs = costs_of(8)
    # Of each kernel one side is ten thousand times the other: adding and hiding it are the same.
    costs[:25, 0] *= 1e4
    costs[25:, 1:] *= 1e4
    with pytest.warns(PerflexWarning, match="do not determine p_edge"):
        fit = fit_model(OVERLAP, measured(costs.sum(axis=1), costs))
    assert fit.undetermined == ("p_edge",)
    assert fit.no_overlap == ()
    np.testing.assert_allclose(costs_in(fit), COSTS, rtol=0.06)


def test_a_hidden_fraction_above_one_is_held_at_one_and_named():
    costs = costs_of(5)
    truth = {**{f"p_{i}": cost for i, cost in enumerate(COSTS)}, "p_hidden": 1.34}
    values = dict(zip(FEATURES, (costs / COSTS).T, strict=True))
    table = measured(np.asarray(PARTIAL.evaluate(truth, values)), costs, noise=0.01)
    fit = fit_model(PARTIAL, table)
    assert fit["p_hidden"] == 1.0
    assert fit.at_bound == ("p_hidden",)
    assert fit.parameter("p_hidden").flags == "at bound 1"


def test_times_whose_squares_are_zero_are_fitted():
    costs = costs_of(0)
    table = measured((costs[:, 0] + costs[:, 1] + costs[:, 2]) * 1e-297, costs)
    fit = quietly(OVERLAP, table, residual="absolute", on_undetermined="warn")
    assert np.isfinite(fit.vector).all()
