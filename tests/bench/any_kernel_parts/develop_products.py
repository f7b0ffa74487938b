"""Matrix products and rank-k updates."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import loopy as lp

from .families import Family
from .kernels import F32, F64, fetched, fits, loaded, make, neighbours, on_grid, scratch, stored, unrolled, updated

if TYPE_CHECKING:
    from collections.abc import Mapping


def _gemm_tn() -> lp.TranslationUnit:
    return make(
        "gemm_tn",
        "{[i, j, l]: 0 <= i, j < n and 0 <= l < k}",
        "c[i, j] = sum(l, a[l, i] * b[l, j])",
        [loaded("a, b", F32, "k, n"), stored("c", F32, "n, n")],
        "n, k",
        assume=f"{fits(64, 'n')} and {fits(32, 'k')}",
    )


def _gemm_tn_tiled(tile: int) -> lp.TranslationUnit:
    kernel = lp.split_iname(on_grid(_gemm_tn(), j=tile, i=tile), "l", tile)
    return fetched(kernel, ("a", ["l_inner", "i_inner"]), ("b", ["l_inner", "j_inner"]))


def _gemm_tn_blocked(wide: int, high: int, rows: int) -> lp.TranslationUnit:
    """Each work-item sums `rows` elements of one column at the same time."""
    kernel = make(
        "gemm_tn_blocked",
        [
            f"{{[ig, jg]: 0 <= {high * rows}*ig < n and 0 <= {wide}*jg < n}}",
            f"{{[ii, ji, r0, r1, r2]: 0 <= ii < {high} and 0 <= ji < {wide} and 0 <= r0, r1, r2 < {rows}}}",
            "{[l]: 0 <= l < k}",
        ],
        f"""
        for ig, jg, ii, ji
            for r0
                total[r0] = 0
            end
            for l, r1
                total[r1] = total[r1] + a[l, {high * rows}*ig + {rows}*ii + r1] * b[l, {wide}*jg + ji]
            end
            for r2
                c[{high * rows}*ig + {rows}*ii + r2, {wide}*jg + ji] = total[r2]
            end
        end
        """,
        [loaded("a, b", F32, "k, n"), stored("c", F32, "n, n"), scratch("total", F32, (rows,))],
        "n, k",
        assume=f"{fits(64, 'n')} and {fits(32, 'k')}",
        in_order=True,
    )
    return lp.tag_inames(kernel, "ig:g.1, jg:g.0, ii:l.1, ji:l.0, r0:unr, r1:unr, r2:unr")


def _gemm_tn_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    return {"c": arrays["a"].T @ arrays["b"]}


GEMM_TN = Family(
    "gemm_tn",
    "PolyBench/GPU gemm, first operand transposed (BLAS sgemm)",
    {
        "64x1": lambda: on_grid(_gemm_tn(), j=64, i=1),
        "64x4": lambda: on_grid(_gemm_tn(), j=64, i=4),
        "32x8": lambda: on_grid(_gemm_tn(), j=32, i=8),
        "16x16": lambda: on_grid(_gemm_tn(), j=16, i=16),
        "8x8": lambda: on_grid(_gemm_tn(), j=8, i=8),
        "rows_first_32x8": lambda: on_grid(_gemm_tn(), i=32, j=8),
        "64x2_unroll4": lambda: unrolled(on_grid(_gemm_tn(), j=64, i=2), "l", 4),
        "tile16": partial(_gemm_tn_tiled, 16),
        "tile32": partial(_gemm_tn_tiled, 32),
        "64x1_rows4": partial(_gemm_tn_blocked, 64, 1, 4),
        "16x8_rows8": partial(_gemm_tn_blocked, 16, 8, 8),
    },
    ({"n": 256, "k": 128}, {"n": 512, "k": 160}, {"n": 1024, "k": 64}),
    {"n": 64, "k": 32},
    _gemm_tn_reference,
)


def _syrk() -> lp.TranslationUnit:
    return make(
        "syrk",
        "{[i, j, l]: 0 <= i, j < n and 0 <= l < k}",
        "c[i, j] = 0.5 * c[i, j] + 1.5 * sum(l, a[i, l] * a[j, l])",
        [loaded("a", F64, "n, k"), updated("c", F64, "n, n")],
        "n, k",
        assume=f"{fits(64, 'n')} and {fits(16, 'k')}",
    )


def _syrk_columns(**grid: int) -> lp.TranslationUnit:
    kernel = lp.tag_array_axes(_syrk(), "a", "N0,N1")
    return on_grid(kernel, **grid)


def _syrk_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    return {"c": 0.5 * arrays["c"] + 1.5 * arrays["a"] @ arrays["a"].T}


SYRK = Family(
    "syrk",
    "PolyBench/GPU syrk",
    {
        "64x1": lambda: on_grid(_syrk(), j=64, i=1),
        "32x8": lambda: on_grid(_syrk(), j=32, i=8),
        "16x16": lambda: on_grid(_syrk(), j=16, i=16),
        "8x8": lambda: on_grid(_syrk(), j=8, i=8),
        "4x32": lambda: on_grid(_syrk(), j=4, i=32),
        "16x4_unroll8": lambda: unrolled(on_grid(_syrk(), j=16, i=4), "l", 8),
        "columns_64x2": lambda: _syrk_columns(j=64, i=2),
        "columns_16x16": lambda: _syrk_columns(j=16, i=16),
        "16x4_two": lambda: on_grid(neighbours(_syrk(), "i", 2), j=16, i=4),
    },
    ({"n": 192, "k": 64}, {"n": 448, "k": 96}, {"n": 1024, "k": 32}),
    {"n": 64, "k": 32},
    _syrk_reference,
)

FAMILIES = (GEMM_TN, SYRK)
