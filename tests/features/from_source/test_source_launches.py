"""Launches of kernels in OpenCL C and CUDA C: work-groups, formulas of sizes, names of sizes and arrays."""

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, source_kernel

COPY = """
__kernel {attribute} void copy(__global const float *a, __global float *b, int n) {{
    b[get_global_id(0) + n * get_global_id(1)] = a[get_global_id(0) + n * get_global_id(1)];
}}
"""
REQUIRED = COPY.format(attribute="__attribute__((reqd_work_group_size(SIDE, 4, 1)))")

FLAT = """
__global__ void flat(const float *a, float *b, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * m) b[i] = 2 * a[i];
}
"""


def groups(kernel, n):
    """Work-groups and loads."""
    names = ["f_thread_groups", "f_mem_access_global_load"]
    found = {entry.identifier: entry.value for entry in count_features(kernel, {"n": n}, identifiers=names)}
    return found["f_thread_groups"], found["f_mem_access_global_load"]


def test_the_work_group_of_the_attribute_is_taken():
    kernel = source_kernel(REQUIRED, "copy", global_size=["n", "n"], defines={"SIDE": 16})
    assert kernel.local == (16, 4, 1)
    assert groups(kernel, 64)[0] == 4 * 16


def test_axes_that_are_left_out_have_one_work_item():
    text = COPY.format(attribute="")
    rows = source_kernel(text, "copy", local=[32], groups=["n/32", "n"])
    whole = source_kernel(text, "copy", local=[32, 1], groups=["n/32", "n"])
    assert groups(rows, 64) == groups(whole, 64) == (128, 64 * 64)


@pytest.mark.parametrize(("formula", "expected"), [("ceil(n/24)", 3), ("ceil_div(n, 24)", 3), ("n/24", 2)])
def test_quotients_are_rounded_up_where_asked(formula, expected):
    kernel = source_kernel(COPY.format(attribute=""), "copy", local=[24], groups=[formula])
    assert groups(kernel, 64)[0] == expected


@pytest.mark.parametrize("formula", ["ceil(n/24 + 1)", "round(n/24)", "ceil(n)"])
def test_other_roundings_are_refused(formula):
    kernel = source_kernel(COPY.format(attribute=""), "copy", local=[24], groups=[formula])
    with pytest.raises(UnsupportedKernelError, match="cannot read the formula"):
        groups(kernel, 64)


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        ({"groups": "ceil_div(n*m, 128)"}, 55),
        ({"groups": "ceil((n*m + 1)/128)"}, 55),
        ({"groups": "n*m/128"}, 54),
        ({"groups": "max(n*m, 9)"}, 7000),
        ({"global_size": "n*m"}, 55),
        ({"local": [128, 1], "global_size": [128, "n*m"]}, 7000),
    ],
)
def test_a_launch_may_multiply_sizes_that_are_given(launch, expected):
    kernel = source_kernel(FLAT, "flat", **{"local": 128, **launch})
    (found,) = count_features(kernel, {"n": 100, "m": 70}, identifiers=["f_thread_groups"])
    assert found.value == expected
    with pytest.raises(UnsupportedKernelError, match=r"multiplies variables .*; give numbers for m, n"):
        kernel.scop()


def test_a_missing_work_group_is_asked_for():
    with pytest.raises(UnsupportedKernelError, match="'copy' needs its launch; give local"):
        source_kernel(COPY.format(attribute=""), "copy", groups=["n"])
    with pytest.raises(UnsupportedKernelError, match="'copy' needs its launch"):
        source_kernel(REQUIRED, "copy", groups=["n"])


@pytest.mark.parametrize("name", ["max", "mod", "exists", "größe", "NaN"])
def test_sizes_of_names_that_formulas_cannot_have_are_numbers(name):
    body = f"int i = get_global_id(0); if (i < {name}) a[i] = 1;"
    text = f"__kernel void k(__global float *a, int {name}) {{ {body} }}\n"
    kernel = source_kernel(text, "k", local=[16], groups=[4])
    (found,) = count_features(kernel, {name: 40}, identifiers=["f_mem_access_global_store"])
    assert found.value == 40
    with pytest.raises(UnsupportedKernelError, match=f"size of the name '{name}'; give a number"):
        kernel.scop()
    launched = source_kernel(COPY.format(attribute=""), "copy", local=[16], groups=[f"{name}/16"])
    with pytest.raises(UnsupportedKernelError, match=f"'{name}' is no name that a size can have"):
        launched.scop()


@pytest.mark.parametrize("name", ["max", "mod", "exists"])
def test_arrays_can_have_any_name(name):
    text = f"__kernel void k(__global float *{name}, int) {{ {name}[get_global_id(0)] = 1; }}\n"
    kernel = source_kernel(text, "k", local=[16], groups=[4])
    (found,) = count_features(kernel, {}, identifiers=["f_mem_access_global_store"])
    assert found.value == 64


@pytest.mark.parametrize("extents", [{"local": 64, "groups": "n/64"}, {"local": [64], "groups": ["n/64"]}])
def test_one_axis_needs_no_list(extents):
    kernel = source_kernel("kernel void k(global int *a, int n) { a[get_global_id(0)] = 1; }\n", "k", **extents)
    assert (kernel.local, kernel.groups) == ((64,), ("n/64",))


@pytest.mark.parametrize("local", ["64", [64.5], [0], [], [1, 1, 1, 1]])
def test_a_work_group_is_whole_numbers(local):
    with pytest.raises(UnsupportedKernelError, match="give one to three whole numbers of work-items above zero"):
        source_kernel("kernel void k(global int *a) { a[0] = 1; }\n", "k", local=local, groups=1)
