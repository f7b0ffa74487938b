"""What compilers that vectorise over work-items cannot do with source code: sums in memory, indices of fewer bits."""

import pytest

from perflex.features import source_kernel
from perflex.features.families.registry import parse_feature
from perflex.features.target import Target

SUMS = """
__kernel void sums(__global float *a, __global float *c, int n) {{
  int i = get_global_id(0);
  for (int k = 0; k < n; k++) {{ {body} }}
}}
"""


@pytest.mark.parametrize(
    ("c", "a", "waiting"),
    [("float *", "float *", 64), ("float *restrict", "float *", 0), ("float *", "const float *restrict", 0),
     ("float *", "const float *", 64), ("float *", "int *", 0)],
)  # fmt: skip
@pytest.mark.parametrize("body", ["c[i] += a[k];", "float t = c[i] + a[k]; c[i] = t;"])
def test_sums_stay_in_memory_where_pointers_may_overlap(c, a, body, waiting):
    text = SUMS.format(body=body).replace("float *a", f"{a} a").replace("float *c", f"{c} c")
    kernel = source_kernel(text, "sums", local=(32,), global_size=("n",))
    found = parse_feature("f_simd_forward_vector").value(kernel.scop(), {"n": 64}, Target(sub_group_size=32))
    assert found == 2 * waiting


LOOP = """
kernel void f(global float *restrict a, global float *restrict y, int n, int m) {{
  {kind} i = {index};
  float x = 0;
  for (int k = 0; k < m; k++) x += {body};
  y[n + i] = x;
}}
"""
GLOBAL, OWN = "get_global_id(0)", "get_group_id(0) * 32 + (int)get_local_id(0)"


@pytest.mark.parametrize(("body", "kind", "index", "hidden"), [
    ("a[k*n + i]", "int", GLOBAL, 1), ("a[k*n + i]", "uint", GLOBAL, 1), ("a[k*n + i]", "size_t", GLOBAL, 0),
    ("a[k*n + i]", "int", "(int)" + OWN, 0), ("a[k*n + i]", "int", OWN, 1), ("(a + i)[k*n]", "int", GLOBAL, 1),
    # One pointer that is moved on, with fixed distances, or several, or none.
    ("a[k*n + i] + a[k*n + i + 1]", "int", GLOBAL, 2), ("a[k*n + i] + a[(k + 1)*n + i]", "int", GLOBAL, 0),
    ("a[k*n + i] + a[(k + 1)*n + i]", "uint", GLOBAL, 2), ("a[k*n + i] * y[k*n + i]", "int", GLOBAL, 0),
    ("a[(k & 7)*n + i]", "int", GLOBAL, 0), ("a[i*m + k]", "int", GLOBAL, 0),
])  # fmt: skip
def test_an_index_of_fewer_bits_hides_neighbours(body, kind, index, hidden):
    kernel = source_kernel(LOOP.format(body=body, kind=kind, index=index), "f", local=32, groups="n/32")
    at = kernel.scop(), {"n": 64, "m": 10}, Target(sub_group_size=32)
    assert parse_feature("f_simd_load_hidden_vector_loop").value(*at) == hidden * 640
    # The store is at a distance that a size decides.
    stored = parse_feature("f_simd_store_hidden_vector_straight").value(*at)
    assert stored == (64 if kind == "uint" else 0)


@pytest.mark.parametrize(("subscript", "hidden"), [("i", 64), ("i + 1", 64), ("n + i", 0), ("j * n + i", 0)])
def test_an_index_alone_hides_neighbours(subscript, hidden):
    text = f"kernel void f(global float *y, int n) {{ int i = {GLOBAL}, j = get_global_id(1); y[{subscript}] = 1; }}"
    kernel = source_kernel(text, "f", local=(32, 1), groups=("n/32", 1))
    found = parse_feature("f_simd_store_hidden_vector_straight")
    assert found.value(kernel.scop(), {"n": 64}, Target(sub_group_size=32)) == hidden
