"""The overlap functions: the paper's equations, bounds, limits, derivatives."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflex.expression.compiled import CompiledExpression
from perflex.expression.parser import parse_expression

OVERLAP = CompiledExpression(parse_expression("overlap(p_g, p_o, p_e)"), ("p_g", "p_o", "p_e"))
PARTIAL = CompiledExpression(parse_expression("partial_overlap(p_g, p_o, p_e, p_q)"), ("p_g", "p_o", "p_e", "p_q"))

COST = st.floats(0, 1e3, allow_subnormal=False)
EDGE = st.floats(0.01, 500)


def overlap(g: float, o: float, edge: float) -> float:
    return float(OVERLAP.value({"p_g": g, "p_o": o, "p_e": edge}))


def partial(g: float, o: float, edge: float, hidden: float) -> float:
    return float(PARTIAL.value({"p_g": g, "p_o": o, "p_e": edge, "p_q": hidden}))


def high_precision_overlap(g: mpmath.mpf, o: mpmath.mpf, e: mpmath.mpf) -> mpmath.mpf:
    def step(x: mpmath.mpf) -> mpmath.mpf:
        return (mpmath.tanh(e * x) + 1) / 2

    return g * step(g - o) + o * step(o - g)


def high_precision_partial(g: mpmath.mpf, o: mpmath.mpf, e: mpmath.mpf, q: mpmath.mpf) -> mpmath.mpf:
    x = (g - o) / (g + o)
    return g + o - q * (g * (1 + mpmath.tanh(-e * x)) / 2 + o * (1 + mpmath.tanh(e * x)) / 2)


@settings(deadline=None)
@given(COST, COST, EDGE)
def test_overlap_is_the_papers_equation_5_with_6(g: float, o: float, edge: float) -> None:
    expected = high_precision_overlap(mpmath.mpf(g), mpmath.mpf(o), mpmath.mpf(edge))
    assert overlap(g, o, edge) == pytest.approx(float(expected), rel=1e-12, abs=1e-300)


def test_an_edge_of_zero_is_the_sum_and_moves_nothing() -> None:
    assert overlap(3.0, 5.0, 0.0) == 8.0
    np.testing.assert_array_equal(OVERLAP.derivatives({"p_g": 3.0, "p_o": 5.0, "p_e": 0.0}, 1), [[1.0, 1.0, 0.0]])
    constant = CompiledExpression(parse_expression("overlap(p_g, p_o, 0)"), ("p_g", "p_o"))
    assert constant.value({"p_g": 3.0, "p_o": 5.0}) == 8.0


@settings(deadline=None)
@given(COST, COST, EDGE)
def test_overlap_bounds(g: float, o: float, edge: float) -> None:
    value = overlap(g, o, edge)
    assert value <= max(g, o) * (1 + 1e-12)
    assert value >= (g + o) / 2 * (1 - 1e-12)
    assert value >= max(g, o) * (1 - 1e-12) - 0.14 / edge


@settings(deadline=None)
@given(COST, COST, st.floats(0.5, 200), st.floats(0, 1))
def test_partial_overlap_is_its_formula_and_keeps_its_bounds(g: float, o: float, edge: float, hidden: float) -> None:
    value = partial(g, o, edge, hidden)
    if g + o > 1e-100:
        m = mpmath.mpf
        expected = high_precision_partial(m(g), m(o), m(edge), m(hidden))
        assert value == pytest.approx(float(expected), rel=1e-10)
        assert value >= max(g, o) * (1 - 1e-12) - 0.14 * (g + o) / edge
    assert value <= (g + o) * (1 + 1e-12)


@settings(deadline=None)
@given(COST, COST, st.floats(0.5, 200), st.floats(0, 1), st.floats(1e-9, 1e9))
def test_partial_overlap_is_homogeneous(g: float, o: float, edge: float, hidden: float, factor: float) -> None:
    scaled = partial(factor * g, factor * o, edge, hidden)
    assert scaled == pytest.approx(factor * partial(g, o, edge, hidden), rel=1e-9, abs=1e-120)


def test_limits() -> None:
    assert partial(3.0, 5.0, 8.0, 0.0) == 8.0
    assert partial(3.0, 5.0, 1e6, 1.0) == pytest.approx(5.0, rel=1e-12)
    assert partial(3.0, 5.0, 1e6, 0.5) == pytest.approx(6.5, rel=1e-12)
    assert overlap(3.0, 5.0, 1e6) == pytest.approx(5.0, rel=1e-12)
    assert overlap(3.0, 5.0, 1e-9) == pytest.approx(4.0, rel=1e-6)
    assert partial(0.0, 0.0, 10.0, 0.7) == 0.0
    assert partial(0.0, 5.0, 10.0, 0.7) == pytest.approx(5.0, rel=1e-6)


@pytest.mark.parametrize("costs", [(0.0, 0.0), (0.0, 1e-6), (1e-6, 0.0), (1e-12, 1e3), (1e100, 1.0)])
def test_derivatives_are_finite_where_costs_vanish(costs: tuple[float, float]) -> None:
    values = {"p_g": costs[0], "p_o": costs[1], "p_e": 7.0, "p_q": 0.6}
    assert np.isfinite(PARTIAL.value(values))
    assert np.isfinite(PARTIAL.derivatives(values, 1)).all()
    assert np.isfinite(OVERLAP.derivatives(values, 1)).all()


@pytest.mark.parametrize("point", [(1e-3, 2e-3, 400.0, 0.6), (2.0, 1.9, 3.0, 1.0), (5e-6, 1e-9, 1e4, 0.3)])
def test_derivatives_against_high_precision_differences(point: tuple[float, ...]) -> None:
    with mpmath.workdps(60):
        for function, compiled, arguments in (
            (high_precision_overlap, OVERLAP, point[:3]),
            (high_precision_partial, PARTIAL, point),
        ):
            values = dict(zip(compiled.parameters, arguments, strict=True))
            got = compiled.derivatives(values, 1)[0]
            for index, derivative in enumerate(got):
                order = [0] * len(arguments)
                order[index] = 1
                expected = mpmath.diff(function, tuple(map(mpmath.mpf, arguments)), tuple(order))
                assert derivative == pytest.approx(float(expected), rel=1e-9, abs=1e-18)


def test_figure_4_step_becomes_abrupt() -> None:
    below = [overlap(1.0, 1.1, edge) for edge in (1, 4, 16, 64, 256)]
    assert below == sorted(below)
    assert math.isclose(below[-1], 1.1, rel_tol=1e-9)
