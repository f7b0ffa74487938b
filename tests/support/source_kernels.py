"""Small kernels in OpenCL C that are launched, with what numpy says that they compute."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perflex.features import SourceKernel, source_kernel

Arrays = dict[str, np.ndarray[Any, Any]]

AXPY = """
__kernel void axpy(int n, float a, __global const float *x, __global float *y)
{
  int i = get_global_id(0);
  if (i < n) y[i] += a * x[i];
}
"""


def kernel(body, arguments, **launch):
    """Return the kernel ``k``."""
    return source_kernel(
        f"\n__kernel void k({arguments}) {{ {body} }}", "k", **{"local": [16], "groups": [2], **launch}
    )


def axpy(items=64):
    """Return a kernel that updates an array."""
    return source_kernel(AXPY, "axpy", local=[items], global_size=["n"])


@dataclass(frozen=True)
class Launched:
    """A kernel with sizes, the elements of its arrays, and what it makes of what they hold."""

    kernel: SourceKernel
    sizes: Mapping[str, Any]
    lengths: Mapping[str, int]
    result: Callable[[Arrays], Arrays]
    local_bytes: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


_TILED = """
#ifndef TILE
#error "the host program sets TILE"
#endif
__kernel void matmul(__global const float *a, __global const float *b, __global float *c, __local float *tile, int n)
{
  __local float other[TILE][TILE + 1];
  int col = get_local_id(0), row = get_local_id(1);
  int j = get_group_id(0) * TILE + col, i = get_group_id(1) * TILE + row;
  float sum = 0;
  for (int k = 0; k < n; k += TILE) {
    tile[row * TILE + col] = i < n && k + col < n ? a[i * n + k + col] : 0;
    other[row][col] = k + row < n && j < n ? b[(k + row) * n + j] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int m = 0; m < TILE; ++m) sum += tile[row * TILE + m] * other[m][col];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (i < n && j < n) c[i * n + j] = sum;
}
"""


def _product(arrays):
    a, b = (arrays[name].astype(float).reshape(37, 37) for name in "ab")
    return {"c": (a @ b).ravel()}


_STENCIL = """
__kernel void stencil(__global const double *u, __global double *v, uint nx, uint ny, __constant double *c)
{
  uint x = get_global_id(0) + 1, y = get_global_id(1) + 1;
  if (x < nx - 1 && y < ny - 1)
    v[y * nx + x] = c[0] * u[y * nx + x] + c[1] * (u[y * nx + x - 1] + u[y * nx + x + 1] + u[(y - 1) * nx + x]
                    + u[(y + 1) * nx + x]);
}
"""


def _stencil(arrays):
    u, v, c = arrays["u"].reshape(19, 21), arrays["v"].copy(), arrays["c"]
    inner = c[0] * u[1:-1, 1:-1] + c[1] * (u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1])
    at = [y * 21 + x for y in range(1, 18) for x in range(1, 20)]
    v[at] = inner.ravel()[: len(at)]
    return {"v": v}


_POINTS = """
typedef struct { float x, y, z; } Point;
__kernel void points(__global const Point *p, __global float *r, short n)
{ int i = get_global_id(0); if (i < n) r[i] = p[i].x * p[i].x + p[i].z; }
"""

LAUNCHED = {
    "axpy": Launched(axpy(), {"n": 1000, "a": 0.5}, {"x": 1000, "y": 1000}, lambda of: {"y": of["y"] + 0.5 * of["x"]}),
    "tiled matrix product": Launched(
        source_kernel(_TILED, "matmul", local=[8, 8], groups=["ceil_div(n, 8)"] * 2, defines={"TILE": 8}), {"n": 37},
        {"a": 37 * 37, "b": 37 * 37, "c": 37 * 37}, _product, local_bytes=8 * 8 * 4 + 8 * 9 * 4),
    # No element lies behind the last one that is read, and none behind the last one that is written.
    "stencil": Launched(source_kernel(_STENCIL, "stencil", local=[8, 4], global_size=["nx - 2", "ny - 2"]),
        {"nx": 21, "ny": 19}, {"u": 19 * 21 - 1, "v": 18 * 21 - 1, "c": 2},
        lambda of: _stencil(of | {"u": np.append(of["u"], 0.0)})),
    # Two products of sizes in the subscripts of each array; which reaches further depends on the sizes.
    "transposed": Launched(kernel("int i = get_global_id(0), j = get_global_id(1), at = i * m + j;"
        " if (i < n && j < m) y[at] = x[j * n + i] + x[at];",
        "__global float *x, __global float *y, int n, int m", local=[8, 4], groups=[2, 2], ), {"n": 13, "m": 7},
        {"x": 91, "y": 91}, lambda of: {"y": of["x"].reshape(7, 13).T.ravel() + of["x"]}),
    "vectors of four": Launched(
        kernel("int i = get_global_id(0); y[i] = x[i + 2];", "__global float4 *x, __global float4 *y"), {},
        {"x": 34 * 4, "y": 32 * 4}, lambda of: {"y": of["x"][8:]}),
    "atomic sum": Launched(kernel(
        "int i = get_global_id(0); if (i < n) atomic_add(s, x[i] + i);", "__global int *x, __global int *s, int n"),
        {"n": 29}, {"x": 29, "s": 1}, lambda of: {"s": of["s"] + of["x"].sum() + sum(range(29))}),
    # Ones in `at`: the last element is the one behind the last of y.
    "gather": Launched(kernel(
        "int i = get_global_id(0); y[i] = x[i + at[i]];", "__global float *x, __global float *y, __global int *at"), {},
        {"x": 33, "y": 32, "at": 32}, lambda of: {"y": of["x"][of["at"] + np.arange(32)]}),
    "rows of given lengths": Launched(kernel(
        "int i = get_global_id(0); float s = 0; for (int j = 0; j < rows[i] + 2; ++j) s += x[3 * i + j]; y[i] = s;",
        "__global float *x, __global float *y, __global const int *rows", ), {}, {"x": 31 * 3 + 3, "y": 32, "rows": 32},
        lambda of: {"y": of["x"].reshape(32, 3).sum(axis=1)}),
    "all scalars, an array that is not used": Launched(kernel(
        "int i = get_global_id(0); if (i < c + s) y[i] = f * d + l - u;",
        "__global double *y, char c, short s, long l, uint u, float f, double d, __global float *unused", ),
        {"c": 3, "s": 4, "l": 2**40, "u": 7, "d": 2.5}, {"y": 7, "unused": 1},
        lambda of: {"y": np.full_like(of["y"], 0.75 * 2.5 + 2**40 - 7)}),
    "structs of floats": Launched(source_kernel(_POINTS, "points", local=[16], groups=[2]), {"n": 30},
        {"p": 90, "r": 30}, lambda of: {"r": of["p"][0::3] ** 2 + of["p"][2::3]}),
    "stated extent": Launched(
        kernel("int i = get_global_id(0); y[i] = x[at[i]];", "__global float *x, __global float *y, __global int *at",
        stated={"x": "n"}), {"n": 500}, {"x": 500, "y": 32, "at": 32},
        lambda of: {"y": np.full_like(of["y"], of["x"][1])}),
}  # fmt: skip
