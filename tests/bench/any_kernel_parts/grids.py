"""Steps of simulations on grids in two dimensions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .families import Arrays, Family, Lengths, Sizes, shaped_as
from .kernels import F32, F64, loaded, over_grid, shaped, stored, updated

if TYPE_CHECKING:
    import loopy as lp


def _fdtd(lengths: Lengths, fused: bool = True, **shape: Any) -> lp.TranslationUnit:
    body = """
        ey[i + 1, j] = ey[i + 1, j] - 0.5*(hz[i + 1, j] - hz[i, j])
        ex[i, j + 1] = ex[i, j + 1] - 0.5*(hz[i, j + 1] - hz[i, j])
    """
    if fused:
        body = """
        <float32> here = hz[i, j]
        ey[i + 1, j] = ey[i + 1, j] - 0.5*(hz[i + 1, j] - here)
        ex[i, j + 1] = ex[i, j + 1] - 0.5*(hz[i, j + 1] - here)
        """
    kernel = over_grid("fdtd", body, [updated("ex, ey", F32, "ny + 1, nx + 1"), loaded("hz", F32, "ny + 1, nx + 1")])
    return shaped(kernel, lengths, **shape)


def _fdtd_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    ex, ey, hz = arrays["ex"].copy(), arrays["ey"].copy(), arrays["hz"]
    ey[1:, :-1] -= 0.5 * (hz[1:, :-1] - hz[:-1, :-1])
    ex[:-1, 1:] -= 0.5 * (hz[:-1, 1:] - hz[:-1, :-1])
    return {"ex": ex, "ey": ey}


_FDTD = Family(
    name="fdtd_2d",
    source="PolyBench/GPU fdtd-2d, both components of the electric field in one kernel",
    variants={
        **shaped_as(_fdtd, "256x1", "64x4", "32x8", "16x16", "8x8"),
        "32x8-loads-again": partial(_fdtd, {"j": 32, "i": 8}, fused=False),
        "32x4-4rows": partial(_fdtd, {"j": 32, "i": 4}, block=("i", 4)),
        "64x1-column": partial(_fdtd, {"j": 64, "part": 1}, column=20),
    },
    sizes=({"nx": 320, "ny": 240}, {"nx": 700, "ny": 600}, {"nx": 1500, "ny": 1300}),
    tiny={"nx": 70, "ny": 40},
    reference=_fdtd_reference,
)

_HOTSPOT_BODY = """
    <float32> here = t[i, j]
    <float32> north = (t[i - 1, j] if i > 0 else here)
    <float32> south = (t[i + 1, j] if i < ny - 1 else here)
    <float32> west = (t[i, j - 1] if j > 0 else here)
    <float32> east = (t[i, j + 1] if j < nx - 1 else here)
    new[i, j] = here + 0.25*(p[i, j] + 0.125*(north + south - 2*here) + 0.0625*(west + east - 2*here) \
        + 0.03125*(80 - here))
"""
_HOTSPOT_INDEXED = """
    <int32> above = (i - 1 if i > 0 else 0)
    <int32> below = (i + 1 if i < ny - 1 else i)
    <int32> left = (j - 1 if j > 0 else 0)
    <int32> right = (j + 1 if j < nx - 1 else j)
    <float32> here = t[i, j]
    new[i, j] = here + 0.25*(p[i, j] + 0.125*(t[above, j] + t[below, j] - 2*here) \
        + 0.0625*(t[i, left] + t[i, right] - 2*here) + 0.03125*(80 - here))
"""


def _hotspot(lengths: Lengths, *, body: str = _HOTSPOT_BODY, **shape: Any) -> lp.TranslationUnit:
    kernel = over_grid("hotspot", body, [loaded("t, p", F32, "ny, nx"), stored("new", F32, "ny, nx")])
    return shaped(kernel, lengths, **shape)


def _hotspot_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    t = arrays["t"]
    around = np.pad(t, 1, mode="edge")
    vertical = around[:-2, 1:-1] + around[2:, 1:-1] - 2 * t
    horizontal = around[1:-1, :-2] + around[1:-1, 2:] - 2 * t
    return {"new": t + 0.25 * (arrays["p"] + 0.125 * vertical + 0.0625 * horizontal + 0.03125 * (80 - t))}


_HOTSPOT = Family(
    name="hotspot",
    source="Rodinia hotspot (Che et al., 2009), one step with guarded boundaries",
    variants={
        **shaped_as(_hotspot, "256x1", "64x4", "32x8", "16x16", "8x8"),
        "64x4-clamped-subscripts": partial(_hotspot, {"j": 64, "i": 4}, body=_HOTSPOT_INDEXED),
        "16x4-4rows": partial(_hotspot, {"j": 16, "i": 4}, block=("i", 4)),
        "64x1-column": partial(_hotspot, {"j": 64, "part": 1}, column=20),
    },
    sizes=({"nx": 300, "ny": 240}, {"nx": 650, "ny": 600}, {"nx": 1410, "ny": 1300}),
    tiny={"nx": 50, "ny": 40},
    reference=_hotspot_reference,
)

_SRAD_BODY = """
    <float32> here = u[i + 1, j + 1]
    <float32> north = u[i, j + 1] - here
    <float32> south = u[i + 2, j + 1] - here
    <float32> west = u[i + 1, j] - here
    <float32> east = u[i + 1, j + 2] - here
    <float32> inverse = 1 / here
    <float32> squares = (north*north + south*south + west*west + east*east)*inverse*inverse
    <float32> laplacian = (north + south + west + east)*inverse
    <float32> below = 1 + 0.25*laplacian
    <float32> q = (0.5*squares - 0.0625*laplacian*laplacian) / (below*below)
    <float32> raw = 1 / (1 + (q - 0.25)*3.2)
    dn[i, j] = north
    ds[i, j] = south
    dw[i, j] = west
    de[i, j] = east
    c[i, j] = (0 if raw < 0 else (1 if raw > 1 else raw))
"""


def _srad(lengths: Lengths, **shape: Any) -> lp.TranslationUnit:
    kernel = over_grid(
        "srad", _SRAD_BODY, [loaded("u", F32, "ny + 2, nx + 2"), stored("dn, ds, dw, de, c", F32, "ny, nx")]
    )
    return shaped(kernel, lengths, **shape)


def _srad_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    u = arrays["u"].astype(np.float64)
    here = u[1:-1, 1:-1]
    parts = {"dn": u[:-2, 1:-1], "ds": u[2:, 1:-1], "dw": u[1:-1, :-2], "de": u[1:-1, 2:]}
    parts = {name: part - here for name, part in parts.items()}
    squares = sum(part**2 for part in parts.values()) / here**2
    laplacian = sum(parts.values()) / here
    q = (0.5 * squares - 0.0625 * laplacian**2) / (1 + 0.25 * laplacian) ** 2
    return {**parts, "c": np.clip(1 / (1 + (q - 0.25) * 3.2), 0, 1)}


_SRAD = Family(
    name="srad",
    source="Rodinia srad (Che et al., 2009), first kernel: derivatives and diffusion coefficient",
    variants={
        **shaped_as(_srad, "256x1", "64x4", "32x8", "16x16", "8x8"),
        "32x4-2rows": partial(_srad, {"j": 32, "i": 4}, block=("i", 2)),
        "64x1-column": partial(_srad, {"j": 64, "part": 1}, column=20),
        "16x16-tile": partial(_srad, {"j": 16, "i": 16}, tile="u"),
        "64x4-tile": partial(_srad, {"j": 64, "i": 4}, tile="u"),
    },
    sizes=({"nx": 256, "ny": 240}, {"nx": 512, "ny": 400}, {"nx": 1088, "ny": 960}),
    tiny={"nx": 64, "ny": 80},
    reference=_srad_reference,
    tolerance=1e-3,
)

_UPWIND_CHOICE = """
    <float64> here = q[i + 1, j + 1]
    <float64> along_x = (here - q[i + 1, j] if u[i, j] > 0 else q[i + 1, j + 2] - here)
    <float64> along_y = (here - q[i, j + 1] if v[i, j] > 0 else q[i + 2, j + 1] - here)
    new[i, j] = here - 0.25*(u[i, j]*along_x + v[i, j]*along_y)
"""
_UPWIND_PARTS = """
    <float64> here = q[i + 1, j + 1]
    <float64> fast_x = u[i, j]
    <float64> fast_y = v[i, j]
    <float64> right = (fast_x if fast_x > 0 else 0)
    <float64> up = (fast_y if fast_y > 0 else 0)
    new[i, j] = here - 0.25*(right*(here - q[i + 1, j]) + (fast_x - right)*(q[i + 1, j + 2] - here) \
        + up*(here - q[i, j + 1]) + (fast_y - up)*(q[i + 2, j + 1] - here))
"""


def _upwind(lengths: Lengths, *, body: str = _UPWIND_CHOICE, **shape: Any) -> lp.TranslationUnit:
    kernel = over_grid(
        "upwind",
        body,
        [loaded("q", F64, "ny + 2, nx + 2"), loaded("u, v", F64, "ny, nx"), stored("new", F64, "ny, nx")],
    )
    return shaped(kernel, lengths, **shape)


def _upwind_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    q, u, v = arrays["q"], arrays["u"], arrays["v"]
    here = q[1:-1, 1:-1]
    along_x = np.where(u > 0, here - q[1:-1, :-2], q[1:-1, 2:] - here)
    along_y = np.where(v > 0, here - q[:-2, 1:-1], q[2:, 1:-1] - here)
    return {"new": here - 0.25 * (u * along_x + v * along_y)}


_UPWIND = Family(
    name="upwind_advection",
    source="donor-cell upwind scheme of first order in two dimensions (LeVeque, 2002)",
    variants={
        **shaped_as(_upwind, "256x1", "64x4", "32x8", "16x16", "8x8"),
        "64x4-parts": partial(_upwind, {"j": 64, "i": 4}, body=_UPWIND_PARTS),
        "8x8-parts": partial(_upwind, {"j": 8, "i": 8}, body=_UPWIND_PARTS),
        "32x2-4rows": partial(_upwind, {"j": 32, "i": 2}, block=("i", 4)),
        "32x1-column": partial(_upwind, {"j": 32, "part": 1}, column=20),
        "16x16-crosswise": partial(_upwind, {"i": 16, "j": 16}),
    },
    sizes=({"nx": 220, "ny": 180}, {"nx": 500, "ny": 400}, {"nx": 1030, "ny": 1000}),
    tiny={"nx": 39, "ny": 40},
    reference=_upwind_reference,
)

FAMILIES = (_FDTD, _HOTSPOT, _SRAD, _UPWIND)
