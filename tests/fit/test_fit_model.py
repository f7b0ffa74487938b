"""fit_model: recovery of known parameters, bounds, what is refused, what the result says."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.optimize import nnls

import perflex.features
from perflex import FeatureTable, FitOptions, Model, fit_model
from perflex.errors import CalibrationError, PerflexWarning
from perflex.fit.minimise import minimise
from perflex.fit.result import geometric_mean_error
from perflex.fit.table import FeatureInfo

OUTPUT = "f_cl_wall_time_test"


@pytest.fixture(autouse=True)
def any_feature(monkeypatch):
    monkeypatch.setattr(perflex.features, "parse_feature", lambda identifier: identifier, raising=False)


def counts(features, rows, seed=0):
    """Return feature values over five decades, about half of them zero, no row empty."""
    random = np.random.default_rng(seed)
    values = 10 ** random.uniform(3, 8, (rows, len(features))) * (random.random((rows, len(features))) < 0.5)
    values[np.arange(rows), np.arange(rows) % len(features)] += 1e4
    return dict(zip(features, values.T, strict=True))


def table_of(model, inputs, seconds):
    info = {
        "f_op": FeatureInfo("sub-group operation", 32, "op"),
        "f_mem": FeatureInfo("access", 4, "B"),
        "f_barrier": FeatureInfo("barrier"),
        "f_groups": FeatureInfo("work-group"),
    }
    labels = tuple(f"kernel {i}" for i in range(len(seconds)))
    columns = np.column_stack([seconds, *inputs.values()])
    return FeatureTable(model.output_feature, (model.output_feature, *inputs), labels, columns, info=info)


def measured(model, params, rows, *, noise=0.0, seed=0):
    inputs = counts(model.input_features(), rows, seed)
    seconds = model.evaluate(params, inputs) * (1 + noise * np.random.default_rng(seed + 1).normal(size=rows))
    return table_of(model, inputs, seconds)


def assert_recovered(result, params, rel):
    for name, value in params.items():
        assert result[name] == pytest.approx(value, rel=rel, abs=0), name


@pytest.mark.parametrize("residual", ["relative", "logarithmic", "absolute"])
def test_tiny_and_large_parameters_together(residual):
    model = Model(OUTPUT, "p_tiny * f_a + p_small * f_b + p_large * f_c + p_launch")
    params = {"p_tiny": 1e-12, "p_small": 3e-9, "p_large": 1e3, "p_launch": 2e-6}
    inputs = counts(model.input_features(), 40)
    inputs["f_c"] = inputs["f_c"] * 1e-14
    options = FitOptions(nonnegative=False, residual=residual)
    result = fit_model(model, table_of(model, inputs, model.evaluate(params, inputs)), options)
    assert_recovered(result, params, 1e-10)
    assert result.status.valid
    assert max(map(abs, result.relative_errors)) < 1e-10


def test_relative_errors_weigh_rows_as_the_papers_division_by_the_output_does():
    model = Model(OUTPUT, "p_a * f_a + p_b * f_b")
    table = measured(model, {"p_a": 1e-12, "p_b": 1e-10}, 30, noise=0.2)
    result = fit_model(model, table)
    columns = np.column_stack([table.column("f_a"), table.column("f_b")]) / table.column(OUTPUT)[:, None]
    scale = np.linalg.norm(columns, axis=0)
    expected, squares, *_ = np.linalg.lstsq(columns / scale, np.ones(30), rcond=None)
    np.testing.assert_allclose(list(result.values()), expected / scale, rtol=1e-12)
    assert result.residual_norm == pytest.approx(np.sqrt(squares[0]), rel=1e-12)
    inverse = np.linalg.inv((columns / scale).T @ (columns / scale)) * squares[0] / 28
    errors = [parameter.standard_error for parameter in result.parameters]
    np.testing.assert_allclose(errors, np.sqrt(np.diag(inverse)) / scale, rtol=1e-9)
    assert result.correlation[0, 1] == pytest.approx(inverse[0, 1] / np.sqrt(inverse[0, 0] * inverse[1, 1]))
    assert fit_model(model, table, FitOptions(residual="absolute"))["p_a"] != pytest.approx(
        result["p_a"], rel=1e-3, abs=0
    )


NONLINEAR = [
    (
        "overlap(p_a * f_a + p_b * f_b, p_c * f_c + p_d * f_d, p_edge) + p_launch",
        {"p_a": 1e-11, "p_b": 3e-12, "p_c": 2e-11, "p_d": 5e-12, "p_edge": 2e3, "p_launch": 4e-6},
    ),
    (
        "partial_overlap(p_a * f_a + p_b * f_b, p_c * f_c, p_edge, p_hidden) + p_launch",
        {"p_a": 1e-11, "p_b": 3e-12, "p_c": 2e-11, "p_edge": 4.0, "p_hidden": 0.7, "p_launch": 4e-6},
    ),
    (
        "p_a*f_a*(tanh(p_edge*(p_a*f_a-p_c*f_c))+1)/2 + p_c*f_c*(tanh(p_edge*(p_c*f_c-p_a*f_a))+1)/2",
        {"p_a": 1e-11, "p_c": 4e-11, "p_edge": 1e3},
    ),
    ("p_a * f_a + p_a * p_r * f_b", {"p_a": 1e-11, "p_r": 17.0}),
    ("p_a * f_a / (1 + f_b / p_half) + p_launch", {"p_a": 1e-11, "p_half": 3e6, "p_launch": 1e-6}),
]


@pytest.mark.parametrize(("expression", "params"), NONLINEAR)
@pytest.mark.parametrize("nonnegative", [False, True])
def test_nonlinear_models_are_recovered(expression, params, nonnegative):
    model = Model(OUTPUT, expression)
    result = fit_model(model, measured(model, params, 60), FitOptions(nonnegative=nonnegative))
    assert result.status.valid
    assert_recovered(result, params, 1e-7)


@pytest.mark.filterwarnings("ignore:the measurement kernels hardly separate")
@pytest.mark.parametrize("seed", range(3))
def test_nonnegative_linear_fit_is_the_constrained_optimum(seed):
    names = [f"p_{i} * f_{i}" for i in range(8)]
    model = Model(OUTPUT, " + ".join(names))
    params = {f"p_{i}": (1e-10 if i % 2 else -2e-11) * (1 + i) for i in range(8)}
    inputs = counts(model.input_features(), 40, seed)
    seconds = np.maximum(model.evaluate(params, inputs), 1e-6)
    table = table_of(model, inputs, seconds)
    result = fit_model(model, table)
    columns = np.column_stack(list(inputs.values())) / seconds[:, None]
    scale = np.linalg.norm(columns, axis=0)
    expected, norm = nnls(columns / scale, np.ones(40))
    np.testing.assert_allclose(np.array(list(result.values())) * scale, expected, rtol=1e-9, atol=1e-12)
    assert result.residual_norm == pytest.approx(norm, rel=1e-12)
    assert {f"p_{i}" for i in np.flatnonzero(expected == 0)} == set(result.at_bound)
    assert result.at_bound
    for name in result.at_bound:
        assert result[name] == 0.0
        assert np.isnan(result.parameter(name).standard_error)


def test_nonnegative_nonlinear_fit_satisfies_the_optimality_conditions():
    sides = [" + ".join(f"p_{s}{i} * f_{s}{i}" for i in range(4)) for s in "go"]
    model = Model(OUTPUT, f"overlap({sides[0]}, {sides[1]}, p_edge) + p_launch")
    params = {f"p_{s}{i}": 1e-11 * (1 + i) for s in "go" for i in range(4)} | {"p_edge": 1e3, "p_launch": 1e-6}
    params |= {"p_g1": -2e-12, "p_o2": -3e-12}
    inputs = counts(model.input_features(), 80)
    random = np.random.default_rng(0)
    seconds = np.maximum(model.evaluate(params, inputs), 1e-6) * (1 + 0.03 * random.normal(size=80))
    table = table_of(model, inputs, seconds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        result = fit_model(model, table)
    assert result.status.valid
    assert min(result.values()) >= 0
    assert result.at_bound
    x = {**inputs, **dict(result)}
    residual = (model.evaluate(dict(result), inputs) - seconds) / seconds
    jacobian = model.derivatives(x, 80) / seconds[:, None]
    length = np.maximum(np.linalg.norm(jacobian, axis=0), 1e-300)
    slope = jacobian.T @ residual / length / np.linalg.norm(residual)
    slopes = dict(zip(model.params(), slope, strict=True))
    # An edge that is not identified is chosen: at its upper bound, where the model is the larger of both sides.
    for name in result.undetermined:
        assert name == "p_edge"
        del slopes[name]
    for name, value in slopes.items():
        assert value >= -1e-6 if name in result.at_bound else abs(value) < 1e-6, name


def test_negative_costs_are_flagged():
    model = Model(OUTPUT, "p_op * f_op + p_mem * f_mem")
    inputs = counts(model.input_features(), 20)
    inputs["f_mem"] = inputs["f_op"] * 0.3 + inputs["f_mem"] * 0.01
    seconds = 1e-11 * inputs["f_op"] - 1e-12 * inputs["f_mem"]
    keep = seconds > 0
    table = table_of(model, {f: v[keep] for f, v in inputs.items()}, seconds[keep])
    with pytest.warns(PerflexWarning, match="negative costs were fitted: p_mem"):
        result = fit_model(model, table, FitOptions(nonnegative=False))
    assert result.negative_costs == ("p_mem",)
    assert result.parameter("p_mem").rate is None
    assert "negative cost" in repr(result)


def refused(expression, table, **options):
    with pytest.raises(CalibrationError) as caught:
        fit_model(Model(OUTPUT, expression), table, FitOptions(**options))
    return caught.value


def test_a_parameter_no_kernel_informs_is_named():
    model = Model(OUTPUT, "p_op * f_op + p_mem * f_mem + p_launch")
    inputs = counts(model.input_features(), 20)
    inputs["f_mem"][:] = 0
    table = table_of(model, inputs, 1e-11 * inputs["f_op"] + 1e-6)
    for nonnegative in (False, True):
        error = refused(model.expression, table, nonnegative=nonnegative)
        assert error.parameters == ("p_mem",)
        assert "p_mem is determined by no kernel (f_mem is zero in all of them)" in error.message
        assert "add kernels" in error.message
    with pytest.warns(PerflexWarning, match="do not determine p_mem"):
        result = fit_model(model, table, FitOptions(on_undetermined="warn"))
    assert result.undetermined == ("p_mem",)
    assert result["p_mem"] == 0.0
    assert np.isnan(result.parameter("p_mem").standard_error)
    assert_recovered(result, {"p_op": 1e-11, "p_launch": 1e-6}, 1e-9)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_collinear_parameters_are_named_together(nonnegative):
    expression = "p_op * f_op + p_mem * f_mem + p_barrier * f_barrier + p_launch"
    model = Model(OUTPUT, expression)
    inputs = counts(model.input_features(), 30)
    inputs["f_barrier"] = 3 * inputs["f_op"]
    seconds = 1e-11 * inputs["f_op"] + 2e-10 * inputs["f_mem"] + 1e-6
    table = table_of(model, inputs, seconds)
    error = refused(expression, table, nonnegative=nonnegative)
    assert set(error.parameters) == {"p_op", "p_barrier"}
    assert "only a combination of p_op, p_barrier is determined" in error.message
    with pytest.warns(PerflexWarning, match="p_op, p_barrier"):
        result = fit_model(model, table, FitOptions(nonnegative=nonnegative, on_undetermined="warn"))
    assert set(result.undetermined) == {"p_op", "p_barrier"}
    # Smallest in columns of equal length: each carries half of the cost.
    assert_recovered(result, {"p_op": 5e-12, "p_barrier": 5e-12 / 3, "p_mem": 2e-10, "p_launch": 1e-6}, 1e-8)
    assert max(map(abs, result.relative_errors)) < 1e-9


def test_bad_tables_and_options_are_refused():
    model = Model(OUTPUT, "p_op * f_op + p_mem * f_mem")
    inputs = counts(model.input_features(), 20)
    seconds = 1e-11 * (inputs["f_op"] + inputs["f_mem"])
    table = table_of(model, inputs, seconds)
    spoilt = dict(inputs, f_mem=np.where(np.arange(20) == 7, np.nan, inputs["f_mem"]))
    zero = table_of(model, inputs, np.where(np.arange(20) == 3, 0.0, seconds))
    long, short = np.linspace(1e8, 9e8, 20), np.linspace(3e3, 1e3, 20) ** 1.1
    hidden = table_of(model, {"f_op": long, "f_mem": short}, 1e-11 * long)
    for expression, given, words in (
        (model.expression, table.take([0]), "1 kernels cannot determine 2 parameters (p_op, p_mem)"),
        (model.expression, table_of(model, spoilt, seconds), "f_mem is not a finite number for kernel 7"),
        (model.expression, zero, f"relative to {OUTPUT}, which is not positive for kernel 3"),
        ("p_op * f_other", table, "no column 'f_other'"),
        ("max(p_op * f_op, p_mem * f_mem)", table, "write smooth_max(x, y, ..., p_sharp) instead of max"),
        ("min(p_op * f_op, p_mem * f_mem)", table, "fitted; keep parameters out of min"),
        ("f_op", table, "no parameters"),
        ("p_op * log(-1 - f_op) * f_op", table, "cannot begin"),
        # One cost is hidden in all kernels.
        ("overlap(p_op * f_op, p_mem * f_mem, 1e9)", hidden, "no effect"),
        ("overlap(p_op * f_op, p_mem * f_mem, 3)", table, "the edge 3 of overlap decides no kernel"),
    ):
        assert words in refused(expression, given).message
    with pytest.raises(CalibrationError, match="p_c, which is not a parameter"):
        fit_model(model, table, starts=[{"p_c": 1.0}])
    for options, words in (
        ({"on_undetermined": "ignore"}, "must be one of error, warn"),
        ({"residual": "huber"}, "logarithmic"),
    ):
        with pytest.raises(ValueError, match=words):
            FitOptions(**options)


def test_given_starts():
    model = Model(OUTPUT, "p_a * (f_a + 100) * (2 + tanh(p_b * f_b - 3))")
    table = measured(model, {"p_a": 1e-11, "p_b": 2e-7}, 40)
    assert_recovered(fit_model(model, table, starts=[{"p_b": 1e-7}]), {"p_a": 1e-11, "p_b": 2e-7}, 1e-8)


@pytest.mark.parametrize("steep_from", [0.0, 0.5])
def test_derivatives_whose_squares_overflow_end_a_start(steep_from):
    def jacobian(x):
        return np.array([[1e200 if x[0] >= steep_from else 1.0]])

    # The start is at 0, and the minimum at 1.
    with pytest.raises(ArithmeticError, match="not finite"):
        minimise(lambda x: x - 1, jacobian, np.zeros(1), bounds=(np.full(1, -1.0), np.full(1, 2.0)))


def test_units_and_rates():
    expression = (
        "overlap(p_mem * f_mem, p_op * f_op + 2 * p_twice * f_op2, p_edge) + "
        "p_barrier * f_barrier * f_groups + p_launch"
    )
    params = {"p_mem": 4e-11, "p_op": 1e-11, "p_twice": 3e-11, "p_edge": 2e3, "p_barrier": 1e-17, "p_launch": 1e-5}
    model = Model(OUTPUT, expression)
    result = fit_model(model, measured(model, params, 80))
    by_name = {parameter.name: parameter for parameter in result.parameters}
    assert {name: parameter.unit for name, parameter in by_name.items()} == {
        "p_mem": "s per access",
        "p_op": "s per sub-group operation",
        "p_twice": "s per f_op2",
        "p_edge": "1/s",
        "p_barrier": "s per (barrier * work-group)",
        "p_launch": "s",
    }
    for name, rate, unit in (("p_mem", 4 / 4e-11, "B/s"), ("p_op", 32 / 1e-11, "op/s")):
        assert (by_name[name].rate, by_name[name].rate_unit) == (pytest.approx(rate, rel=1e-6), unit)
    assert by_name["p_launch"].rate is by_name["p_barrier"].rate is None
    assert by_name["p_edge"].kind == "shape"
    partial = Model(OUTPUT, "partial_overlap(p_mem * f_mem, 2 * p_op * f_op, p_edge, p_hidden)")
    params = {"p_mem": 4e-11, "p_op": 1e-11, "p_edge": 4.0, "p_hidden": 0.5}
    result = fit_model(partial, measured(partial, params, 80))
    assert [parameter.unit for parameter in result.parameters][2:] == ["1", "1"]
    assert result.parameter("p_op").rate == pytest.approx(16 / 1e-11, rel=1e-6)


def test_result_is_a_mapping_with_a_table():
    model = Model(OUTPUT, "p_op * f_op + p_mem * f_mem")
    table = measured(model, {"p_op": 1e-11, "p_mem": 1e-10}, 25, noise=0.05)
    result = fit_model(model, table)
    assert list(result) == ["p_op", "p_mem"]
    assert dict(**result) == dict(pickle.loads(pickle.dumps(result)))
    with pytest.raises(KeyError):
        result["p_none"]
    predicted = model.evaluate(result, counts(model.input_features(), 25))
    errors = predicted / table.column(OUTPUT) - 1
    np.testing.assert_allclose(result.relative_errors, errors, rtol=1e-12, atol=1e-15)
    assert result.geometric_mean_error == pytest.approx(np.exp(np.mean(np.log(np.abs(errors)))))
    # No error counts as less than a millionth, and what is no number does not count.
    assert geometric_mean_error([0.04, 0.0, np.nan]) == pytest.approx(np.sqrt(0.04 * 1e-6))
    assert np.isnan(geometric_mean_error([]))
    for words in ("op/s", "converged", "25 kernels"):
        assert words in repr(result)
