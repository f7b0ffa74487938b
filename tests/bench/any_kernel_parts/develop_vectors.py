"""Products of matrices and vectors, reductions of rows, and elementwise operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np

from .families import Family
from .kernels import F32, F64, fits, loaded, make, neighbours, on_grid, stored, unrolled, updated

if TYPE_CHECKING:
    from collections.abc import Mapping


def _mvt() -> lp.TranslationUnit:
    return make(
        "mvt",
        "{[i, j, l]: 0 <= i, j, l < n}",
        """
        x1[i] = x1[i] + sum(j, a[i, j] * y1[j])
        x2[i] = x2[i] + sum(l, a[l, i] * y2[l])
        """,
        [loaded("a", F32, "n, n"), loaded("y1, y2", F32, "n"), updated("x1, x2", F32, "n")],
        assume=fits(256, "n"),
    )


def _mvt_columns() -> lp.TranslationUnit:
    return lp.tag_array_axes(_mvt(), "a", "N0,N1")


def _mvt_fetched(items: int) -> lp.TranslationUnit:
    kernel = lp.split_iname(on_grid(_mvt(), i=items), "j", items)
    kernel = lp.split_iname(kernel, "l", items)
    kernel = lp.add_prefetch(kernel, "y1", ["j_inner"], default_tag="l.auto")
    kernel = lp.add_prefetch(kernel, "y2", ["l_inner"], default_tag="l.auto")
    return lp.add_inames_for_unused_hw_axes(kernel)


def _mvt_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    a = arrays["a"]
    return {"x1": arrays["x1"] + a @ arrays["y1"], "x2": arrays["x2"] + a.T @ arrays["y2"]}


MVT = Family(
    "mvt",
    "PolyBench/GPU mvt",
    {
        "32": lambda: on_grid(_mvt(), i=32),
        "8": lambda: on_grid(_mvt(), i=8),
        "64": lambda: on_grid(_mvt(), i=64),
        "128": lambda: on_grid(_mvt(), i=128),
        "64_unroll8": lambda: unrolled(unrolled(on_grid(_mvt(), i=64), "j", 8), "l", 8),
        "columns_64": lambda: on_grid(_mvt_columns(), i=64),
        "fetched_64": lambda: _mvt_fetched(64),
        "32_two": lambda: on_grid(neighbours(_mvt(), "i", 2), i=32),
    },
    ({"n": 512}, {"n": 1280}, {"n": 3072}),
    {"n": 256},
    _mvt_reference,
)


def _row_sums() -> lp.TranslationUnit:
    return make(
        "row_sums",
        "{[i, j]: 0 <= i < n and 0 <= j < m}",
        "y[i] = sum(j, a[i, j] * a[i, j])",
        [loaded("a", F64, "n, m"), stored("y", F64, "n")],
        "n, m",
        assume=fits(128, "n", "m"),
    )


def _row_sums_columns() -> lp.TranslationUnit:
    return lp.tag_array_axes(_row_sums(), "a", "N0,N1")


def _row_sums_tree(items: int, rows: int) -> lp.TranslationUnit:
    """The work-items along axis 0 share a row, each of which takes every so manieth element; a tree adds their sums."""
    place = f"i, {items}*step + item"
    kernel = make(
        "row_sums_tree",
        [
            "{[i]: 0 <= i < n}",
            f"{{[item, step]: 0 <= item < {items} and 0 <= {items}*step and {items}*step + item < m}}",
        ],
        f"y[i] = sum(item, sum(step, a[{place}] * a[{place}])) {{id=store}}",
        [loaded("a", F64, "n, m"), stored("y", F64, "n")],
        "n, m",
        assume=fits(128, "n", "m"),
        # One work-item is left at the end of the tree; loopy asks for its loop all the same.
        silenced_warnings=["write_race(store)"],
    )
    if rows == 1:
        return lp.tag_inames(kernel, "i:g.0, item:l.0")
    kernel = lp.split_iname(kernel, "i", rows, outer_tag="g.0", inner_tag="l.1")
    return lp.tag_inames(kernel, "item:l.0")


def _row_sums_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    return {"y": (arrays["a"] ** 2).sum(axis=1)}


ROW_SUMS = Family(
    "row_sums",
    "squared 2-norms of rows (NumPy einsum 'ij,ij->i'); the tree as in Harris, Optimizing Parallel Reduction in CUDA",
    {
        "128": lambda: on_grid(_row_sums(), i=128),
        "32": lambda: on_grid(_row_sums(), i=32),
        "8": lambda: on_grid(_row_sums(), i=8),
        "32_unroll4": lambda: unrolled(on_grid(_row_sums(), i=32), "j", 4),
        "columns_128": lambda: on_grid(_row_sums_columns(), i=128),
        "columns_16": lambda: on_grid(_row_sums_columns(), i=16),
        "tree_64": lambda: _row_sums_tree(64, 1),
        "tree_16x4": lambda: _row_sums_tree(16, 4),
    },
    ({"n": 512, "m": 512}, {"n": 1024, "m": 1024}, {"n": 2048, "m": 3072}),
    {"n": 128, "m": 128},
    _row_sums_reference,
)


def _elementwise() -> lp.TranslationUnit:
    return make(
        "elementwise",
        "{[i]: 0 <= i < n}",
        "z[i] = exp(-0.5 * x[i] * x[i]) * tanh(y[i]) + log(x[i] + 1.0f) * sqrt(y[i])",
        [loaded("x, y", F32, "n"), stored("z", F32, "n")],
        assume=fits(2048, "n"),
    )


def _elementwise_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    x, y = arrays["x"], arrays["y"]
    return {"z": np.exp(-0.5 * x * x) * np.tanh(y) + np.log(x + 1) * np.sqrt(y)}


ELEMENTWISE = Family(
    "elementwise",
    "transcendental functions of two arrays (elementwise kernels of PyOpenCL's documentation)",
    {
        "8": lambda: on_grid(_elementwise(), i=8),
        "16": lambda: on_grid(_elementwise(), i=16),
        "64": lambda: on_grid(_elementwise(), i=64),
        "256": lambda: on_grid(_elementwise(), i=256),
        "64_apart4": lambda: on_grid(_elementwise(), i=(64, 4)),
        "64_next4": lambda: on_grid(neighbours(_elementwise(), "i", 4), i=64),
        "16_next8": lambda: on_grid(neighbours(_elementwise(), "i", 8), i=16),
        "256_apart8": lambda: on_grid(_elementwise(), i=(256, 8)),
    },
    ({"n": 65536}, {"n": 524288}, {"n": 3145728}),
    {"n": 4096},
    _elementwise_reference,
)

FAMILIES = (MVT, ROW_SUMS, ELEMENTWISE)
