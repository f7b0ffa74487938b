"""Derivatives by the chain rule equal those that sympy finds of the whole expression."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import sympy

from perflex.expression.compiled import Dual
from perflex.expression.model import Model

if TYPE_CHECKING:
    from collections.abc import Callable

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


def compiled(arguments: list[Any], expressions: list[Any]) -> Callable[..., Any]:
    """Return a function of arrays that computes sympy expressions."""

    def largest(*values: Any) -> Any:
        return reduce(np.maximum, values)

    own = {"Max": largest, "largest": largest, "is_zero": lambda value: np.where(value == 0, 1.0, 0.0)}
    function: Callable[..., Any] = sympy.lambdify(arguments, expressions, modules=[own, "numpy"], cse=True)
    return function


@pytest.mark.parametrize("text", TEXTS)
def test_chain_rule_is_what_sympy_finds(text: str) -> None:
    model = Model("f_cl_wall_time", text).compiled
    generator = np.random.default_rng(7)
    values = {name: generator.uniform(0.5, 2, 40) for name in model.features}
    values |= {name: generator.uniform(0.2, 1.5) for name in model.parameters}
    # Identifiers of features need not be Python names.
    safe = {symbol: sympy.Symbol(f"x{index}", real=True) for index, symbol in enumerate(model.symbols.values())}
    slopes = [model.symbolic.diff(model.symbols[name]).xreplace(safe) for name in model.parameters]
    whole = compiled(list(safe.values()), slopes)
    expected = np.column_stack([np.broadcast_to(one, 40) for one in whole(*(values[name] for name in model.symbols))])
    np.testing.assert_allclose(model.derivatives(values, 40), expected, rtol=1e-9)


def test_a_parameter_that_cancels_has_no_slope() -> None:
    model = Model("f_cl_wall_time", "p_a * f_thread_items + p_b - p_b").compiled
    slopes = model.derivatives({"f_thread_items": np.array([2.0, 3.0]), "p_a": 1.0, "p_b": 4.0}, 2)
    assert slopes.tolist() == [[2.0, 0.0], [3.0, 0.0]]


def test_slopes_of_largest_and_smallest_are_those_of_the_argument() -> None:
    model = Model("f_cl_wall_time", "max(p_a * f_thread_items, p_b, p_c) - min(p_a, p_b * f_thread_groups)").compiled
    values = {"f_thread_items": np.array([1.0, 9.0]), "f_thread_groups": np.array([0.25, 8.0])}
    slopes = model.derivatives(values | {"p_a": 1.0, "p_b": 2.0, "p_c": 3.0}, 2)
    assert slopes.tolist() == [[0.0, -0.25, 1.0], [9.0 - 1.0, 0.0, 0.0]]


def test_a_function_without_a_derivative_is_refused() -> None:
    with pytest.raises(TypeError):
        np.floor(Dual(1.5, {"p_a": 1.0}))
