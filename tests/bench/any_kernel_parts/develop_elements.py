"""Many small operations: batched matrices, derivatives on elements, stages of Fourier transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np

from .families import Family
from .kernels import F32, F64, fetched, fits, loaded, make, neighbours, on_grid, stored

if TYPE_CHECKING:
    from collections.abc import Mapping


def _batched() -> lp.TranslationUnit:
    return make(
        "batched_gemm",
        "{[e, i, j, k]: 0 <= e < n and 0 <= i, j, k < 6}",
        "c[e, i, j] = sum(k, a[e, i, k] * b[e, k, j])",
        [loaded("a, b", F64, "n, 6, 6"), stored("c", F64, "n, 6, 6")],
        assume=fits(128, "n"),
    )


def _batched_interleaved() -> lp.TranslationUnit:
    """The same element of all matrices lies together."""
    kernel = _batched()
    for name in "abc":
        kernel = lp.tag_array_axes(kernel, name, "N0,N2,N1")
    return kernel


def _one_matrix_each(kernel: lp.TranslationUnit, items: int) -> lp.TranslationUnit:
    return lp.tag_inames(on_grid(kernel, e=items), {"i": "unr", "j": "unr"})


def _one_row_each(kernel: lp.TranslationUnit, items: int) -> lp.TranslationUnit:
    kernel = lp.split_iname(kernel, "e", items, outer_tag="g.0", inner_tag="l.0")
    return lp.tag_inames(kernel, {"i": "l.1", "j": "unr"})


def _one_element_each(items: int) -> lp.TranslationUnit:
    kernel = lp.split_iname(_batched(), "e", items, outer_tag="g.0", inner_tag="l.2")
    return lp.tag_inames(kernel, "i:l.1, j:l.0")


def _batched_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    return {"c": arrays["a"] @ arrays["b"]}


BATCHED_GEMM = Family(
    "batched_gemm",
    "batched BLAS (Dongarra et al., 2017), order 6",
    {
        "matrix_32": lambda: _one_matrix_each(_batched(), 32),
        "matrix_128": lambda: _one_matrix_each(_batched(), 128),
        "row_16": lambda: _one_row_each(_batched(), 16),
        "element_8": lambda: _one_element_each(8),
        "element_2": lambda: _one_element_each(2),
        "interleaved_matrix_32": lambda: _one_matrix_each(_batched_interleaved(), 32),
        "interleaved_row_16": lambda: _one_row_each(_batched_interleaved(), 16),
        "interleaved_row_64": lambda: _one_row_each(_batched_interleaved(), 64),
    },
    ({"n": 2048}, {"n": 8192}, {"n": 32768}),
    {"n": 128},
    _batched_reference,
)


def _dg() -> lp.TranslationUnit:
    return make(
        "dg_gradient",
        "{[x, e, i, j]: 0 <= x < 3 and 0 <= e < n and 0 <= i, j < 20}",
        "g[x, e, i] = sum(j, d[x, i, j] * u[e, j])",
        [loaded("d", F32, "3, 20, 20"), loaded("u", F32, "n, 20"), stored("g", F32, "3, n, 20")],
        assume=fits(64, "n"),
    )


def _dg_elements_together() -> lp.TranslationUnit:
    """The values of neighbouring elements lie together."""
    kernel = lp.tag_array_axes(_dg(), "u", "N0,N1")
    return lp.tag_array_axes(kernel, "g", "N2,N0,N1")


def _dg_node_each(kernel: lp.TranslationUnit, elements: int, *, fetch: bool = False) -> lp.TranslationUnit:
    kernel = lp.split_iname(kernel, "e", elements, outer_tag="g.0", inner_tag="l.1")
    kernel = lp.tag_inames(kernel, {"i": "l.0", "x": "unr"})
    return fetched(kernel, ("u", ["e_inner", "j"])) if fetch else kernel


def _dg_element_each(kernel: lp.TranslationUnit, elements: int) -> lp.TranslationUnit:
    return lp.tag_inames(on_grid(kernel, e=elements), {"x": "unr"})


def _dg_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    return {"g": np.einsum("xij,ej->xei", arrays["d"], arrays["u"])}


DG_GRADIENT = Family(
    "dg_gradient",
    "discontinuous Galerkin gradient on tetrahedra of order 3 (Kloeckner et al., 2009), 20 nodes",
    {
        "node_20x4": lambda: _dg_node_each(_dg(), 4),
        "node_20x8_fetched": lambda: _dg_node_each(_dg(), 8, fetch=True),
        "element_16": lambda: _dg_element_each(_dg(), 16),
        "element_64": lambda: _dg_element_each(_dg(), 64),
        "together_element_16": lambda: _dg_element_each(_dg_elements_together(), 16),
        "together_element_64": lambda: _dg_element_each(_dg_elements_together(), 64),
        "together_16x20": lambda: lp.tag_inames(on_grid(_dg_elements_together(), e=16, i=20), {"x": "unr"}),
        "together_32x4": lambda: lp.tag_inames(on_grid(_dg_elements_together(), e=32, i=4), {"x": "unr"}),
    },
    ({"n": 1024}, {"n": 6144}, {"n": 24576}),
    {"n": 64},
    _dg_reference,
)


def _fft() -> lp.TranslationUnit:
    """One radix-2 stage of Stockham's algorithm: m transforms in parallel, n butterflies of each."""
    return make(
        "fft_stage",
        "{[p, q]: 0 <= p < n and 0 <= q < m}",
        """
        yr[p, 0, q] = xr[0, p, q] + xr[1, p, q]
        yi[p, 0, q] = xi[0, p, q] + xi[1, p, q]
        <> dr = xr[0, p, q] - xr[1, p, q]
        <> di = xi[0, p, q] - xi[1, p, q]
        yr[p, 1, q] = dr * wr[p] - di * wi[p]
        yi[p, 1, q] = dr * wi[p] + di * wr[p]
        """,
        [
            loaded("xr, xi", F32, "2, n, m"),
            loaded("wr, wi", F32, "n"),
            stored("yr, yi", F32, "n, 2, m"),
        ],
        "n, m",
        assume=f"{fits(128, 'n')} and {fits(64, 'm')}",
    )


def _fft_transposed() -> lp.TranslationUnit:
    """The transforms lie one after the other: neighbouring butterflies together."""
    kernel = _fft()
    for name in ("xr", "xi"):
        kernel = lp.tag_array_axes(kernel, name, "N1,N0,N2")
    for name in ("yr", "yi"):
        kernel = lp.tag_array_axes(kernel, name, "N1,N0,N2")
    return kernel


def _fft_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    x = arrays["xr"] + 1j * arrays["xi"]
    w = (arrays["wr"] + 1j * arrays["wi"])[:, None]
    y = np.stack([x[0] + x[1], (x[0] - x[1]) * w], axis=1)
    return {"yr": y.real, "yi": y.imag}


FFT_STAGE = Family(
    "fft_stage",
    "one radix-2 stage of Stockham's FFT (Govindaraju et al., 2008), batched",
    {
        "64x1": lambda: on_grid(_fft(), q=64, p=1),
        "64x4": lambda: on_grid(_fft(), q=64, p=4),
        "16x16": lambda: on_grid(_fft(), q=16, p=16),
        "8x8": lambda: on_grid(_fft(), q=8, p=8),
        "32x1_four": lambda: on_grid(neighbours(_fft(), "p", 4), q=32, p=1),
        "butterflies_first_64x1": lambda: on_grid(_fft(), p=64, q=1),
        "transposed_128x1": lambda: on_grid(_fft_transposed(), p=128, q=1),
        "transposed_16x4": lambda: on_grid(_fft_transposed(), p=16, q=4),
    },
    ({"n": 512, "m": 64}, {"n": 1024, "m": 256}, {"n": 4096, "m": 320}),
    {"n": 128, "m": 64},
    _fft_reference,
)

FAMILIES = (BATCHED_GEMM, DG_GRADIENT, FFT_STAGE)
