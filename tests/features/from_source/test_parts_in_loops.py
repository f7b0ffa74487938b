"""Structs, arrays and vectors in registers that loops change, or do not."""

import pytest

from perflex.features import count_features, source_kernel


@pytest.mark.parametrize(("body", "stores"), [
    # Each iteration steps by one more: 0, 1, 3, 6, ..., 91.
    ("Two s = {1, 3}; int j = 0; while (j < 100) { y[i] = 1; j += s.k; s.k += 1; }", 14),
    ("int s[2] = {1, 3}; int j = 0; while (j < 100) { y[i] = 1; j += s[0]; s[0] += 1; }", 14),
    ("int s[2] = {1, 3}, *q = s; int j = 0; while (j < 100) { y[i] = 1; j += s[0]; q[0] += 1; }", 14),
    ("int2 s = make_int2(1, 3); int j = 0; while (j < 100) { y[i] = 1; j += s.x; s.x += 1; }", 14),
    ("Two s = {1, 3}; int j = 0; while (j < 99) { y[i] = 1; j += s.m; }", 33),
    ("Two s = {1, 3}, *p = &s; int j = 0; while (j < 99) { y[i] = 1; j += p->m; }", 33),
    ("Two s = {1, 3}; for (int j = 0; j < n; ++j) s.k = 5; for (int j = 0; j < s.k; ++j) y[i] = 1;", 1),
    ("int m = 1; auto f = [&](int k) { m += k; return m; }; for (int j = 0; j < 9; j = f(2)) y[i] = 1;", 4),
    ("int m = 1; auto f = [&] { m++; }; for (int j = 0; j < 9; ++j) f(); for (int j = 0; j < m; ++j) y[i] = 1;", 10),
    ("Count c; c.k = 0; for (int j = 0; j < 9; j += c.next()) y[i] = 1;", 4),
    ("Count c; c.k = 3; for (int j = 0; j < 9; ++j) y[i] = c.k; for (int j = 0; j < c.k; ++j) y[i] = 1;", 12),
    ("View v = {y, 2}; for (int j = 0; j < 4; ++j) v.set(i, j);", 4),
])  # fmt: skip
def test_parts_that_loops_change(body, stores):
    text = "struct Two { int k, m; };\n"
    text += "struct Count { int k; __device__ int next() { return ++k; } };\n"
    text += "struct View { float *p; int n; __device__ void set(int i, int j) { p[i * n + j] = 1; } };\n"
    text += f"__global__ void k(float *y, int n) {{ int i = threadIdx.x; {body} }}\n"
    kernel = source_kernel(text, "k", local=32, groups=1)
    (found,) = count_features(kernel, {"n": 0}, identifiers=["f_mem_access_array:y_store"])
    assert (found.value, found.exact) == (32 * stores, True)


def test_structs_that_no_iteration_changes_stay_known_around_loops_in_loops():
    text = """struct D { int day, month; }; struct In { const D *dates; float *y; };
__device__ D later(D d) { while (d.day > 28) { if (d.month == 2) break; d.day -= 28; ++d.month; } return d; }
__global__ void k(In in, int n) { int i = threadIdx.x; D d = in.dates[i];
    for (int j = 0; j < n; ++j) { d = later(d); in.y[i + j] = in.dates[i + j].day; } }"""
    kernel = source_kernel(text, "k", local=32, groups=1, stated={"2": 1})
    names = ["f_mem_access_array:in_y_store", "f_mem_footprint_array:in_dates"]
    assert [each.value for each in count_features(kernel, {"n": 5}, identifiers=names)] == [32 * 5, 32 * 2 + 4]
