"""Functions of overlapping costs: the paper's equations, bounds, limits, derivatives, and derivatives of all others."""

import functools

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from perflex import FeatureTable, Model, fit_model
from perflex.expression.dual import Dual
from perflex.expression.parser import parse_expression
from perflex.expression.tree import evaluate

OVERLAP = Model("f_cl_wall_time", "overlap(p_g, p_o, p_e)")
PARTIAL = Model("f_cl_wall_time", "partial_overlap(p_g, p_o, p_e, p_q)")

COST = st.floats(0, 1e3, allow_subnormal=False)
EDGE = st.floats(0.01, 500)
any_time = settings(deadline=None)


def value(function, *arguments):
    names = [f"p_{i}" for i in range(len(arguments))]
    tree = parse_expression(f"{function}({', '.join(names)})")
    return float(evaluate(tree, dict(zip(names, arguments, strict=True))))


overlap, partial = (functools.partial(value, name) for name in ("overlap", "partial_overlap"))


def high_precision_overlap(g, o, e):
    def step(x):
        return (mpmath.tanh(e * x) + 1) / 2

    return g * step(g - o) + o * step(o - g)


def high_precision_partial(g, o, e, q):
    x = (g - o) / (g + o)
    return g + o - q * (g * (1 + mpmath.tanh(-e * x)) / 2 + o * (1 + mpmath.tanh(e * x)) / 2)


@any_time
@given(COST, COST, EDGE)
def test_overlap_is_the_papers_equation_5_with_6_and_keeps_its_bounds(g, o, edge):
    found = overlap(g, o, edge)
    expected = high_precision_overlap(mpmath.mpf(g), mpmath.mpf(o), mpmath.mpf(edge))
    assert found == pytest.approx(float(expected), rel=1e-12, abs=1e-300)
    assert max((g + o) / 2 * (1 - 1e-12), max(g, o) * (1 - 1e-12) - 0.14 / edge) <= found <= max(g, o) * (1 + 1e-12)


def test_an_edge_of_zero_is_the_sum_and_moves_nothing():
    assert overlap(3.0, 5.0, 0.0) == 8.0
    np.testing.assert_array_equal(OVERLAP.derivatives({"p_g": 3.0, "p_o": 5.0, "p_e": 0.0}, 1), [[1.0, 1.0, 0.0]])
    assert evaluate(parse_expression("overlap(p_g, p_o, 0)"), {"p_g": 3.0, "p_o": 5.0}) == 8.0


@any_time
@given(COST, COST, st.floats(0.5, 200), st.floats(0, 1), st.floats(1e-9, 1e9))
def test_partial_overlap_is_its_formula_keeps_its_bounds_and_is_homogeneous(g, o, edge, hidden, factor):
    found = partial(g, o, edge, hidden)
    if g + o > 1e-100:
        expected = high_precision_partial(*map(mpmath.mpf, (g, o, edge, hidden)))
        assert found == pytest.approx(float(expected), rel=1e-10)
        assert found >= max(g, o) * (1 - 1e-12) - 0.14 * (g + o) / edge
    assert found <= (g + o) * (1 + 1e-12)
    assert partial(factor * g, factor * o, edge, hidden) == pytest.approx(factor * found, rel=1e-9, abs=1e-120)


@pytest.mark.parametrize(("function", "arguments", "expected", "within"), [
    ("partial_overlap", (3.0, 5.0, 8.0, 0.0), 8.0, 0), ("partial_overlap", (3.0, 5.0, 1e6, 1.0), 5.0, 1e-12),
    ("partial_overlap", (3.0, 5.0, 1e6, 0.5), 6.5, 1e-12), ("overlap", (3.0, 5.0, 1e6), 5.0, 1e-12),
    ("overlap", (3.0, 5.0, 1e-9), 4.0, 1e-6), ("partial_overlap", (0.0, 0.0, 10.0, 0.7), 0.0, 0),
    ("partial_overlap", (0.0, 5.0, 10.0, 0.7), 5.0, 1e-6), ("smooth_max", (3.0, 4.0, 0.0), 7.0, 1e-6),
    ("smooth_max", (3.0, 4.0, 1.0), 5.0, 1e-6), ("smooth_max", (2e-9, 1e-9, 100.0), 2e-9, 1e-12),
    ("smooth_max", (5.0, 0.0, 3.0), 5.0, 1e-12), ("smooth_max", (0.0, 0.0, 3.0), 0.0, 0),
])  # fmt: skip
def test_known_values_and_limits(function, arguments, expected, within):
    assert value(function, *arguments) == pytest.approx(expected, rel=within, abs=1e-100)


@pytest.mark.parametrize("costs", [(0.0, 0.0), (0.0, 1e-6), (1e-6, 0.0), (1e-12, 1e3), (1e100, 1.0)])
def test_derivatives_are_finite_where_costs_vanish(costs):
    values = {"p_g": costs[0], "p_o": costs[1], "p_e": 7.0, "p_q": 0.6}
    assert np.isfinite(evaluate(PARTIAL.tree, values))
    assert all(np.isfinite(model.derivatives(values, 1)).all() for model in (PARTIAL, OVERLAP))


@pytest.mark.parametrize("point", [(1e-3, 2e-3, 400.0, 0.6), (2.0, 1.9, 3.0, 1.0), (5e-6, 1e-9, 1e4, 0.3)])
@pytest.mark.parametrize(("function", "model"), [(high_precision_overlap, OVERLAP), (high_precision_partial, PARTIAL)])
def test_derivatives_against_high_precision_differences(function, model, point):
    arguments = point[: len(model.params())]
    got = model.derivatives(dict(zip(model.params(), arguments, strict=True)), 1)[0]
    with mpmath.workdps(60):
        for order, derivative in zip(np.eye(len(arguments), dtype=int).tolist(), got, strict=True):
            expected = mpmath.diff(function, tuple(map(mpmath.mpf, arguments)), tuple(order))
            assert derivative == pytest.approx(float(expected), rel=1e-9, abs=1e-18)


def test_figure_4_step_becomes_abrupt():
    below = [overlap(1.0, 1.1, edge) for edge in (1, 4, 16, 64, 256)]
    assert below == sorted(below)
    assert below[-1] == pytest.approx(1.1, rel=1e-9)


MODEL = Model(
    "f_cl_wall_time",
    "p_launch * f_sync_kernel_launch + smooth_max(p_a * f_op_float32_add, p_b * f_op_float32_mul,"
    " p_c * f_op_float32_madd, p_sharp)",
)
FEATURES = MODEL.input_features()
costs = st.floats(1e-9, 1e3)


@given(st.lists(costs, min_size=2, max_size=5), st.floats(0, 100), st.floats(1e-12, 1e6))
def test_it_lies_between_the_maximum_and_the_sum_and_is_homogeneous(values, sharpness, factor):
    smooth = value("smooth_max", *values, sharpness)
    assert max(values) * (1 - 1e-9) <= smooth <= sum(values) * (1 + 1e-9)
    assert smooth <= max(values) * len(values) ** (1 / (1 + sharpness)) * (1 + 1e-9)
    assert value("smooth_max", *(factor * x for x in values), sharpness) == pytest.approx(factor * smooth, rel=1e-9)


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("sharpness", [0.0, 4.0, 699.0, 700.0, 1073.0, 1074.0, 1e12])
def test_equal_costs_of_a_millisecond_are_about_one_at_any_sharpness(count, sharpness):
    assert value("smooth_max", *[1e-3] * count, sharpness) == pytest.approx(
        1e-3 * count ** (1 / (1 + sharpness)), rel=1e-12
    )


@pytest.mark.parametrize("sharpness", [0.0, 0.3, 4.0, 100.0, 1074.0, 1e6])
@pytest.mark.parametrize("costs", [
    (1e-3,) * 3, (0.0,) * 3, (0.0, 0.0, 2e-3), (1e-300, 1e-3, 1e100), (1e-3, 1.001e-3, 0),
])  # fmt: skip
def test_derivatives_are_those_of_the_norm_in_high_precision(costs, sharpness):
    values = dict(zip(["p_a", "p_b", "p_c", "p_sharp"], (*costs, sharpness), strict=True)) | {"p_launch": 1.0}
    values |= dict.fromkeys(FEATURES, 1.0)
    got = MODEL.derivatives(values, 1)[0][1:]
    assert np.isfinite(got).all()
    if max(costs) == 0:
        return
    with mpmath.workdps(60):
        x, q = [mpmath.mpf(cost) for cost in costs], 1 + mpmath.mpf(sharpness)
        norm = mpmath.fsum(cost**q for cost in x) ** (1 / q)
        slopes = [(cost / norm) ** (q - 1) for cost in x]
        shares = [(cost / norm) ** q for cost in x if cost > 0]
        by_sharpness = norm * mpmath.fsum(share * mpmath.log(share) for share in shares) / q**2
        for derivative, expected in zip(got, [*slopes, by_sharpness], strict=True):
            assert derivative == pytest.approx(float(expected), rel=1e-8, abs=1e-12 * float(norm))


@pytest.mark.parametrize("sharpness", [0.8, 4.0, 12.0])
def test_a_fit_recovers_costs_and_sharpness(sharpness):
    truth = {"p_launch": 4e-6, "p_a": 3e-12, "p_b": 6e-12, "p_c": 2e-12, "p_sharp": sharpness}
    random = np.random.default_rng(7)
    inputs = 10 ** random.uniform(5, 9, (60, len(FEATURES)))
    inputs[:, 0] = 1.0
    seconds = MODEL.evaluate(truth, dict(zip(FEATURES, inputs.T, strict=True))) * (1 + 2e-4 * random.normal(size=60))
    names, labels = ("f_cl_wall_time", *FEATURES), tuple(f"kernel {i}" for i in range(60))
    fit = fit_model(MODEL, FeatureTable(names[0], names, labels, np.column_stack([seconds, inputs])))
    for name, expected in truth.items():
        assert fit[name] == pytest.approx(expected, rel=0.05), name
    assert [parameter.unit for parameter in fit.parameters if parameter.name == "p_sharp"] == ["1"]


TEXTS = [
    "p_a * f_thread_items + p_b * f_thread_groups / p_a",
    "overlap(p_a * f_thread_items + p_c * f_thread_groups, p_b * f_thread_groups, p_edge)",
    "partial_overlap(p_a * f_thread_items, p_b * f_thread_groups, p_edge, p_hidden) + p_a",
    "smooth_max(p_a * f_thread_items + p_b, p_b * f_thread_groups, p_c * f_thread_items * f_thread_groups, p_sharp)",
    "smooth_max(p_a * f_thread_items, overlap(p_b * f_thread_groups, p_c, p_edge), p_sharp) * exp(-p_a)",
    "f_thread_items ** p_a - (p_b * f_thread_groups) ** 2 + 2 ** p_c",
    "sqrt(p_a * f_thread_items) * log(1 + p_b * f_thread_groups) / tanh(p_c)",
    "max(f_thread_items, f_thread_groups) * p_a + abs(p_b - 5) * f_thread_items",
]


OWN = {"Max": lambda *values: functools.reduce(np.maximum, values)}


@pytest.mark.parametrize("text", TEXTS)
def test_chain_rule_is_what_sympy_finds(text):
    model = Model("f_cl_wall_time", text)
    generator = np.random.default_rng(7)
    values = {name: generator.uniform(0.5, 2, 40) for name in model.input_features()}
    values |= {name: generator.uniform(0.2, 1.5) for name in model.params()}
    # Identifiers of features need not be Python names.
    safe = {sympy.Symbol(name, real=True): sympy.Symbol(f"x{index}", real=True) for index, name in enumerate(values)}
    slopes = [model.symbolic.diff(sympy.Symbol(name, real=True)).xreplace(safe) for name in model.params()]
    whole = sympy.lambdify(list(safe.values()), slopes, modules=[OWN, "numpy"], cse=True)
    expected = np.column_stack([np.broadcast_to(one, 40) for one in whole(*values.values())])
    np.testing.assert_allclose(model.derivatives(values, 40), expected, rtol=1e-9)


@pytest.mark.parametrize(("text", "values", "slopes"), [
    # A parameter that cancels has no slope; those of largest and smallest are those of the argument.
    ("p_a * f_thread_items + p_b - p_b", {"f_thread_items": [2.0, 3.0]}, [[2.0, 0.0], [3.0, 0.0]]),
    ("max(p_a * f_thread_items, p_b, p_c) - min(p_a, p_b * f_thread_groups)",
        {"f_thread_items": [1.0, 9.0], "f_thread_groups": [0.25, 8.0]}, [[0.0, -0.25, 1.0], [9.0 - 1.0, 0.0, 0.0]]),
])  # fmt: skip
def test_slopes(text, values, slopes):
    values = {name: np.array(column) for name, column in values.items()} | {"p_a": 1.0, "p_b": 2.0, "p_c": 3.0}
    assert Model("f_cl_wall_time", text).derivatives(values, 2).tolist() == slopes


def test_a_function_without_a_derivative_is_refused():
    with pytest.raises(TypeError):
        np.floor(Dual(1.5, {"p_a": 1.0}))
