"""Integers that are cut to other types wrap around. Truth: enumeration with C's conversions written out in Python."""

from __future__ import annotations

import pytest

from perflex import source_kernel
from perflex.errors import UnsupportedKernelError
from perflex.features import count_features

ITEMS = 520


def cut(value: int, bits: int, *, signed: bool = True) -> int:
    """Return a number as a type of so many bits holds it."""
    low = 1 << bits - 1 if signed else 0
    return (value + low) % (1 << bits) - low


# What is done, and the condition under which the store is executed, for work-item i and size n.
CASES = {
    "int t = (unsigned char)i; if (t < 9)": lambda i, _: cut(i, 8, signed=False) < 9,
    "int t = (signed char)i; if (t < -9)": lambda i, _: cut(i, 8) < -9,
    "short s = i * 1024; if (s < 0)": lambda i, _: cut(i * 1024, 16) < 0,
    "unsigned char c = 250 + i; c += 10; if (c == 4)": lambda i, _: cut(i + 260, 8, signed=False) == 4,
    "unsigned char c = i; unsigned char d = -c; if (d > 250)": lambda i, _: cut(-i, 8, signed=False) > 250,
    "int t = (int)(i * 2654435761u); if (t < 0)": lambda i, _: cut(i * 2654435761, 32) < 0,
    "unsigned u = i - 5; int d = u; if (d < 0)": lambda i, _: i < 5,
    "unsigned u = (unsigned)(i - 5); if (u > 10000)": lambda i, _: i < 5,
    "long l = (int)(3000000000u - i); if (l < 0)": lambda *_: True,
    "long long l = (1ll << 40) + i; int t = l; if (t == 7)": lambda i, _: i == 7,
    "uchar4 v = make_uchar4(i, 2 * i, 3 * i, 0); if (v.y < 4)": lambda i, _: cut(2 * i, 8, signed=False) < 4,
    "unsigned char k[2] = {(unsigned char)300}; if (i < k[0])": lambda i, _: i < 44,
    "unsigned short s = n + 65000; if (i < s)": lambda i, n: i < cut(n + 65000, 16, signed=False),
    "if ((unsigned char)(i + n) == 3)": lambda i, n: cut(i + n, 8, signed=False) == 3,
    "int t = 0; for (unsigned char c = 0; c < 200; c++) t++; if (i < t)": lambda i, _: i < 200,
    "int t = 0; for (signed char c = 100; c >= 0; c -= 20) t++; if (i < t)": lambda i, _: i < 6,
    "bool q = i & 6; if (q)": lambda i, _: bool(i & 6),
    "int t = min((unsigned char)i, (unsigned char)n); if (t == 44)": (
        lambda i, n: min(i % 256, n % 256) == 44
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", range(len(CASES)))
def test_integers_that_are_cut(place):
    text = "".join(
        f"__global__ void f{number}(float *a, int n) "
        f"{{ int i = blockIdx.x * blockDim.x + threadIdx.x; {body} a[i] = 1; }}\n"
        for number, body in enumerate(CASES)
    )
    kernel, holds = source_kernel(text, f"f{place}", local=ITEMS // 5, groups=5), list(CASES.values())[place]
    for n in (300, 1000):
        [count] = count_features(kernel, {"n": n}, identifiers=["f_mem_access_global_float32_store"])
        assert count.value == sum(holds(i, n) for i in range(ITEMS))
        assert str(count.certainty) == "exact"


def test_a_counter_that_never_reaches_its_end():
    text = "kernel void f(global float *a, int n) { for (uchar c = 0; c < n; c++) a[c] = 1; }"
    kernel = source_kernel(text, "f", local=1, groups=1)
    with pytest.raises(UnsupportedKernelError, match=r"trip count of .* is not known"):
        kernel.scop({"n": 300})
    [count] = count_features(kernel, {"n": 255}, identifiers=["f_mem_access_global_float32_store"])
    assert count.value == 255
