"""Layouts of vectors and structs, and what is moved of them. Truth: the languages' and CUDA's rules, by hand."""

from __future__ import annotations

import re
from functools import cache

import pytest

from perflex import source_kernel
from perflex.features import count_features

# Declaration, type, its size, offset and bytes of each access that moves it.
CUDA = [
    ("", "float3", 12, [(0, 4), (4, 4), (8, 4)]),
    ("", "float4", 16, [(0, 16)]),
    ("", "float2", 8, [(0, 8)]),
    ("", "float1", 4, [(0, 4)]),
    ("", "uchar3", 3, [(0, 1), (1, 1), (2, 1)]),
    ("", "char2", 2, [(0, 2)]),
    ("", "short3", 6, [(0, 2), (2, 2), (4, 2)]),
    ("", "ushort4", 8, [(0, 8)]),
    ("", "double3", 24, [(0, 8), (8, 8), (16, 8)]),
    ("", "double4", 32, [(0, 16), (16, 16)]),
    ("", "longlong2", 16, [(0, 16)]),
    ("struct S { float3 pos; float m; };", "S", 16, [(0, 4), (4, 4), (8, 4), (12, 4)]),
    ("struct __align__(16) S { float3 pos; float m; };", "S", 16, [(0, 16)]),
    ("struct __align__(8) S { int i[3]; };", "S", 16, [(0, 8), (8, 8)]),
    ("struct S { char c; double d; int i; };", "S", 24, [(0, 1), (8, 8), (16, 4)]),
    ("struct __attribute__((packed)) S { char c; short s; };", "S", 3, [(0, 1), (1, 1), (2, 1)]),
    ("union S { int i; double d; char c[5]; };", "S", 8, [(0, 8)]),
    ("struct S { char c; union { int i; short s; }; };", "S", 8, [(0, 1), (4, 4)]),
    ("struct P { float4 v; int i; }; struct S { char c; P p[2]; };", "S", 80,
     [(0, 1), (16, 16), (32, 4), (48, 16), (64, 4)]),
    ("struct P { double d; }; struct S : P { const float *p; short s; };", "S", 24, [(0, 8), (8, 8), (16, 2)]),
    ("template <typename T> struct S { T x, y; };", "S<short>", 4, [(0, 2), (2, 2)]),
]  # fmt: skip
OPENCL = [
    ("", "float3", 16, [(0, 16)]),
    ("", "uchar3", 4, [(0, 4)]),
    ("", "double3", 32, [(0, 32)]),
    ("", "float8", 32, [(0, 32)]),
    ("typedef struct { float3 pos; float m; } S;", "S", 32, [(0, 16), (16, 4)]),
    ("typedef struct { uchar c; float2 v; } S;", "S", 16, [(0, 1), (8, 8)]),
    ("typedef struct __attribute__((aligned(16))) { int i[4]; } S;", "S", 16, [(0, 16)]),
]
# Five loads of x[1] and five stores of y[2].
MOVES = """
    y[2] = x[1];
    T v = x[1], w; w = v; y[2] = w;
    y[2] = same(x[1]);
    const SPACE T *p = x + 1; SPACE T *q = &y[2]; T u = *p; *q = u;
    y[2] = *(const SPACE T *)((const SPACE char *)x + sizeof(T));
"""
HEADS = {"cuda": ("__device__", "__global__", ""), "opencl": ("", "kernel", "global")}


@cache
def _accesses(text: str, name: str, direction: str) -> list[tuple[int, int]]:
    """Return where in its array and how wide each access is."""
    kernel = source_kernel(text, name, local=1, groups=1)
    found = [each for executed in kernel.walked({}).recorder.executed for each in executed.accesses]
    return [
        (each.offset.value, each.bytes) for each in found if each.direction == direction and each.offset is not None
    ]


def _moving(language: str, cases: list[tuple[str, str, int, list[tuple[int, int]]]]) -> str:
    """Return a kernel ``f0``, ``f1`` and so on for each case."""
    function, kernel, space = HEADS[language]
    text = ""
    for number, (declared, kind, *_) in enumerate(cases):
        moves = MOVES.replace("same", f"same{number}")
        lines = re.sub(r"\bS\b", f"S{number}", f"{declared}\n#define T {kind}")
        lines = re.sub(r"\bP\b", f"P{number}", lines)
        text += (
            f"{lines}\n{function} T same{number}(T v) {{ return v; }}\n"
            f"{kernel} void f{number}({space} const T *x, {space} T *y) {{ {moves} }}\n"
            "#undef T\n"
        )
    return text.replace("SPACE", space)


@pytest.mark.parametrize(("language", "cases"), [("cuda", CUDA), ("opencl", OPENCL)])
def test_what_is_moved(language, cases):
    text = _moving(language, cases)
    for number, (declared, kind, size, parts) in enumerate(cases):
        for direction, place in (("load", 1), ("store", 2)):
            right = [(place * size + begin, each) for begin, each in parts] * 5
            assert _accesses(text, f"f{number}", direction) == right, (declared, kind)


# Of x[1], a vector of float: what is moved, by element.
PARTS = [
    ("float8", "lo", [(0, 4)]), ("float8", "hi", [(4, 4)]), ("float8", "odd", [(1, 1), (3, 1), (5, 1), (7, 1)]),
    ("float8", "hi.lo", [(4, 2)]), ("float8", "even.hi.lo", [(4, 1)]), ("float4", "hi", [(2, 2)]),
    ("float4", "xw", [(0, 1), (3, 1)]), ("float4", "zyx", [(0, 1), (1, 1), (2, 1)]), ("float4", "y", [(1, 1)]),
    ("float16", "s89abCDEF", [(8, 8)]), ("float16", "s08", [(0, 1), (8, 1)]), ("float4", "wzyx.lo", [(2, 2)]),
    ("float3", "hi", [(2, 2)]), ("float3", "yz", [(1, 2)]), ("float2", "lo", [(0, 1)]),
]  # fmt: skip


def test_parts_of_vectors():
    owners = "x[1]", "(x + 1)->v", "x[1].v"
    cases = [(owner, *part) for owner in owners for part in PARTS]
    text = ""
    for number, (owner, kind, part, _) in enumerate(cases):
        element, named = (f"S{number}" if "v" in owner else kind), f"{owner}.{part}"
        count = sum(count for _, count in cases[number][3])
        result = f"float{count}" if count > 1 else "float"
        text += (
            f"typedef struct {{ {kind} v; }} S{number};\n"
            f"kernel void f{number}(global {element} *x) {{ {result} v = {named}; {named} = v; }}\n"
        )
    for number, (owner, kind, part, parts) in enumerate(cases):
        size = {"float3": 16}.get(kind, 4 * int(kind.removeprefix("float")))
        right = [(size + 4 * begin, 4 * count) for begin, count in parts]
        for direction in ("load", "store"):
            assert _accesses(text, f"f{number}", direction) == right, (owner, kind, part)


def test_vectors_without_gaps():
    right = {
        "y[0] = vload3(2, x).x;": [(24, 4), (28, 4), (32, 4)],
        "y[0] = vload4(2, x).x;": [(32, 16)],
        "y[0] = vload_half3(2, (global half *)x).x;": [(12, 2), (14, 2), (16, 2)],
        "y[0] = vloada_half3(2, (global half *)x).x;": [(16, 2), (18, 2), (20, 2)],
        "y[0] = vload_half(2, (global half *)x);": [(4, 2)],
        "vstore3(v, 2, x);": [(24, 4), (28, 4), (32, 4)],
        "vstorea_half3_rte(v, 2, (global half *)x);": [(16, 2), (18, 2), (20, 2)],
    }
    text = "\n".join(
        f"kernel void f{number}(global float *x, global float *y, float3 v) {{ {body} }}"
        for number, body in enumerate(right)
    )
    for number, (body, parts) in enumerate(right.items()):
        direction = "store" if body.startswith("vstore") else "load"
        assert _accesses(text, f"f{number}", direction) == parts, body


VALUES = """
struct S { int n; float x; int m[3]; };
struct P { S s; int k; };
__device__ S made(int n) { S s = {n, 1.f, {1, n}}; return s; }
__device__ int of(P p) { return p.s.n + p.k; }
"""
LIMITS = [
    ("S s = {7, 2.f}; int limit = s.n;", 7),
    ("S s = {7, 2.f}; int limit = 5 + s.m[1];", 5),
    ("S s{}; int limit = 9 + s.n;", 9),
    ("S s = S(); int limit = 9 + s.n;", 9),
    ("S s = {.x = 1.f, .m = {3, 4}}; int limit = s.n + s.m[1];", 4),
    ("S s = {1, 2.f, 3, 4, 5}; int limit = s.m[2];", 5),
    ("S s = made(6), r = s; r.n = 2; int limit = s.n + r.n;", 8),
    ("S s = made(6); S r; r = s; r.m[1]++; int limit = r.m[1];", 7),
    ("P p = {made(3), 2}; int limit = of(p);", 5),
    ("P p = {1, 2.f, 3, 4, 5, 6}; p.s = made(3); int limit = of(p);", 9),
    ("P p[2] = {{made(3), 2}}; p[1] = p[0]; p[1].k = 4; int limit = of(p[1]) + p[0].k;", 9),
    ("S s[] = {{1}, {2}, {3}}; int limit = s[2].n;", 3),
    ("int m[4] = {1, [2] = 5}; int limit = m[2] + m[3];", 5),
    ("int m[2][2] = {1, 2, 3}; int limit = m[1][0];", 3),
    ("int2 v = {3, 4}, w; w = v; w.x += v.y; int limit = w.x;", 7),
    ("uint3 v = make_uint3(1, 2, 3); uint3 u{4}; u.z = v.y; int limit = u.x + u.y + u.z;", 6),
    ("int limit = sizeof(float3) / sizeof(float) + sizeof(P);", 27),
    ("union { int i; short s; } u; u.i = 3; int limit = u.s;", None),
]


@pytest.mark.parametrize("number", range(len(LIMITS)))
def test_values_of_structs(number):
    text = VALUES + "".join(
        f"__global__ void f{place}(float *a) {{ int t = threadIdx.x; {body} if (t < limit) a[t] = 1; }}\n"
        for place, (body, _) in enumerate(LIMITS)
    )
    kernel, right = source_kernel(text, f"f{number}", local=64, groups=1), LIMITS[number][1]
    [count] = count_features(kernel, {}, identifiers=["f_mem_access_global_float32_store"])
    assert (count.value, str(count.certainty)) == ((64, "upper bound") if right is None else (right, "exact"))


def test_operators_on_vectors_are_those_of_the_program():
    """Neither clang's own nor by element: here a sum is one operation."""
    text = """
    __device__ float3 operator+(float3 a, float3 b) { return make_float3(a.x + b.x, a.y, a.z); }
    __device__ float3 &operator+=(float3 &a, const float3 &b) { a = a + b; return a; }
    __global__ void f(float3 *a) { float3 v = a[0] + a[1]; v += a[2]; a[3] = v; }
    """
    found = {each.identifier: each.value for each in count_features(source_kernel(text, "f", local=1, groups=1), {})}
    assert found["f_op_float32_add"] == 2
    assert not any("call" in each for each in found)


POINTED = [
    ("int3 v = make_int3(1, 2, 3); int &r = v.y; r = 5; int limit = v.y;", 5),
    ("int3 v = make_int3(1, 2, 3); int *r = &v.y; *r = 5; int limit = v.y + r[1];", 8),
    ("int4 v = make_int4(1, 2, 3, 4); int *r = (int *)&v; r[2] = 9; int limit = v.z + r[3];", 13),
    ("int4 v = make_int4(1, 2, 3, 4); int *r = &v.x; for (int k = 0; k < 4; k++) r[k] = 9; int limit = v.z;", None),
    ("S s = {7, 2.f}; int &r = s.m[1]; r = 6; int limit = s.m[1];", 6),
    ("P p = {made(3), 2}; S *s = &p.s; s->m[1] = 5; int limit = p.s.m[1];", 5),
    ("S s[2] = {{1}, {2}}; S *r = s; r[1].n = 8; int limit = s[1].n;", 8),
    ("float f = 1.5f; int limit = *(int *)&f;", None),
    ("int limit = 3; float *r = (float *)&limit; *r = 2.f;", None),
    ("int m[3] = {1, 2, 3}; S s; int *q = m; for (int k = 0; k < 3; k++) q[k] = 7; int limit = m[0];", None),
]


@pytest.mark.parametrize("number", range(len(POINTED)))
def test_pointers_to_parts(number):
    text = VALUES + "".join(
        f"__global__ void f{place}(float *a) {{ int t = threadIdx.x; {body} if (t < limit) a[t] = 1; }}\n"
        for place, (body, _) in enumerate(POINTED)
    )
    kernel, right = source_kernel(text, f"f{number}", local=64, groups=1), POINTED[number][1]
    [count] = count_features(kernel, {}, identifiers=["f_mem_access_global_float32_store"])
    assert (count.value, str(count.certainty)) == ((64, "upper bound") if right is None else (right, "exact"))


def test_vectors_that_are_written_element_by_element_keep_their_type():
    text = """__global__ void f(float *a) {
        float4 v; float *r = (float *)&v;
        for (int k = 0; k < 4; k++) r[k] = a[k];
        v.x = a[5];
        a[9] = v.x + v.y;
    }"""
    found = {each.identifier: each.value for each in count_features(source_kernel(text, "f", local=1, groups=1), {})}
    assert {each: value for each, value in found.items() if "f_op" in each} == {"f_op_float32_add": 1}
