"""Formulas over tunables: values of columns, and refusal of everything that is no formula."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from perflex.errors import ModelSyntaxError
from perflex.search.formula import parse_formula

X = np.array([1.0, 2.0, 5.0, 12.0])
Y = np.array([3.0, 2.0, 4.0, 0.5])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + 2*y - 1", X + 2 * Y - 1),
        ("x // 2 % 3", X // 2 % 3),
        ("-x**2", -(X**2)),
        ("ceil_div(x, y)", np.ceil(X / Y)),
        ("max(x, y, 3) - min(x, y)", np.maximum(np.maximum(X, Y), 3) - np.minimum(X, Y)),
        ("1 if x > y and not y == 4 else 0.5", [0.5, 0.5, 0.5, 1]),
        ("x if 1 < x <= 5 else y", [3, 2, 5, 0.5]),
        ("x == 2 or y == 4", [0, 1, 1, 0]),
        ("(-x) % 4", (-X) % 4),
        ("power_of_two(x)", [1, 2, 4, 8]),
        ("gcd(x, 4)", [1, 2, 1, 4]),
        ("log2(x) + sqrt(y) + floor(y) + abs(-x) + exp(0)", np.log2(X) + np.sqrt(Y) + np.floor(Y) + X + 1),
    ],
)
def test_values_of_columns(text, expected):
    formula = parse_formula(text)
    assert formula({"x": X, "y": Y}) == pytest.approx(np.asarray(expected, dtype=float))
    assert [float(formula({"x": a, "y": b})) for a, b in zip(X, Y, strict=True)] == pytest.approx(list(expected))


def test_names_and_pickling():
    formula = parse_formula("b*a + b if c else max(a, 1)")
    assert formula.names == ("c", "b", "a")
    assert pickle.loads(pickle.dumps(formula)) == formula


def test_division_by_zero_is_not_an_error():
    assert parse_formula("1/x")({"x": np.array([0.0, 2.0])}).tolist() == [np.inf, 0.5]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x +",
        "x.real",
        "__import__('os')",
        "open('f')",
        "x[0]",
        "[x for x in y]",
        "lambda: 1",
        "'text'",
        "max(x)",
        "ceil(x, y)",
        "max(*x)",
        "log(x, base=2)",
        "x is y",
        "x in y",
        "~x",
        "x & y",
        "(x := 1)",
        "x; y",
        "1j",
        "None",
        "(" * 300 + "x" + ")" * 300,
        "+".join(["x"] * 2000),
    ],
)
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ModelSyntaxError, match="formula"):
        parse_formula(text)
