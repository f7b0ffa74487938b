"""Pointers that conditions choose. Truth: which array each of 64 work-items reads, by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perflex import source_kernel
from perflex.errors import UnsupportedKernelError
from perflex.features import count_features

HEAD = """
__device__ float get(const float *p, int k) {{ return p[k]; }}
__device__ const float *pick(const float *a, const float *b, int i) {{ if (i < 10) return a; return b; }}
__device__ void set(const float **p, const float *q) {{ *p = q; }}
__global__ void f{}(const float *a, const float *b, const float *c, float *d) {{ int i = threadIdx.x; {} }}
"""
# Elements of a, b and c that work-item i reads.
Read = Callable[[int], tuple[list[int], list[int], list[int]]]
CASES: dict[str, Read] = {
    "const float *p = i < 10 ? a : b; d[i] = p[i];": lambda i: ([i] * (i < 10), [i] * (i >= 10), []),
    "const float *p; if (i < 10) p = a + 1; else p = b; p += 2; d[i] = *p;": lambda i: (
        [3] * (i < 10), [2] * (i >= 10), []),
    "const float *p = i < 10 ? a : i < 20 ? b : c; d[i] = get(p, i);": lambda i: (
        [i] * (i < 10), [i] * (10 <= i < 20), [i] * (i >= 20)),
    "d[i] = pick(a, b, i)[i];": lambda i: ([i] * (i < 10), [i] * (i >= 10), []),
    "for (int k = 0; k < 4; k++) { const float *p = k & 1 ? a : b; d[i] = p[i + 64 * k]; }": lambda i: (
        [i + 64, i + 192], [i, i + 128], []),
    "const float *p = i < 10 ? a : b; for (int k = 0; k < 3; k++) d[i] = p[i + 64 * k];": lambda i: (
        [i, i + 64, i + 128] * (i < 10), [i, i + 64, i + 128] * (i >= 10), []),
    "const float4 *p = (const float4 *)(i < 10 ? a : b); d[i] = p[i].y;": lambda i: (
        [4 * i + 1] * (i < 10), [4 * i + 1] * (i >= 10), []),
    "const float *p = a; if (i & 1) p = b; if (i < 6) p = c; d[i] = p[i];": lambda i: (
        [i] * (i >= 6 and i % 2 == 0), [i] * (i >= 6 and i % 2 == 1), [i] * (i < 6)),
}  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_each_array_is_read_where_it_is_chosen(number):
    functions, kernel = HEAD.format("{}", "{}").split("__global__")
    text = functions + "".join("__global__" + kernel.replace("{}", "%s") % each for each in enumerate(CASES))
    kernel, read = source_kernel(text, f"f{number}", local=64, groups=1), list(CASES.values())[number]
    touched = [set[int](), set[int](), set[int]()]
    for i in range(64):
        for elements, found in zip(touched, read(i), strict=True):
            elements.update(found)
    found = {each.identifier: each for each in count_features(kernel, {})}
    for name, elements in zip("abc", touched, strict=True):
        footprint = found.get(f"f_mem_footprint_array:{name}")
        assert (footprint.value if footprint else 0) == len(elements)
    assert all(str(each.certainty) == "exact" for each in found.values())


def test_data_choose():
    text = HEAD.format("", "const float *p = c[i] > 0 ? a : b; d[i] = p[i];")
    names = [f"f_mem_access_array:{name}_load" for name in "abc"]
    found = count_features(source_kernel(text, "f", local=64, groups=1), {}, identifiers=names)
    assert [(each.value, str(each.certainty)) for each in found] == [
        (64, "upper bound"), (64, "upper bound"), (64, "exact"),
    ]  # fmt: skip


def test_what_moves_on_in_loops_reads_somewhere():
    text = HEAD.format("", "const float *p = i < 10 ? a : b; for (int k = 0; k < n; k++) d[i] = *p++;")
    kernel = source_kernel(text.replace("float *d)", "float *d, int n)"), "f", local=64, groups=1)
    found = count_features(kernel, {"n": 8}, identifiers=[f"f_mem_access_array:{name}_load" for name in "ab"])
    assert [(each.value, str(each.certainty)) for each in found] == [(10 * 8, "as stated"), (54 * 8, "as stated")]


@pytest.mark.parametrize(
    "body",
    [
        "float x[4]; const float *p = i < 10 ? a : x; d[i] = p[0];",
        "float x = 1, y = 2; float *p = i < 10 ? &x : &y; *p = 3; d[i] = x;",
        "atomicAdd(i < 10 ? d : (float *)a, 1.0f);",
    ],
)
def test_what_is_not_followed(body):
    text = HEAD.format("", body).replace("float *d)", "float *d, int n)")
    with pytest.raises(UnsupportedKernelError, match="which array"):
        source_kernel(text, "f", local=64, groups=1).scop()
