"""Stencils with constant coefficients, and transpositions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np

from .families import Family
from .kernels import F32, F64, fits, loaded, make, neighbours, on_grid, scratch, stored

if TYPE_CHECKING:
    from collections.abc import Mapping


def _jacobi2d() -> lp.TranslationUnit:
    return make(
        "jacobi2d",
        "{[i, j]: 0 <= i < n and 0 <= j < m}",
        "v[i + 1, j + 1] = 0.2f * (u[i + 1, j + 1] + u[i + 1, j] + u[i + 1, j + 2] + u[i, j + 1] + u[i + 2, j + 1])",
        [loaded("u", F32, "n + 2, m + 2"), stored("v", F32, "n + 2, m + 2")],
        "n, m",
        assume=fits(256, "n", "m"),
    )


def _jacobi2d_fetched(wide: int, high: int) -> lp.TranslationUnit:
    kernel = on_grid(_jacobi2d(), j=wide, i=high)
    kernel = lp.add_prefetch(kernel, "u", ["i_inner", "j_inner"], default_tag="l.auto", fetch_bounding_box=True)
    return lp.add_inames_for_unused_hw_axes(kernel)


def _jacobi2d_march(wide: int, rows: int) -> lp.TranslationUnit:
    """A work-item goes along a column of so many points in a loop."""
    kernel = lp.split_iname(_jacobi2d(), "i", rows, outer_tag="g.1")
    return lp.split_iname(kernel, "j", wide, outer_tag="g.0", inner_tag="l.0")


def _jacobi2d_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    u, v = arrays["u"], arrays["v"].copy()
    v[1:-1, 1:-1] = 0.2 * (u[1:-1, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1])
    return {"v": v}


JACOBI2D = Family(
    "jacobi2d",
    "PolyBench/GPU jacobi-2d",
    {
        "256x1": lambda: on_grid(_jacobi2d(), j=256, i=1),
        "64x4": lambda: on_grid(_jacobi2d(), j=64, i=4),
        "32x8": lambda: on_grid(_jacobi2d(), j=32, i=8),
        "16x16": lambda: on_grid(_jacobi2d(), j=16, i=16),
        "8x8": lambda: on_grid(_jacobi2d(), j=8, i=8),
        "rows_first_16x16": lambda: on_grid(_jacobi2d(), i=16, j=16),
        "64x1_apart4": lambda: on_grid(_jacobi2d(), j=(64, 4), i=1),
        "64x1_rows4": lambda: on_grid(neighbours(_jacobi2d(), "i", 4), j=64, i=1),
        "64_march32": lambda: _jacobi2d_march(64, 32),
        "fetched_16x16": lambda: _jacobi2d_fetched(16, 16),
        "fetched_64x4": lambda: _jacobi2d_fetched(64, 4),
    },
    ({"n": 512, "m": 512}, {"n": 1024, "m": 1280}, {"n": 2816, "m": 2560}),
    {"n": 256, "m": 256},
    _jacobi2d_reference,
)


def _transpose() -> lp.TranslationUnit:
    return make(
        "transpose64",
        "{[i, j]: 0 <= i < n and 0 <= j < m}",
        "b[j, i] = a[i, j]",
        [loaded("a", F64, "n, m"), stored("b", F64, "m, n")],
        "n, m",
        assume=fits(64, "n", "m"),
    )


def _transpose_tiled(wide: int, high: int) -> lp.TranslationUnit:
    """Tiles of wide by wide elements go through local memory, wide/high elements per work-item."""
    rows = wide // high
    kernel = make(
        "transpose64_tiled",
        [
            f"{{[ig, jg]: 0 <= {wide}*ig < n and 0 <= {wide}*jg < m}}",
            f"{{[ii, ji, r0, r1]: 0 <= ii < {high} and 0 <= ji < {wide} and 0 <= r0, r1 < {rows}}}",
        ],
        f"""
        for ig, jg, ii, ji
            for r0
                tile[{high}*r0 + ii, ji] = a[{wide}*ig + {high}*r0 + ii, {wide}*jg + ji]
            end
            for r1
                b[{wide}*jg + {high}*r1 + ii, {wide}*ig + ji] = tile[ji, {high}*r1 + ii]
            end
        end
        """,
        [loaded("a", F64, "n, m"), stored("b", F64, "m, n"), scratch("tile", F64, (wide, wide + 1), local=True)],
        "n, m",
        assume=fits(64, "n", "m"),
        in_order=True,
    )
    return lp.tag_inames(kernel, "ig:g.1, jg:g.0, ii:l.1, ji:l.0, r0:unr, r1:unr")


def _transpose_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    return {"b": np.ascontiguousarray(arrays["a"].T)}


TRANSPOSE = Family(
    "transpose64",
    "Ruetsch and Micikevicius, Optimizing Matrix Transpose in CUDA, in double precision",
    {
        "load_64x1": lambda: on_grid(_transpose(), j=64, i=1),
        "load_16x16": lambda: on_grid(_transpose(), j=16, i=16),
        "load_8x8": lambda: on_grid(_transpose(), j=8, i=8),
        "store_64x1": lambda: on_grid(_transpose(), i=64, j=1),
        "store_16x16": lambda: on_grid(_transpose(), i=16, j=16),
        "store_8x32": lambda: on_grid(_transpose(), i=8, j=32),
        "store_16_apart4": lambda: on_grid(_transpose(), i=(16, 4), j=4),
        "load_16_next4": lambda: on_grid(neighbours(_transpose(), "i", 4), j=16, i=4),
        "tile16": lambda: _transpose_tiled(16, 16),
        "tile32x8": lambda: _transpose_tiled(32, 8),
    },
    ({"n": 384, "m": 384}, {"n": 832, "m": 704}, {"n": 2048, "m": 1536}),
    {"n": 128, "m": 64},
    _transpose_reference,
)

FAMILIES = (JACOBI2D, TRANSPOSE)
