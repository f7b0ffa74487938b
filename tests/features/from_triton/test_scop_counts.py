"""Accesses of a product whose addresses are affine, counted from TTIR and as a Scop."""

from __future__ import annotations

import pytest

from perflex.features import kernel_feature_values, scop_from_yaml
from perflex.features.from_triton.interpreter import Launch
from support.triton_data import code_of, launch_of, stored

# A tile is a work-group, its elements are work-items or loops; rows return to the beginning at m, which counts as many.
PRODUCT = """\
schema: perflex-scop/2
name: product
parameters: [m, n, k]
assumptions: "[m, n, k] -> { : m >= 1 and n >= 1 and k >= 1 }"
launches:
- groups: ["floor((m + 63)/64)", "floor((n + 31)/32)"]
  items: [64, 32]
  loops: [{name: step}, {name: inner, parent: 0}]
arrays:
- {name: a_ptr, space: global, dtype: float16, shape: [m + 64, k], strides: [k, 1]}
- {name: b_ptr, space: global, dtype: float16, shape: [k, n + 32], strides: [n + 32, 1]}
- {name: c_ptr, space: global, dtype: float16, shape: [m, n], strides: [n, 1]}
statements:
- name: load a
  domain: "[m, n, k] -> { [p, q, i, j, s, e] : 0 <= 64p < m and 0 <= 32q < n and 0 <= i < 64 and j = 0 and 0 <= 32s < k
    and 0 <= e < 32 and 32s + e < k }"
  loops: [0, 1]
  order: [0, 0, 0]
  accesses:
  - {array: a_ptr, tag: a, direction: load, relation: "{ [p, q, i, j, s, e] -> [64p + i, 32s + e] }"}
- name: load b
  domain: "[m, n, k] -> { [p, q, i, j, s, e] : 0 <= 64p < m and 0 <= 32q < n and i = 0 and 0 <= j < 32 and 0 <= 32s < k
    and 0 <= e < 32 and 32s + e < k }"
  loops: [0, 1]
  order: [0, 0, 1]
  accesses:
  - {array: b_ptr, tag: b, direction: load, relation: "{ [p, q, i, j, s, e] -> [32s + e, 32q + j] }"}
- name: store c
  domain: "[m, n, k] -> { [p, q, i, j] : 0 <= 64p < m and 0 <= 32q < n and 0 <= i < 64 and 0 <= j < 32 and 64p + i < m
    and 32q + j < n }"
  order: [1]
  accesses:
  - {array: c_ptr, tag: c, direction: store, relation: "{ [p, q, i, j] -> [64p + i, 32q + j] }"}
"""


@pytest.mark.parametrize("sizes", [(131, 77, 95), (64, 32, 32), (200, 300, 100), (1, 1, 1000)])
def test_a_products_tiles_are_those_of_a_scop(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    case = stored("matmul")
    numbers = {"M": m, "N": n, "K": k, "stride_am": k, "stride_bk": n, "stride_cm": n}
    launch = Launch({**launch_of(case).arguments, **numbers}, {}, (-(-m // 64) * -(-n // 32), 1, 1))
    text = max(max(texts.values()) for texts in case["ttir"].values())
    program = code_of(case, text).program(launch)
    tags = {f"f_mem_access_tag:{one}": f"{one}_ptr" for one in "abc"}
    counted = kernel_feature_values(list(tags), scop_from_yaml(PRODUCT), {"m": m, "n": n, "k": k})
    assert {tags[name]: count for name, count in counted.items()} == {
        one.array: one.elements for one in program.accesses
    }
