"""Variants of a source are one kernel where they differ in macros that nothing compiled reads. Truth by hand."""

from __future__ import annotations

import pytest

from perflex import source_kernel
from perflex.features.from_source.live_macros import source_key

# A, as CLBlast's MDIMA, has a meaning only where S is 1.
TEXT = """
#ifndef A
  #define A 8
#endif
#define SIDE (N / A)  // N and A make SIDE
#if S == 1
__device__ float part(const float *x, int i) { return x[i % SIDE]; }
#endif
/* A alone says nothing */
__global__ void k(float *x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  #if S == 1
    x[i] = part(x, i);
  #else
    x[i] = 2 * x[i + N];
  #endif
}
"""


def key(text=TEXT, *, groups="4", stated=None, **defines):
    given = {"A": 16, "S": 0, "N": 64, **defines}
    return source_key(source_kernel(text, "k", language="cuda", local=32, groups=groups, defines=given, stated=stated))


def test_a_macro_that_nothing_reads_makes_no_other_kernel():
    assert key() == key(A=32)
    assert key(S=1) != key(S=1, A=32)


@pytest.mark.parametrize(
    "other",
    [
        {"S": 1},
        {"N": 128},
        {"text": TEXT.replace("2 *", "3 *")},
        {"groups": "8"},
        {"text": TEXT.replace("2 *", "A *"), "A": 32},
    ],
)
def test_what_is_compiled_makes_another_kernel(other):
    assert key(**other) != key()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # In a loop's hint, in a condition that is left out, by another macro, and by a name that is put together.
        ("int i", "#pragma unroll A\n  int i"),
        ("#if S == 1\n    x", "#if S == 1 && A > 8\n    x"),
        ("2 *", "SIDE *"),
        ("#define SIDE", "#define JOINED(a, b) a ## b\n#define SIDE"),
    ],
)
def test_a_macro_that_is_read_anywhere_makes_another_kernel(old, new):
    assert old in TEXT
    text = TEXT.replace(old, new)
    assert key(text) != key(text, A=32)
    assert key(text) == key(text)


def test_a_macro_of_the_launch_makes_another_kernel():
    assert key(groups="A") != key(groups="A", A=32)


def test_headers_read_macros_too(tmp_path):
    (tmp_path / "part.h").write_text("__device__ float part(float v) { return v * A; }\n")
    text = '#include "part.h"\n' + TEXT.replace("2 *", "part(1) *")
    (tmp_path / "k.cu").write_text(text)
    keys = [
        source_key(source_kernel(tmp_path / "k.cu", "k", local=32, groups=4, defines={"S": 0, "N": 64, "A": value}))
        for value in (16, 32)
    ]
    assert keys[0] != keys[1]
