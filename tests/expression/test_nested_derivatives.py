"""Derivatives of functions whose arguments hold many parameters: the chain rule against differences."""

from __future__ import annotations

import numpy as np

from perflex.expression.model import Model

COUNT = 9


def test_the_chain_rule_gives_derivatives() -> None:
    work = " + ".join(f"p_w{i} * {i + 1} * f_op_float32_add" for i in range(COUNT))
    # One parameter stands in both arguments and outside of them, too.
    other = " + ".join(["p_w0 * f_op_float32_mul", *(f"p_v{i} * {i + 2} * f_op_float32_div" for i in range(COUNT))])
    text = f"p_launch * f_sync_kernel_launch + p_w0 * f_thread_groups + 2 * smooth_max({work}, {other}, p_sharp)"
    compiled = Model("f_cl_wall_time", text).compiled
    random = np.random.default_rng(0)
    values = {name: random.uniform(0.5, 2.0, 5) for name in compiled.features}
    parameters = {name: float(random.uniform(0.5, 2.0)) for name in compiled.parameters}
    found = compiled.derivatives({**values, **parameters}, 5)
    for index, name in enumerate(compiled.parameters):
        step = 1e-6 * parameters[name]
        high, low = (compiled.value({**values, **parameters, name: parameters[name] + sign * step}) for sign in (1, -1))
        np.testing.assert_allclose(found[:, index], (high - low) / (2 * step), rtol=1e-6, atol=1e-9)
