"""Accesses of private arrays, as for loopy kernels: loads and stores, by hand."""

import pytest

from perflex.features import kernel_feature_values, source_kernel

HEAD = """
void fill(float *p, float v) { for (int k = 0; k < 4; k++) p[k] = v; }
float second(float v) { float t[2]; t[1] = v; return t[1]; }
kernel void f(global float *a, global const int *b, int n) { int i = get_global_id(0);
"""


@pytest.mark.parametrize(("body", "loads", "stores"), [
    ("float t[16]; for (int k = 0; k < 16; k++) t[k] = a[i + k]; a[i] = t[0] + t[15];", 2, 16),
    ("float t[4]; fill(t, 1); for (int k = 0; k < n; k++) a[i + k] = t[k];", 3, 4),
    ("float t[3][5]; for (int k = 0; k < 3; k++) t[k][2] += a[i];", 3, 3),
    ("float t[2]; t[0] = second(a[i]); a[i] = t[0];", 2, 2),
    ("float t[8]; t[b[i]] = 1; a[i] = t[3];", 1, 1),
    ("struct { float x, y; } t[4]; for (int k = 0; k < 4; k++) t[k].y = k; a[i] = t[1].y;", 1, 4),
])  # fmt: skip
def test_accesses(body, loads, stores):
    kernel = source_kernel(f"{HEAD} {body} }}\n", "f", local=64, groups=4)
    assert not kernel.unstated()
    names = ["f_mem_access_private_load", "f_mem_access_private_store"]
    values = kernel_feature_values(names, kernel, {"n": 3}, sub_group_size=1)
    assert list(values.values()) == [256 * loads, 256 * stores]


def test_a_model_of_cpus_sees_them_as_in_a_loopy_kernel():
    text = "kernel void f(global float *a) { float t[4]; for (int k = 0; k < 4; k++) t[k] = a[k]; a[0] = t[3]; }\n"
    kernel = source_kernel(text, "f", local=64, groups=4)
    [value] = kernel_feature_values(["f_simd_private_vector"], kernel, {}, sub_group_size=8).values()
    assert value == 32 * (4 + 1)
