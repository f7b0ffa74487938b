"""Chains of operations that wait for one another, through variables and through elements in memory."""

from __future__ import annotations

import pytest

from perflex.features import source_kernel
from perflex.features.families.registry import parse_feature
from perflex.features.target import Target

KERNEL = """
__kernel void sums(__global float *a, __global float *c, int n) {{
  int i = get_global_id(0);
  for (int k = 0; k < n; k++) {{ {body} }}
}}
"""


@pytest.mark.parametrize(
    ("body", "length"),
    [
        ("c[i] += a[k];", 1),
        ("c[i] = a[k] * c[i] + 1.0f;", 1),
        ("c[i] = (c[i] + a[k]) * a[k + 1];", 2),
        ("float t = c[i] + a[k]; c[i] = t;", 1),
        ("c[k] += a[i];", 0),
        ("c[i + 1] = c[i] + a[k];", 0),
        ("c[i] = a[k] + a[k + 1];", 0),
    ],
)
def test_an_element_that_each_iteration_updates(body: str, length: int) -> None:
    kernel = source_kernel(KERNEL.format(body=body), "sums", local=(32,), global_size=("n",))
    found = {
        kind: parse_feature(f"f_chain_float32_{kind}").value(kernel.scop(), {"n": 64}, Target(sub_group_size=32))
        for kind in ("add", "mul", "madd")
    }
    assert sum(found.values()) == 2 * 64 * length


def test_a_value_loaded_before_the_loop_is_no_update() -> None:
    text = KERNEL.format(body="c[i] = t + a[k];").replace("for (", "float t = c[i];\n  for (", 1)
    kernel = source_kernel(text, "sums", local=(32,), global_size=("n",))
    found = parse_feature("f_chain_float32_add").value(kernel.scop(), {"n": 64}, Target(sub_group_size=32))
    assert found == 0
