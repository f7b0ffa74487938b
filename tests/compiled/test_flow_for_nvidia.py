"""What code for NVIDIA's GPUs executes where numbers have 64 bits, loops are long, or data decide."""

from math import ceil

import pytest
from nvidia_kernels import ARCHITECTURES, built, every_count, needs_tools

from perflex.compiled.control_flow import UnknownFlowError
from perflex.compiled.nvidia.counts import block_runs, issued_counts, launch_counts
from perflex.compiled.nvidia.cubin import disassembled


@needs_tools
def test_long_loops_are_left_by_calls_from_which_nothing_returns():
    """So compilers for Ampere write jumps out of them; real functions return."""
    body = (
        "__shared__ float t[64]; float s = 0; for (int k = 0; k < n; k += 16) { "
        "t[threadIdx.x] = x[k * 64 + threadIdx.x]; __syncthreads(); "
        "\n#pragma unroll\nfor (int j = 0; j < 600; ++j) s = s * t[j & 63] + t[j * 7 & 63]; __syncthreads(); } "
        "x[threadIdx.x] = s;"
    )
    code, _ = built(body, "sm_80")
    assert any(one.name == "CALL" for one in disassembled(code))
    found = every_count(code, [None, 48])
    assert found["float32"] == 600 * 3 * 8
    assert found["global_loads"] == found["barriers"] / 2 == 3 * 8


ID = "size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;"
WIDE = {
    "guard": (f"{ID} if (i < n) x[i] = 1;", lambda n: ceil(n / 32)),
    "stride": (f"{ID} for (; i < n; i += (size_t)gridDim.x * blockDim.x) x[i] *= 2;", lambda n: ceil(n / 32)),
    "loop": ("for (size_t k = 0; k < n; ++k) x[k * 256 + threadIdx.x] += 1;", lambda n: 8 * n),
    "signed": ("for (long long k = 5; k < (long long)n; ++k) x[k * 256 + threadIdx.x] = 1;", lambda n: 8 * (n - 5)),
}


@needs_tools
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("n", [33, 1000])
def test_numbers_of_64_bits_are_followed(architecture, kind, n):
    body, expected = WIDE[kind]
    if kind == "guard" and n > 256:
        n = 256
    code, _ = built(body, architecture, arguments="float *x, size_t n")
    assert every_count(code, [None, n])["global_stores"] == pytest.approx(expected(n))


@needs_tools
@pytest.mark.parametrize(
    "body",
    [
        "if (v > 1) { CHAIN } x[threadIdx.x] = v;",
        "if (v <= 1) return; CHAIN x[threadIdx.x] = v;",
        "for (int k = 0; k < 4; ++k) { __syncthreads(); if (v > k) { CHAIN } } x[threadIdx.x] = v;",
    ],
)
def test_of_branches_that_data_decide_the_longer_way_counts(body):
    """As of the source, whose counts are bounds there."""
    chain = "v = v * v + n; " * 50
    code, _ = built(f"float v = x[threadIdx.x]; {body.replace('CHAIN', chain)}", "sm_90")
    found = issued_counts(*block_runs(code, [None, 7], private=True))
    assert found["float32"] == pytest.approx(50 * 8 * (4 if "for" in body else 1), rel=0.05)


@needs_tools
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("function", "expected"), [("sinf(v)", 23), ("tanf(v)", 22), ("powf(v, u)", 61), ("v / u", 10)]
)
def test_ways_for_rare_numbers_do_not_count(architecture, function, expected):
    """Expected is what usual numbers take, found by hand in other code (`operation_slots`)."""
    body = (
        f"float s = 0, u = x[0]; for (int k = 0; k < n; ++k) {{ float v = x[k * 64 + threadIdx.x]; s += {function}; }}"
    )
    code, _ = built(f"{body} x[threadIdx.x] = s;", architecture)
    plain, _ = built(f"{body.replace(function, 'v')} x[threadIdx.x] = s;", architecture)
    counts = [issued_counts(*block_runs(each, [None, 10], private=True))["instructions"] for each in (code, plain)]
    assert (counts[0] - counts[1]) / (10 * 8) == pytest.approx(expected, rel=0.5)


@needs_tools
def test_conversions_to_floats_are_data():
    """Divisions of floats have a slow way, which the operands decide."""
    code, _ = built("x[threadIdx.x] = threadIdx.x / (float)n + x[n] / (float)(n + threadIdx.x);", "sm_90")
    assert launch_counts(code, [None, 7])["special"] >= 2 * 8


@needs_tools
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("int i = threadIdx.x; while (x[i] > 1) i += 2; x[0] = i;", "how often the loop"),
        ("if (x[threadIdx.x] > 1) x[threadIdx.x + n] = sqrtf(x[n]);", "data determine whether"),
        # A frame that data index is no place of spilt registers.
        ("int t[9]; for (int i = 0; i < 9; i++) t[i] = i; t[(int)x[0]] = 5; if (t[3] < 4) x[n] = 1;", "data determine"),
    ],
)
def test_what_data_decide_is_refused(body, why):
    code, _ = built(body, "sm_90")
    with pytest.raises(UnknownFlowError, match=why):
        every_count(code, [None, 5])


@needs_tools
def test_branches_of_ids_in_loops_count_beside_branches_that_data_decide():
    # Slow ways of divisions, which data decide, are what compilers keep as branches.
    body = (
        "float v = x[0] / x[1];\n#pragma unroll 1\nfor (int k = 0; k < n; ++k) { if (threadIdx.x + k < 40) {"
        "\n#pragma unroll 1\nfor (int j = 0; j < m; ++j) v = v * v + 1.5f; } v = v / x[2]; } x[3] = v;"
    )
    code, _ = built(body, "sm_90", arguments="float *x, int n, int m")

    def found(n, m):
        return every_count(code, [None, n, m])["float32"]

    entered = sum(any(item + k < 40 for item in range(first, first + 32)) for k in range(50) for first in (0, 32))
    assert entered == 48
    assert found(50, 11) - found(50, 1) == 4 * entered * 10
    # The divisions of all iterations are the same.
    each = (found(50, 1) - 4 * entered - found(0, 1)) / (4 * 2 * 50)
    assert each == found(1, 0) / 8 - found(0, 0) / 8 > 2


@needs_tools
def test_accesses_that_data_let_take_part_are_refused_alone():
    code, _ = built("float v = x[threadIdx.x]; if (v > 1) x[threadIdx.x + n] = v; x[99 * n] = 1;", "sm_90")
    assert any(one.name == "STG" and one.predicate for one in disassembled(code))
    assert launch_counts(code, [None, 5])["instructions"] > 8 * 5
    with pytest.raises(UnknownFlowError, match="data determine whether STG"):
        launch_counts(code, [None, 5], accesses=True)


@needs_tools
def test_jumps_that_depend_on_what_is_not_followed_are_refused():
    body = (
        'unsigned lane; asm volatile("mov.u32 %0, %clock;" : "=r"(lane)); float v = x[0];'
        "\n#pragma unroll 1\nfor (int j = 0; j < n; ++j) if (lane & 1) {"
        "\n#pragma unroll 1\nfor (int k = 0; k < n; ++k) v = v * v + 1.5f; } x[1] = v;"
    )
    code, _ = built(body, "sm_90")
    with pytest.raises(UnknownFlowError, match=r"depends on .*, which is not followed"):
        every_count(code, [None, 5])
