"""Convolutions, triangular loops, and loads at scattered places."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np

from .families import Family
from .kernels import F32, F64, fetched, fits, loaded, make, neighbours, on_grid, stored, updated

if TYPE_CHECKING:
    from collections.abc import Mapping


def _fir() -> lp.TranslationUnit:
    return make(
        "fir",
        "{[i, t]: 0 <= i < n and 0 <= t < 48}",
        "y[i] = sum(t, h[t] * x[i + t])",
        [loaded("x", F32, "n + 48"), loaded("h", F32, "48"), stored("y", F32, "n")],
        assume=fits(2048, "n"),
    )


def _fir_fetched(items: int) -> lp.TranslationUnit:
    return fetched(on_grid(_fir(), i=items), ("x", ["i_inner", "t"]), ("h", ["t"]))


def _fir_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    return {"y": np.correlate(arrays["x"], arrays["h"])[: sizes["n"]]}


FIR = Family(
    "fir",
    "finite impulse response filter (NVIDIA's convolutionSeparable sample, one direction), 48 taps",
    {
        "16": lambda: on_grid(_fir(), i=16),
        "64": lambda: on_grid(_fir(), i=64),
        "256": lambda: on_grid(_fir(), i=256),
        "8": lambda: on_grid(_fir(), i=8),
        "64_unrolled": lambda: lp.tag_inames(on_grid(_fir(), i=64), {"t": "unr"}),
        "64_apart4": lambda: on_grid(_fir(), i=(64, 4)),
        "64_next4": lambda: on_grid(neighbours(_fir(), "i", 4), i=64),
        "fetched_64": partial(_fir_fetched, 64),
        "fetched_256": partial(_fir_fetched, 256),
    },
    ({"n": 65536}, {"n": 262144}, {"n": 1048576}),
    {"n": 2048},
    _fir_reference,
)


def _conv2d() -> lp.TranslationUnit:
    return make(
        "conv2d",
        "{[o, i, j, c, s, t]: 0 <= o, c < 4 and 0 <= i < n and 0 <= j < m and 0 <= s, t < 3}",
        "y[o, i, j] = sum([c, s, t], w[o, c, s, t] * x[c, i + s, j + t])",
        [loaded("x", F32, "4, n + 2, m + 2"), loaded("w", F32, "4, 4, 3, 3"), stored("y", F32, "4, n, m")],
        "n, m",
        assume=fits(64, "n", "m"),
    )


def _conv2d_channels_last() -> lp.TranslationUnit:
    kernel = lp.tag_array_axes(_conv2d(), "x", "N0,N2,N1")
    return lp.tag_array_axes(kernel, "y", "N0,N2,N1")


def _conv2d_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    windows = np.lib.stride_tricks.sliding_window_view(arrays["x"], (3, 3), axis=(1, 2))
    return {"y": np.einsum("ocst,cijst->oij", arrays["w"], windows)}


CONV2D = Family(
    "conv2d",
    "convolution layer, 4 to 4 channels, 3 by 3 (cuDNN: Chetlur et al., 2014)",
    {
        "64x1_each": lambda: on_grid(_conv2d(), j=64, i=1, o=1),
        "32x8_each": lambda: on_grid(_conv2d(), j=32, i=8, o=1),
        "8x8_each": lambda: on_grid(_conv2d(), j=8, i=8, o=1),
        "64x1_all": lambda: on_grid(_conv2d(), j=64, i=1),
        "16x16_all": lambda: on_grid(_conv2d(), j=16, i=16),
        "64x1_unrolled": lambda: lp.tag_inames(on_grid(_conv2d(), j=64, i=1, o=1), {"s": "unr", "t": "unr"}),
        "channels_last_64x1_all": lambda: on_grid(_conv2d_channels_last(), j=64, i=1),
        "channels_last_4x16": lambda: on_grid(_conv2d_channels_last(), o=4, j=16, i=1),
    },
    ({"n": 64, "m": 128}, {"n": 256, "m": 256}, {"n": 768, "m": 512}),
    {"n": 64, "m": 64},
    _conv2d_reference,
)


def _trmv() -> lp.TranslationUnit:
    return make(
        "trmv",
        "{[i, j]: 0 <= i < n and 0 <= j <= i}",
        "y[i] = sum(j, a[i, j] * x[j])",
        [loaded("a", F32, "n, n"), loaded("x", F32, "n"), stored("y", F32, "n")],
        assume=fits(128, "n"),
    )


def _trmv_columns() -> lp.TranslationUnit:
    return lp.tag_array_axes(_trmv(), "a", "N0,N1")


def _trmv_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    return {"y": np.tril(arrays["a"]) @ arrays["x"]}


TRMV = Family(
    "trmv",
    "BLAS strmv",
    {
        "8": lambda: on_grid(_trmv(), i=8),
        "16": lambda: on_grid(_trmv(), i=16),
        "64": lambda: on_grid(_trmv(), i=64),
        "128": lambda: on_grid(_trmv(), i=128),
        "32_two": lambda: on_grid(neighbours(_trmv(), "i", 2), i=32),
        "columns_8": lambda: on_grid(_trmv_columns(), i=8),
        "columns_32": lambda: on_grid(_trmv_columns(), i=32),
        "columns_128": lambda: on_grid(_trmv_columns(), i=128),
    },
    ({"n": 768}, {"n": 1920}, {"n": 4096}),
    {"n": 128},
    _trmv_reference,
)


def _trmm() -> lp.TranslationUnit:
    return make(
        "trmm",
        # In a domain of its own, since the last row has an empty sum, and a value all the same.
        ["{[i, j]: 0 <= i < n and 0 <= j < m}", "{[l]: i < l < n}"],
        "c[i, j] = b[i, j] + sum(l, a[l, i] * b[l, j])",
        [loaded("a", F64, "n, n"), loaded("b", F64, "n, m"), stored("c", F64, "n, m")],
        "n, m",
        assume=fits(64, "n", "m"),
    )


def _trmm_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    return {"c": arrays["b"] + np.tril(arrays["a"], -1).T @ arrays["b"]}


TRMM = Family(
    "trmm",
    "PolyBench trmm, not in place",
    {
        "64x1": lambda: on_grid(_trmm(), j=64, i=1),
        "32x8": lambda: on_grid(_trmm(), j=32, i=8),
        "16x16": lambda: on_grid(_trmm(), j=16, i=16),
        "8x8": lambda: on_grid(_trmm(), j=8, i=8),
        "rows_first_32x4": lambda: on_grid(_trmm(), i=32, j=4),
        "columns_32x4": lambda: on_grid(lp.tag_array_axes(_trmm(), "a", "N0,N1"), j=32, i=4),
        "64x1_two": lambda: on_grid(neighbours(_trmm(), "j", 2), j=64, i=1),
    },
    ({"n": 128, "m": 192}, {"n": 320, "m": 256}, {"n": 512, "m": 512}),
    {"n": 64, "m": 128},
    _trmm_reference,
)


def _gather() -> lp.TranslationUnit:
    return make(
        "gather",
        "{[b, i, t]: 0 <= b < n and 0 <= i < 1024 and 0 <= t < 4}",
        "y[b, i] = sum(t, v[t, b, i] * x[b, (37*i + 211*t) % 1024])",
        [loaded("x", F32, "n, 1024"), loaded("v", F32, "4, n, 1024"), stored("y", F32, "n, 1024")],
        assume=fits(16, "n"),
    )


def _gather_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    place = (37 * np.arange(1024) + 211 * np.arange(4)[:, None]) % 1024
    return {"y": sum(arrays["v"][t] * arrays["x"][:, place[t]] for t in range(4))}


GATHER = Family(
    "gather",
    "sparse matrix times vector in ELLPACK format (Bell and Garland, 2009), places by a fixed rule",
    {
        "16": lambda: on_grid(_gather(), i=16, b=1),
        "64": lambda: on_grid(_gather(), i=64, b=1),
        "256": lambda: on_grid(_gather(), i=256, b=1),
        "8x8": lambda: on_grid(_gather(), i=8, b=8),
        "blocks_first_16x16": lambda: on_grid(_gather(), b=16, i=16),
        "64_unrolled": lambda: lp.tag_inames(on_grid(_gather(), i=64, b=1), {"t": "unr"}),
        "64_two": lambda: on_grid(neighbours(_gather(), "i", 2), i=64, b=1),
        "values_together_64": lambda: on_grid(lp.tag_array_axes(_gather(), "v", "N0,N2,N1"), i=64, b=1),
    },
    ({"n": 64}, {"n": 512}, {"n": 2048}),
    {"n": 16},
    _gather_reference,
)


def _dia() -> lp.TranslationUnit:
    """Diagonals at distances 0, 1, 2, 3, 512, 1024 and 1536 from the first."""
    terms = " + ".join(f"d[{place}, i] * x[i + {distance}]" for place, distance in enumerate(_DISTANCES))
    return make(
        "dia_update",
        "{[i]: 0 <= i < n}",
        f"y[i] = 0.5 * y[i] + {terms}",
        [loaded("d", F64, f"{len(_DISTANCES)}, n"), loaded("x", F64, "n + 1536"), updated("y", F64, "n")],
        assume=fits(2048, "n"),
    )


_DISTANCES = (0, 1, 2, 3, 512, 1024, 1536)


def _dia_rows() -> lp.TranslationUnit:
    return lp.tag_array_axes(_dia(), "d", "N0,N1")


def _dia_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    d, x, n = arrays["d"], arrays["x"], sizes["n"]
    return {"y": 0.5 * arrays["y"] + sum(d[place] * x[s : s + n] for place, s in enumerate(_DISTANCES))}


DIA_UPDATE = Family(
    "dia_update",
    "sparse matrix times vector in diagonal format, y = y/2 + A x (Bell and Garland, 2009)",
    {
        "8": lambda: on_grid(_dia(), i=8),
        "16": lambda: on_grid(_dia(), i=16),
        "64": lambda: on_grid(_dia(), i=64),
        "256": lambda: on_grid(_dia(), i=256),
        "64_next4": lambda: on_grid(neighbours(_dia(), "i", 4), i=64),
        "128_apart2": lambda: on_grid(_dia(), i=(128, 2)),
        "rows_64": lambda: on_grid(_dia_rows(), i=64),
        "rows_16_next2": lambda: on_grid(neighbours(_dia_rows(), "i", 2), i=16),
    },
    ({"n": 32768}, {"n": 131072}, {"n": 786432}),
    {"n": 2048},
    _dia_reference,
)

FAMILIES = (FIR, CONV2D, TRMV, TRMM, GATHER, DIA_UPDATE)
