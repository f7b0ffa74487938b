"""The general model of CPUs leaves nothing out that its features count."""

from __future__ import annotations

import pytest

from perflex import Model
from perflex.features import Target, extract_scop, parse_feature
from perflex.models import load_model
from sample_kernels import matmul, pointwise

MODEL = Model("f_cl_wall_time", load_model("general_cpu").expression)
KERNELS = {
    "tiled": matmul(prefetch=True),
    "plain": matmul(prefetch=False, fit=False),
    "functions": pointwise("exp(x[i]) * tanh(y[i]) + x[i] ** 2.5 + erf(y[i]) / sqrt(x[i])"),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("lanes", [8, 16, 64])
def test_all_work_has_a_cost(name: str, lanes: int) -> None:
    scop = extract_scop(KERNELS[name])
    counted = parse_feature("f_simd_arith_wide_loop").inventory(scop)
    executed = {one for one in counted if parse_feature(one).value(scop, {"n": 64}, Target(lanes))}
    assert executed
    assert executed <= set(MODEL.all_features())


def test_costs_are_named_and_described() -> None:
    description = load_model("general_cpu")
    assert set(MODEL.params()) == set(description.parameters)
