"""The smooth maximum: between sum and maximum, homogeneous, with derivatives, and recovered by fits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflex import FeatureTable, Model, fit_model
from perflex.errors import CalibrationError, ModelSyntaxError
from perflex.expression.parser import parse_expression
from perflex.expression.tree import evaluate

MODEL = Model(
    "f_cl_wall_time",
    "p_launch * f_sync_kernel_launch + smooth_max(p_a * f_op_float32_add, p_b * f_op_float32_mul,"
    " p_c * f_op_float32_madd, p_sharp)",
)
FEATURES = MODEL.input_features()
costs = st.floats(1e-9, 1e3)


def value(*arguments: float) -> float:
    names = [f"f_{i}" for i in range(len(arguments))]
    tree = parse_expression(f"smooth_max({', '.join(names)})")
    return float(evaluate(tree, dict(zip(names, arguments, strict=True))))


@given(st.lists(costs, min_size=2, max_size=5), st.floats(0, 100))
def test_it_lies_between_the_maximum_and_the_sum(values: list[float], sharpness: float) -> None:
    smooth = value(*values, sharpness)
    assert max(values) * (1 - 1e-9) <= smooth <= sum(values) * (1 + 1e-9)
    assert smooth <= max(values) * len(values) ** (1 / (1 + sharpness)) * (1 + 1e-9)


@given(st.lists(costs, min_size=2, max_size=4), st.floats(0, 100), st.floats(1e-12, 1e6))
def test_it_is_homogeneous_of_degree_one(values: list[float], sharpness: float, factor: float) -> None:
    scaled = value(*(factor * x for x in values), sharpness)
    assert scaled == pytest.approx(factor * value(*values, sharpness), rel=1e-9)


def test_known_values() -> None:
    assert value(3.0, 4.0, 0.0) == pytest.approx(7.0)
    assert value(3.0, 4.0, 1.0) == pytest.approx(5.0)
    assert value(2e-9, 1e-9, 100.0) == pytest.approx(2e-9, rel=1e-12)
    assert value(5.0, 0.0, 3.0) == pytest.approx(5.0, rel=1e-12)
    assert value(0.0, 0.0, 3.0) == pytest.approx(0.0, abs=1e-100)


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("sharpness", [0.0, 4.0, 100.0, 699.0, 700.0, 1073.0, 1074.0, 1e5, 1e12])
def test_equal_costs_of_a_millisecond_are_about_one_at_any_sharpness(count: int, sharpness: float) -> None:
    assert value(*[1e-3] * count, sharpness) == pytest.approx(1e-3 * count ** (1 / (1 + sharpness)), rel=1e-12)


@pytest.mark.parametrize("sharpness", [0.0, 0.3, 4.0, 100.0, 1074.0, 1e6])
@pytest.mark.parametrize(
    "costs", [(1e-3,) * 3, (0.0,) * 3, (0.0, 0.0, 2e-3), (1e-300, 1e-3, 1e100), (1e-3, 1.001e-3, 0)]
)
def test_derivatives_are_those_of_the_norm_in_high_precision(costs: tuple[float, ...], sharpness: float) -> None:
    values = dict(zip(["p_a", "p_b", "p_c", "p_sharp"], (*costs, sharpness), strict=True)) | {"p_launch": 1.0}
    values |= dict.fromkeys(FEATURES, 1.0)
    got = MODEL.compiled.derivatives(values, 1)[0][1:]
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


def test_numbers_and_symbols_agree() -> None:
    params = {"p_launch": 2e-6, "p_a": 3e-12, "p_b": 5e-12, "p_c": 4e-12, "p_sharp": 6.0}
    values = {"f_sync_kernel_launch": 1.0, "f_op_float32_add": 2e6, "f_op_float32_mul": 1e6, "f_op_float32_madd": 3e6}
    exact = 2e-6 + ((6e-6) ** 7 + (5e-6) ** 7 + (12e-6) ** 7) ** (1 / 7)
    assert MODEL.evaluate(params, values) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("text", ["smooth_max(p_a)", "smooth_max(p_a, p_b)", "smooth_max()"])
def test_two_costs_and_a_sharpness_are_needed(text: str) -> None:
    with pytest.raises(ModelSyntaxError):
        Model("f_cl_wall_time", text)


def table(model: Model, truth: dict[str, float], noise: float = 0.0) -> FeatureTable:
    random = np.random.default_rng(7)
    inputs = 10 ** random.uniform(5, 9, (60, len(FEATURES)))
    inputs[:, 0] = 1.0
    values = dict(zip(FEATURES, inputs.T, strict=True))
    seconds = model.evaluate(truth, values) * (1 + noise * random.normal(size=60))
    return FeatureTable(
        "f_cl_wall_time",
        ("f_cl_wall_time", *FEATURES),
        tuple(f"kernel {i}" for i in range(60)),
        np.column_stack([seconds, inputs]),
    )


@pytest.mark.parametrize("sharpness", [0.8, 4.0, 12.0])
def test_a_fit_recovers_costs_and_sharpness(sharpness: float) -> None:
    truth = {"p_launch": 4e-6, "p_a": 3e-12, "p_b": 6e-12, "p_c": 2e-12, "p_sharp": sharpness}
    fit = fit_model(MODEL, table(MODEL, truth, 0.0002))
    for name, expected in truth.items():
        assert fit[name] == pytest.approx(expected, rel=0.05), name
    (sharp,) = [parameter for parameter in fit.parameters if parameter.name == "p_sharp"]
    assert sharp.unit == "1"


def test_max_itself_is_still_refused_by_fits() -> None:
    rough = Model("f_cl_wall_time", MODEL.expression.replace("smooth_max(", "max(").replace(", p_sharp", ""))
    truth = {"p_launch": 4e-6, "p_a": 3e-12, "p_b": 6e-12, "p_c": 2e-12}
    with pytest.raises(CalibrationError, match="max"):
        fit_model(rough, table(rough, truth))
