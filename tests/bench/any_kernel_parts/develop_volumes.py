"""Stencils in three dimensions, and one with coefficients that vary from point to point."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import loopy as lp

from .families import Family
from .kernels import F32, F64, fits, loaded, make, neighbours, on_grid, stored

if TYPE_CHECKING:
    from collections.abc import Mapping


def _heat3d() -> lp.TranslationUnit:
    centre = "u[i + 1, j + 1, k + 1]"
    around = " + ".join(f"u[i + {a}, j + {b}, k + {c}]" for a, b, c in _STAR)
    return make(
        "heat3d",
        "{[i, j, k]: 0 <= i < n and 0 <= j, k < m}",
        f"v[i + 1, j + 1, k + 1] = 0.4 * {centre} + 0.1 * ({around})",
        [loaded("u", F64, "n + 2, m + 2, m + 2"), stored("v", F64, "n + 2, m + 2, m + 2")],
        "n, m",
        assume=f"{fits(8, 'n')} and {fits(64, 'm')}",
    )


_STAR = ((0, 1, 1), (2, 1, 1), (1, 0, 1), (1, 2, 1), (1, 1, 0), (1, 1, 2))


def _heat3d_planes(wide: int, high: int, planes: int) -> lp.TranslationUnit:
    """A work-item goes through so many planes in a loop."""
    kernel = lp.split_iname(_heat3d(), "i", planes, outer_tag="g.2")
    return on_grid(kernel, k=wide, j=high)


def _heat3d_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    u, v, n, m = arrays["u"], arrays["v"].copy(), sizes["n"], sizes["m"]
    around = sum(u[a : a + n, b : b + m, c : c + m] for a, b, c in _STAR)
    v[1:-1, 1:-1, 1:-1] = 0.4 * u[1:-1, 1:-1, 1:-1] + 0.1 * around
    return {"v": v}


HEAT3D = Family(
    "heat3d",
    "PolyBench heat-3d",
    {
        "64x1x1": lambda: on_grid(_heat3d(), k=64, j=1, i=1),
        "32x8x1": lambda: on_grid(_heat3d(), k=32, j=8, i=1),
        "16x4x4": lambda: on_grid(_heat3d(), k=16, j=4, i=4),
        "8x8x2": lambda: on_grid(_heat3d(), k=8, j=8, i=2),
        "planes8_64x1": lambda: _heat3d_planes(64, 1, 8),
        "planes8_16x8": lambda: _heat3d_planes(16, 8, 8),
        "rows_first_16x4x1": lambda: on_grid(_heat3d(), j=16, k=4, i=1),
        "32x2_two": lambda: on_grid(neighbours(_heat3d(), "j", 2), k=32, j=2, i=1),
    },
    ({"n": 16, "m": 64}, {"n": 64, "m": 128}, {"n": 96, "m": 192}),
    {"n": 8, "m": 64},
    _heat3d_reference,
)


def _box27() -> lp.TranslationUnit:
    around = " + ".join(f"u[i + {a}, j + {b}, k + {c}]" for a, b, c in product(range(3), repeat=3))
    return make(
        "box27",
        "{[i, j, k]: 0 <= i < n and 0 <= j, k < m}",
        f"v[i, j, k] = 0.037f * ({around})",
        [loaded("u", F32, "n + 2, m + 2, m + 2"), stored("v", F32, "n, m, m")],
        "n, m",
        assume=f"{fits(8, 'n')} and {fits(64, 'm')}",
    )


def _box27_fetched(wide: int, high: int, deep: int) -> lp.TranslationUnit:
    kernel = on_grid(_box27(), k=wide, j=high, i=deep)
    inames = ["i_inner", "j_inner", "k_inner"]
    kernel = lp.add_prefetch(kernel, "u", inames, default_tag="l.auto", fetch_bounding_box=True)
    return lp.add_inames_for_unused_hw_axes(kernel)


def _box27_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    u, n, m = arrays["u"], sizes["n"], sizes["m"]
    return {"v": 0.037 * sum(u[a : a + n, b : b + m, c : c + m] for a, b, c in product(range(3), repeat=3))}


BOX27 = Family(
    "box27",
    "27-point box stencil (pystencils' documentation; PolyBench/GPU 3DCONV)",
    {
        "64x1x1": lambda: on_grid(_box27(), k=64, j=1, i=1),
        "64x4x1": lambda: on_grid(_box27(), k=64, j=4, i=1),
        "16x8x1": lambda: on_grid(_box27(), k=16, j=8, i=1),
        "8x8x2": lambda: on_grid(_box27(), k=8, j=8, i=2),
        "4x4x8": lambda: on_grid(_box27(), k=4, j=4, i=8),
        "planes_64": lambda: on_grid(lp.split_iname(_box27(), "i", 8, outer_tag="g.2"), k=64, j=1),
        "fetched_16x4x2": lambda: _box27_fetched(16, 4, 2),
        "fetched_32x4x1": lambda: _box27_fetched(32, 4, 1),
    },
    ({"n": 16, "m": 64}, {"n": 32, "m": 128}, {"n": 96, "m": 192}),
    {"n": 8, "m": 64},
    _box27_reference,
)


def _varcoef() -> lp.TranslationUnit:
    return make(
        "varcoef2d",
        "{[i, j]: 0 <= i < n and 0 <= j < m}",
        """
        v[i + 1, j + 1] = c[0, i, j] * u[i + 1, j + 1] + c[1, i, j] * u[i + 1, j] + c[2, i, j] * u[i + 1, j + 2] \
            + c[3, i, j] * u[i, j + 1] + c[4, i, j] * u[i + 2, j + 1]
        """,
        [loaded("u", F64, "n + 2, m + 2"), loaded("c", F64, "5, n, m"), stored("v", F64, "n + 2, m + 2")],
        "n, m",
        assume=f"{fits(32, 'n')} and {fits(128, 'm')}",
    )


def _varcoef_together() -> lp.TranslationUnit:
    """The five coefficients of a point lie next to each other."""
    return lp.tag_array_axes(_varcoef(), "c", "N0,N2,N1")


def _varcoef_reference(arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    u, c, v = arrays["u"], arrays["c"], arrays["v"].copy()
    along = c[1] * u[1:-1, :-2] + c[2] * u[1:-1, 2:] + c[3] * u[:-2, 1:-1] + c[4] * u[2:, 1:-1]
    v[1:-1, 1:-1] = c[0] * u[1:-1, 1:-1] + along
    return {"v": v}


VARCOEF2D = Family(
    "varcoef2d",
    "5-point stencil with variable coefficients (Malas et al., Multicore-optimized wavefront diamond blocking)",
    {
        "128x1": lambda: on_grid(_varcoef(), j=128, i=1),
        "32x8": lambda: on_grid(_varcoef(), j=32, i=8),
        "16x16": lambda: on_grid(_varcoef(), j=16, i=16),
        "8x8": lambda: on_grid(_varcoef(), j=8, i=8),
        "64x1_rows2": lambda: on_grid(neighbours(_varcoef(), "i", 2), j=64, i=1),
        "rows_first_16x8": lambda: on_grid(_varcoef(), i=16, j=8),
        "together_64x2": lambda: on_grid(_varcoef_together(), j=64, i=2),
        "together_16x16": lambda: on_grid(_varcoef_together(), j=16, i=16),
    },
    ({"n": 192, "m": 256}, {"n": 512, "m": 512}, {"n": 1280, "m": 1024}),
    {"n": 32, "m": 128},
    _varcoef_reference,
)

FAMILIES = (HEAT3D, BOX27, VARCOEF2D)
