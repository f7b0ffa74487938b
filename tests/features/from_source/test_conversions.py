"""Numbers that types change: integers that are cut wrap around.

Truth: enumeration with C's conversions written out in Python.
"""

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
    # Unsigned integers are compared as they wrap around; a shift has the type of its left operand.
    "if (min((unsigned)i - 1u, 5u) == 5u)": lambda i, _: i == 0 or i > 5,
    "if (max(i - 300, 3u) > 1000u)": lambda i, _: i < 300,
    "if (((i - 8) >> 1u) < 0)": lambda i, _: i < 8,
    "if ((i << 1ul) - 8 < 0)": lambda i, _: i < 4,
    "unsigned char c = i; if ((c << 8u) - 512 < 0)": lambda i, _: i % 256 < 2,
    "unsigned q = (unsigned)(-(long long)(i % 2) * 3000000000ll); if (q == 1294967296u)": lambda i, _: i % 2,
    # Enumerations are as wide as they say.
    "enum class E : unsigned char { A = 250, B, C }; E e = (E)(i + 250); if (e == E::B || (int)e < 5)": (
        lambda i, _: cut(i + 250, 8, signed=False) in {251, *range(5)}
    ),
    # Floats hold what their type holds.
    "if (i < (int)(0.29f * 100.0f))": lambda i, _: i < 29,
    "float f = 16777216.0f; f += 1.0f; if (f == 16777216.0f && i < 9)": lambda i, _: i < 9,
    "float f = n + 16777216 - n % 2; if (f == n + 16777216 && n == 1000)": lambda _, n: n == 1000,
    # The right side of && and || may not be executed.
    "int j = 0; if (i > 3 && j++ >= 0) {} if (j)": lambda i, _: i > 3,
    "int j = 0; if (i > 3 || (j = 2) > 5) {} if (j == 2)": lambda i, _: i <= 3,
    "int j = 1; bool b = i < 4 && ++j; if (b != (j == 1))": lambda *_: True,
    "int c = 1, b = 1; (c = 5) -= 2, ++(++b); int &r = ++c; r += 3; if (c == 7 && b == 3)": lambda *_: True,
    "int q = i - 3 ?: 7; if (q == 7)": lambda i, _: i in {3, 10},
    "if (int q = i / 100; q > 1) if (int r = q - 2)": lambda i, _: i >= 300,
    "int q = 0; if (q = i / 100; q > 1)": lambda i, _: i >= 200,
    # Cases may be ranges, or the only statement.
    "bool q = false; switch (i) { case 1 ... 5: q = true; break; case 7: q = true; } if (q)": (
        lambda i, _: i in {1, 2, 3, 4, 5, 7}
    ),
    "switch (i) case 3:": lambda i, _: i == 3,
    "int q = 0; switch (i) { case 0 ... 3: break; case 5: default: case 7: q = 2; break; case 9:; } if (q)": (
        lambda i, _: i not in {0, 1, 2, 3, 9}
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


# What is done, the argument n, and the stores of 8 work-items; None where they are not known.
@pytest.mark.parametrize(("line", "n", "stores"), [
    ("ulong h = (ulong)i * 11400714819323198485ul; if ((h >> 63) == 1) a[i] = 1;", 1, None),
    ("if ((float)n == 16777216.0f) a[i] = 1;", 16777217, 8), ("if ((float)n == 16777216.0f) a[i] = 1;", 9, 0),
    ("float f = 1; if (as_int(f) == 0x3f800000) a[i] = 1;", 1, None),
    ("char4 c = as_char4(i); if (c.y == 1) a[i] = 1;", 1, None),
    ("uchar c = convert_uchar_sat(i + 252); if (c == 255) a[i] = 1;", 1, None),
    ("uchar c = convert_uchar_sat(i + 2); if (c == 5) a[i] = 1;", 1, 1),
    ("if (convert_int_rte(2.7f) == 3) a[i] = 1;", 1, None), ("if (convert_int_rtz(2.7f) == 2) a[i] = 1;", 1, 8),
    ("if (clamp((uint)i - 3u, 0u, 5u) == 5u) a[i] = 1;", 1, 3), ("if (abs((uint)i) == 5) a[i] = 1;", 1, 1),
])  # fmt: skip
def test_numbers_that_are_not_what_their_formula_says(line, n, stores):
    text = f"kernel void f(global float *a, int n) {{ int i = get_global_id(0); {line} }}"
    kernel = source_kernel(text, "f", local=8, groups=1)
    [count] = count_features(kernel, {"n": n}, identifiers=["f_mem_access_global_float32_store"])
    assert (count.value if str(count.certainty) == "exact" else None) == stores


def test_a_counter_that_never_reaches_its_end():
    text = "kernel void f(global float *a, int n) { for (uchar c = 0; c < n; c++) a[c] = 1; }"
    kernel = source_kernel(text, "f", local=1, groups=1)
    with pytest.raises(UnsupportedKernelError, match=r"trip count of .* is not known"):
        kernel.scop({"n": 300})
    [count] = count_features(kernel, {"n": 255}, identifiers=["f_mem_access_global_float32_store"])
    assert count.value == 255


def test_an_index_that_sizes_make_too_large_for_its_type():
    """One description for all sizes, which wraps around at some, takes isl minutes: at these there is another one."""
    text = """kernel void f(global float *a, global float *b, const int nx, const int ny) {
        const int x0 = get_group_id(0)*16*1000000, y0 = get_group_id(1), tx = get_local_id(0);
        for (int u = 0; u < 1000000; u++) for (int q = 0; q < 7; q++) for (int r = 0; r < 7; r++)
            a[(y0 + q)*(nx + 6) + x0 + tx + u*16 + r] = 0;
        if (x0 < 0) b[x0 + 2147483648 + tx] = 1;
    }"""
    kernel = source_kernel(text, "f", local=16, groups=("ceil_div(nx, 16000000)", "ny"))
    stores = ["f_mem_access_global_float32_store"]
    assert kernel.scop().parameters
    for nx, groups in ((1024, 1), (160_000_000, 10), (1 << 32, 269)):
        [count] = count_features(kernel, {"nx": nx, "ny": 3}, identifiers=stores)
        negative = sum(16_000_000 * group >= 1 << 31 for group in range(groups))
        assert count.value == 3 * 16 * (49_000_000 * groups + negative)


def test_a_product_of_32_bits_in_an_index_of_64():
    text = "kernel void f(global float *a, uint n) { uint i = get_local_id(0); a[(i + 2) * n + get_group_id(0)] = 1; }"
    kernel = source_kernel(text, "f", local=8, groups=4)
    strided = ["f_mem_access_global_float32_store_lstrides:{0:n}_gstrides:{0:1}"]
    [count] = count_features(kernel, {"n": 1000}, identifiers=strided)
    assert (count.value, str(count.certainty), len(kernel.unstated())) == (32, "exact", 0)
    # Beyond 32 bits it wraps around.
    [count] = count_features(kernel, {"n": 1 << 29}, identifiers=strided)
    assert count.value == 0
