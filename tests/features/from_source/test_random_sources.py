"""Counts of random kernels in OpenCL C and CUDA C, against an interpreter of their text."""

from collections import Counter

import pytest

from oracles.c_text.comparing import Text, compared, executed
from oracles.c_text.programs import minimised
from oracles.c_text.random_texts import random_program


def outcome(seed):
    """Return how a kernel fares; one that is counted wrong is shown as small as it still fails."""
    program = random_program(seed)
    found = compared(program.text())
    if found.word == "wrong":
        small = minimised(program, lambda text: compared(text).word == "wrong").text()
        pytest.fail(f"seed {seed}:\n{small}\n{compared(small).why}")
    return found.word


def test_counts_are_what_is_executed():
    words = Counter(map(outcome, range(24)))
    assert words["right"] + words["bound"] > 16


@pytest.mark.slow
def test_counts_of_many_kernels():
    words = Counter(map(outcome, range(1000, 1400)))
    assert words["right"] + words["bound"] > 160
    assert words["refused"] < 40


# What executing a text counts, by hand.
BY_HAND = {
    "products that feed sums": (
        "__kernel void k(__global float *x) { int i = get_global_id(0); x[i] = x[i] * x[i + 1] - 2.0f * (x[i] + 3); }",
        {"bytes load x": 16 * 12, "bytes store x": 64, "touched of x": 68, "float32 madd": 16, "float32 mul": 16,
         "float32 add": 16},
    ),
    "leaving early": (
        ("__kernel void k(__global float *x, int n) { int i = get_global_id(0); if (i > n) return;"
        " for (int j = 0; j < 9; j++) { if (j == 1) continue; if (j > 3) break; x[j] = 0; } }"),
        {"bytes store x": 6 * 12, "touched of x": 12},
    ),
    "structs and methods": (
        ("struct P { char c; float2 v; }; struct Q { float *p; __device__ float at(int i) { return p[i]; } };"
        " template <int N> __device__ float f(P p) { return p.v.y * N; }"
        ' extern "C" __global__ void k(P *p, float *x) { Q q = {x + 1}; x[0] = f<3>(p[threadIdx.x]) + q.at(2); }'),
        {"bytes load p": 144, "touched of p": 72, "bytes load x": 64, "bytes store x": 64, "touched of x": 8,
         "float32 mul": 16, "float32 add": 16},
    ),
    "vectors and barriers": (
        ("__kernel void k(__global float3 *t, __global float *x) { __local float s[8]; int l = get_local_id(0);"
        " s[l] = t[1].z; barrier(CLK_LOCAL_MEM_FENCE); vstore3(t[0] * s[7 - l], l, x); }"),
        {"bytes load t": 16 * 20, "touched of t": 20, "bytes store s": 64, "bytes load s": 64, "barriers": 2,
         "float32 mul": 48, "bytes store x": 192, "touched of x": 96},
    ),
    "C's integers": (
        ("__kernel void k(__global float *x) { unsigned char c = 255; c += 2; int d = -7 / 2, m = -7 % 3;"
        " x[c] = 1; if (d == -3 && m == -1) x[5] = 1; if (0u - 1u > 9u) x[6] = 1; if (~3 == -4) x[1 << c] = 1; }"),
        {"bytes store x": 256, "touched of x": 16},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_the_interpreter_counts_as_by_hand(name):
    source, truth = BY_HAND[name]
    found = executed(Text(source, cuda="__global__" in source, sizes={"n": 5}))
    assert {word: count for word, count in found.items() if count} == truth


# What random kernels found: lines, and what is counted in the 16 work-items together.
FOUND = {
    # Compilers do not know n.
    "x[i] = (float)n * 0.5f * 2.0f + x[i];": {"float32 mul": 16, "float32 madd": 16},
    "x[(int)((float)(3 - n) * 0.5f) + 9] = 0;": {"float32 mul": 16},
    "x[i] = sqrt((float)n) * 0.5f;": {"float32 sqrt": 16, "float32 mul": 16},
    "x[i] = 2.0f * 3.0f * x[i];": {"float32 mul": 16},
    "x[i] = (i >= 0 ? 2 : 4) * 0.5f;": {"float32 mul": 16},
    "x[(int)((float)(~4) * 0.5f) + 9] = 0;": {"bytes store x": 64},
    # A single product feeds no sum of four.
    "v[i] = v[i] + x[i] * x[i + 1];": {"float32 mul": 16, "float32 add": 64},
    # What tests change at the end of a loop.
    "int j = 4; while (j--) {} x[j + 1] = 0; if (j == -1) x[j + 2] = 1;": {"touched of x": 8},
    "int j = 4; while (j-- > 1) { if (i == 1) break; } x[j] = 0; ": {"bytes store x": 64, "touched of x": 8},
}


@pytest.mark.parametrize("line", FOUND)
def test_counts_that_random_kernels_mended(line):
    source = f"__kernel void k(__global float *x, __global float4 *v, int n) {{ int i = get_global_id(0); {line} }}"
    text = Text(source, cuda=False, sizes={"n": 5})
    assert compared(text).word in {"right", "bound"}
    assert FOUND[line].items() <= executed(text).items()
