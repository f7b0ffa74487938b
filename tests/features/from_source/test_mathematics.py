"""Which operations functions are, and of which type. Truth: what they compute, by hand."""

from __future__ import annotations

import pytest

from perflex import source_kernel
from perflex.features import count_features

CUDA = {
    # Half precision, in pairs, too
    "a[i] = a[i] * a[i] + a[i];": "float16 madd",
    "a[i] = __hfma(a[i], a[i], __hmul(a[i], a[i]));": "float16 fma, float16 mul",
    "a[i] = __hsub(a[i], __hdiv(a[i], __hadd(a[i], a[i])));": "float16 2 add, float16 div",
    "h[i] = __hfma2(h[i], h[i], __hmul2(h[i], h[i]));": "float16 2 fma, float16 2 mul",
    "h[i] = h[i] * h[i]; h[i] += __hsub2(h[i], h[i]);": "float16 2 mul, float16 4 add",
    "h[i] = half2(a[i], a[i]) + __float2half2_rn(1.f) + __halves2half2(a[i], a[i]);": "float16 4 add",
    "half2 p; p.x = a[i]; p.y = __hneg(p.x); b[i] = __low2float(p) * __half2float(p.y);": "float32 mul",
    "float2 f = __half22float2(h[i]); b[i] = f.x * f.y;": "float32 mul",
    "a[i] = hexp(__hmax(a[i], hsqrt(a[i]))); h[i] = h2rsqrt(h[i]);":
        "float16 exp, float16 max, float16 sqrt, float16 2 rsqrt",
    "if (__hgt(a[i], __float2half_rn(b[i]))) b[i] = 1;": "float16 cmp",
    "b[i] = __half2float(a[i]) * 2.0f;": "float32 mul",
    "g[i] = g[i] * g[i] + __float2bfloat16(b[i]);": "bfloat16 madd",
    "g[i] = __hadd(g[i], __hmul(g[i], hexp(g[i])));": "bfloat16 madd, bfloat16 exp",
    "b[i] = __bfloat162float(g[i]) + __bfloat162float(g[i]);": "float32 add",
    "gg[i] = __hfma2(gg[i], __hmax2(gg[i], gg[i]), __floats2bfloat162_rn(b[i], b[i]));":
        "bfloat16 2 fma, bfloat16 2 max",
    # Limits and constants
    "b[i] = fmaxf(b[i], -std::numeric_limits<float>::infinity()) + std::numeric_limits<float>::epsilon();":
        "float32 max, float32 add",
    "if (i < std::numeric_limits<uint8_t>::max()) b[i] = FLT_MAX;": "",
    "std::uint32_t u = INT16_MAX; if (u > 32766u && UINT64_MAX > LLONG_MAX) b[i] *= FLT_MIN;": "float32 mul",
    # Functions
    "float s, c; sincosf(b[i], &s, &c); b[i] = s * c;": "float32 sin, float32 cos, float32 mul",
    "__sincosf(b[i], &b[i], &b[i + 1]);": "float32 native_sin, float32 native_cos",
    "b[i] = __expf(b[i]) * __fdividef(b[i], __powf(b[i], 1.5f)) + __frsqrt_rn(b[i]);":
        "float32 native_exp, float32 native_div, float32 native_pow, float32 madd, float32 rsqrt",
    "double s, c; sincospi(d[i], &s, &c); d[i] = s;": "float64 sinpi, float64 cospi",
    "b[i] = hypotf(b[i], norm3df(b[i], 1.f, b[i]));": "float32 hypot, float32 mul, float32 2 madd, float32 sqrt",
    # Those that round as stated are never fused.
    "b[i] = __fadd_rn(__fmul_rn(b[i], b[i]), b[i]) + __fmul_rz(b[i], b[i]);": "float32 2 mul, float32 2 add",
    "b[i] = __saturatef(b[i]);": "float32 min, float32 max",
    "int k; b[i] = modff(b[i], &b[i]) + remquof(b[i], 2.f, &k);": "float32 trunc, float32 2 add, float32 fmod",
    "b[i] = std::sqrt(std::abs(b[i])) + __fmaf_rz(b[i], 2.f, __fdiv_ru(1.f, b[i]));":
        "float32 sqrt, float32 abs, float32 add, float32 fma, float32 div",
    "b[i] = exp2f(2000.0f);": "float32 exp2",
    "d[i] = floor(1e999);": "float64 floor",
    "if (clock64() > clock()) b[i] = 1;": "int64 cmp",
}  # fmt: skip
OPENCL = {
    "b[i] = dot(v[i], v[i]);": "float32 mul, float32 3 madd",
    # Registers of the hardware
    "if (get_sub_group_local_id() < get_sub_group_size()) b[get_sub_group_id()] = get_num_sub_groups();": "uint32 cmp",
    "b[i] = dot(b[i], b[i]);": "float32 mul",
    "b[i] = length(u[i]);": "float32 mul, float32 2 madd, float32 sqrt",
    "b[i] = fast_length(b[i]);": "float32 abs",
    "b[i] = distance(v[i], v[i]);": "float32 4 add, float32 mul, float32 3 madd, float32 sqrt",
    "v[i] = normalize(v[i]);": "float32 5 mul, float32 3 madd, float32 rsqrt",
    "u[i] = cross(u[i], u[i]);": "float32 3 mul, float32 3 madd",
    "v[i] = mix(v[i], v[i], 0.5f);": "float32 4 add, float32 4 madd",
    "v[i] = fma(v[i], v[i], v[i]) * degrees(v[i]);": "float32 4 fma, float32 8 mul",
    "v[i] = clamp(v[i], 0.0f, 1.0f);": "float32 4 min, float32 4 max",
    "b[i] = smoothstep(b[i], b[i], b[i]);":
        "float32 2 add, float32 div, float32 min, float32 max, float32 2 mul, float32 madd",
    "v[i] = step(v[i], v[i]);": "float32 4 cmp",
    "v[i] = native_sqrt(v[i]) * half_recip(v[i]) + native_powr(v[i], native_rsqrt(v[i]));":
        "float32 4 native_sqrt, float32 4 native_div, float32 4 native_pow, float32 4 madd, float32 4 rsqrt",
    "float2 w; v[i].lo = fract(v[i].hi, &w);": "float32 2 floor, float32 2 add, float32 2 min",
    "float c; b[i] = sincos(b[i], &c) + c;": "float32 sin, float32 cos, float32 add",
    "b[i] = select(b[i], 1.0f, isless(b[i], 2.0f));": "float32 cmp",
    "v[i] = shuffle(v[i], (uint4)(3, 2, 1, 0));": "float32 4 call:shuffle",
}  # fmt: skip
ARGUMENTS = {
    "cuda": "__global__ void f{}(half *a, __half2 *h, __nv_bfloat16 *g, __nv_bfloat162 *gg, float *b, double *d)",
    "opencl": "kernel void f{}(global float *b, global float4 *v, global float3 *u)",
}
HEAD = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <limits>\n#include <cstdint>\n#include <cfloat>\n"


def _texts(language: str, bodies: list[str]) -> str:
    item = {"cuda": "threadIdx.x", "opencl": "get_global_id(0)"}[language]
    head = HEAD if language == "cuda" else ""
    return head + "".join(
        f"{ARGUMENTS[language].format(number)} {{ int i = {item}; {body} }}\n" for number, body in enumerate(bodies)
    )


@pytest.mark.parametrize(("language", "cases"), [("cuda", CUDA), ("opencl", OPENCL)])
def test_operations_of_functions(language, cases):
    text = _texts(language, list(cases))
    for number, (body, right) in enumerate(cases.items()):
        scop = source_kernel(text, f"f{number}", local=32, groups=1).scop()
        found = sorted(
            f"{each.dtype} {each.count} {each.kind}" for statement in scop.statements for each in statement.operations
        )
        total: dict[str, int] = {}
        for each in found:
            dtype, count, kind = each.split()
            total[f"{dtype} {kind}"] = total.get(f"{dtype} {kind}", 0) + int(count)
        expected = {}
        for each in filter(None, right.split(", ")):
            dtype, *count, kind = each.split()
            expected[f"{dtype} {kind}"] = int(count[0]) if count else 1
        assert total == expected, body


SUBSCRIPTS = {
    "clamp(i - 1, 0, 40)": 41, "select(i, 3, i > 9)": 10, "get_global_linear_id()": 64, "clamp((uint)i, 2u, 5u)": 4,
}  # fmt: skip


def test_subscripts_that_functions_choose():
    text = _texts("opencl", [f"b[{subscript}] = 1;" for subscript in SUBSCRIPTS])
    for number, right in enumerate(SUBSCRIPTS.values()):
        kernel = source_kernel(text, f"f{number}", local=32, groups=2)
        [count] = count_features(kernel, {}, identifiers=["f_mem_footprint_array:b"])
        assert (count.value, str(count.certainty)) == (right, "exact")
    text = "kernel void f(global float *b) { b[get_global_linear_id()] = 1; }"
    kernel = source_kernel(text, "f", local=(4, 2, 1), groups=(3, 5, "n"))
    [count] = count_features(kernel, {"n": 2}, identifiers=["f_mem_footprint_array:b"])
    assert (count.value, str(count.certainty)) == (4 * 2 * 3 * 5 * 2, "exact")
