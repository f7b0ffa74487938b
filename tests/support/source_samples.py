"""Small kernels in OpenCL C, each with something that reading source code has to get right."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """A kernel ``k``: arrays first, then local memory, then integers."""

    source: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[int, ...] = (3,)
    local: tuple[int, ...] = (16,)
    dtypes: tuple[str, ...] = ("float32", "float32")
    local_bytes: tuple[int, ...] = ()
    bound: bool = False  # Whether data decide guards, so that counts are upper bounds


SAMPLES = {
    "guarded axpy": Sample("__kernel void k(__global float *y, __global const float *x, int n) {"
        " int i = get_global_id(0); if (i < n) y[i] = 2.5f * x[i] + y[i]; }", {"n": 41}),
    "early return": Sample("__kernel void k(__global float *y, __global float *x, int n) {"
        " int i = get_global_id(0); if (i >= n || i == 3) return; y[i] = x[i] - 1.0f; }", {"n": 41}),
    "strided loop": Sample("__kernel void k(__global float *y, __global float *x, int n) { float s = 0;"
        " for (int i = get_global_id(0); i < n; i += 7) s += x[i] * x[i]; y[get_global_id(0)] = s; }", {"n": 60}),
    "downward while": Sample(
        "__kernel void k(__global float *y, __global float *x, int n) { int i = n - 1; float s = 0;"
        " while (i >= 0) { s += x[i]; i -= 3; } y[get_global_id(0)] = s; }", {"n": 50}),
    "do": Sample("__kernel void k(__global float *y, __global float *x, int n) { int i = 0; float s = 0;"
        " do { s = s / 2 + x[i]; i++; } while (i < n); y[get_global_id(0)] = s; }", {"n": 11}),
    "lagging counter": Sample(
        "__kernel void k(__global float *y, __global float *x, int n) { float s = 0; int b = n - 1;"
        " for (int a = 0; a < n; b = a++) s += x[a] * x[b]; y[get_global_id(0)] = s; }", {"n": 9}),
    "triangle": Sample(
        "__kernel void k(__global float *y, __global float *x, int n) { int i = get_global_id(0); if (i < n)"
        " for (int j = 0; j <= i; j++) { if (j == i) { y[i] = x[j]; continue; } if (j > 5) break; y[i] += x[j]; } }",
        {"n": 13}),
    "halving sum": Sample(
        "__kernel void k(__global float *y, __global float *x, __local float *s) { int l = get_local_id(0);"
        " s[l] = x[get_global_id(0)]; barrier(CLK_LOCAL_MEM_FENCE);"
        " for (int d = get_local_size(0) / 2; d > 0; d >>= 1) { if (l < d) s[l] += s[l + d]; barrier(1); }"
        " if (l == 0) y[get_group_id(0)] = s[0]; }", local_bytes=(64,)),
    "tiled product": Sample("__kernel void k(__global float *c, __global float *a, int n) { __local float t[4][5];"
        " int x = get_local_id(0), y = get_local_id(1), i = get_group_id(1) * 4 + y; float s = 0;"
        " for (int b = 0; b < n / 4; b++) { t[y][x] = a[i * n + b * 4 + x]; barrier(1);"
        " for (int e = 0; e < 4; e++) s += t[y][e] * t[e][x]; barrier(1); } c[i * n + get_global_id(0)] = s; }",
        {"n": 8}, (2, 2), (4, 4)),
    "vectors": Sample("__kernel void k(__global float4 *y, __global float *x) { int i = get_global_id(0) % 5;"
        " float4 v = ((__global float4 *)x)[i]; v.x = 1.0f; y[i] = v * v + v; y[i].z = x[i]; }"),
    "structs": Sample("typedef struct { float a, b; int c; } P; __kernel void k(__global P *p, __global float *y) {"
        " int i = get_global_id(0) % 4; y[i] = p[i].b * 2.0f; p[i].a = y[i]; }"),
    "functions": Sample("float sq(float v) { if (v > 1e30f) return 0; return v * v; }"
        " void put(__global float *p, int i, float v) { p[2 * i] = v; }"
        " __kernel void k(__global float *y, __global float *x) { int i = get_global_id(0) % 8;"
        " put(y + 3, i, sq(x[i])); }", bound=True),
    "unsigned wraps around": Sample(
        "__kernel void k(__global float *y, __global float *x, int n) { uint i = get_global_id(0); uint j = i - 1u;"
        " if (j < n) y[i] = x[j]; }", {"n": 20}),
    "switch and choice": Sample(
        "__kernel void k(__global float *y, __global float *x, int n) { int i = get_global_id(0); switch (i % 4) {"
        " case 0: y[i] = x[i]; break; case 1: case 2: y[i] = x[i] + x[i + 1]; break; default: y[i] = 0; }"
        " y[i] = i < n ? x[i] * 3.0f : x[0]; }", {"n": 17}),
    "constants and columns": Sample(
        "__constant float w[3] = {1, 2, 3}; __kernel void k(__global float *y, __global float *x, int n, int m) {"
        " int i = get_global_id(0); float s = 0; if (i < n) { for (int j = 0; j < m; j++)"
        " for (int d = -1; d <= 1; d++) if (j + d >= 0 && j + d < m) s += w[d + 1] * x[(j + d) * n + i];"
        " y[i] = s; } }", {"n": 9, "m": 5}, (1,)),
    "data decide": Sample("__kernel void k(__global float *y, __global float *x, int n) { for (int j = 0; j < n; j++) {"
        " if (x[j] > 0.3f) { y[j] += x[j]; } else y[j] = 0; if (x[j] > 9.0f) return; } }", {"n": 10}, bound=True),
    "bits and pieces": Sample(
        "__kernel void k(__global float *y, __global float *x, int n) { int i = get_global_id(0); float p[3] = {0};"
        " int o = (i & 3) * 4 + (i >> 2) % 4; for (int d = 0; d < 3; ++d) p[d] = x[(o + d * 5) ^ 1];"
        " if (!(i & 1) && i < (n | 1)) y[min(i, 30)] = p[0] + p[2]; }", {"n": 22}),
}  # fmt: skip
