"""Filters of images, pooling, and a lattice Boltzmann step."""

from __future__ import annotations

from functools import partial
from typing import Any

import loopy as lp
import numpy as np

from .families import Arrays, Family, Lengths, Sizes, shaped_as
from .kernels import F32, I32, fetched_tile, fits, loaded, make, neighbours, on_grid, over_grid, scratch, shaped, stored

_SOBEL_BODY = """
    <int32> gx = p[i, j + 2] + 2*p[i + 1, j + 2] + p[i + 2, j + 2] - p[i, j] - 2*p[i + 1, j] - p[i + 2, j]
    <int32> gy = p[i + 2, j] + 2*p[i + 2, j + 1] + p[i + 2, j + 2] - p[i, j] - 2*p[i, j + 1] - p[i, j + 2]
    <int32> size = (-1*gx if gx < 0 else gx) + (-1*gy if gy < 0 else gy)
    edge[i, j] = (20 if size > 20 else size)
"""


def _sobel(lengths: Lengths, **shape: Any) -> lp.TranslationUnit:
    kernel = over_grid("sobel", _SOBEL_BODY, [loaded("p", I32, "ny + 2, nx + 2"), stored("edge", I32, "ny, nx")])
    return shaped(kernel, lengths, **shape)


def _sobel_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    p = arrays["p"]
    smooth_rows, smooth_columns = p[:-2] + 2 * p[1:-1] + p[2:], p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:]
    gx, gy = smooth_rows[:, 2:] - smooth_rows[:, :-2], smooth_columns[2:] - smooth_columns[:-2]
    return {"edge": np.minimum(np.abs(gx) + np.abs(gy), 20)}


_SOBEL = Family(
    name="sobel_int",
    source="Sobel operator on integers, as in OpenCV and AMD's OpenCL samples",
    variants={
        **shaped_as(_sobel, "256x1", "64x4", "32x8", "16x16", "8x8"),
        "16x16-tile": partial(_sobel, {"j": 16, "i": 16}, tile="p"),
        "64x4-tile": partial(_sobel, {"j": 64, "i": 4}, tile="p"),
        "32x4-4rows": partial(_sobel, {"j": 32, "i": 4}, block=("i", 4)),
        "32x4-4columns": partial(_sobel, {"j": 32, "i": 4}, block=("j", 4)),
        "64x1-column": partial(_sobel, {"j": 64, "part": 1}, column=20),
    },
    sizes=({"nx": 320, "ny": 240}, {"nx": 832, "ny": 640}, {"nx": 1920, "ny": 1040}),
    tiny={"nx": 64, "ny": 80},
    reference=_sobel_reference,
)

_BILATERAL_BODY = """
    <float32> here = u[i + 2, j + 2]
    weights = 0
    total = 0
    for y
        for x
            <float32> there = u[i + y, j + x]
            <float32> weight = g[y, x]*exp(-4*(there - here)*(there - here))
            weights = weights + weight
            total = total + weight*there
        end
    end
    v[i, j] = total / weights
"""


def _bilateral(lengths: Lengths, *, flat: str = "", tile: bool = False) -> lp.TranslationUnit:
    kernel = make(
        "bilateral",
        "{[i, j, y, x]: 0 <= i < ny and 0 <= j < nx and 0 <= y, x < 5}",
        f"for i, j\n{_BILATERAL_BODY}\nend",
        [
            loaded("u", F32, "ny + 4, nx + 4"),
            loaded("g", F32, "5, 5"),
            stored("v", F32, "ny, nx"),
            *scratch("weights, total", F32),
        ],
        "nx, ny",
    )
    kernel = on_grid(kernel, **lengths)
    if tile:
        kernel = lp.assume(kernel, f"{fits(lengths['j'], 'nx')} and {fits(lengths['i'], 'ny')}")
        kernel = fetched_tile(kernel, "u", ["i_inner", "j_inner", "y", "x"])
    return lp.tag_inames(kernel, dict.fromkeys(flat, "unr")) if flat else kernel


def _bilateral_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    u, nx, ny = arrays["u"].astype(np.float64), sizes["nx"], sizes["ny"]
    here = u[2 : 2 + ny, 2 : 2 + nx]
    weights, total = np.zeros_like(here), np.zeros_like(here)
    for y, x in np.ndindex(5, 5):
        there = u[y : y + ny, x : x + nx]
        weight = arrays["g"][y, x] * np.exp(-4 * (there - here) ** 2)
        weights, total = weights + weight, total + weight * there
    return {"v": total / weights}


_BILATERAL = Family(
    name="bilateral_5x5",
    source="bilateral filter (Tomasi and Manduchi, 1998), as in NVIDIA's CUDA samples",
    variants={
        **shaped_as(_bilateral, "256x1", "64x4", "16x16", "8x8"),
        "64x4-flat-x": partial(_bilateral, {"j": 64, "i": 4}, flat="x"),
        "64x4-flat": partial(_bilateral, {"j": 64, "i": 4}, flat="yx"),
        "8x8-flat": partial(_bilateral, {"j": 8, "i": 8}, flat="yx"),
        "16x16-tile": partial(_bilateral, {"j": 16, "i": 16}, tile=True),
        "32x8-tile-flat-x": partial(_bilateral, {"j": 32, "i": 8}, tile=True, flat="x"),
    },
    sizes=({"nx": 128, "ny": 96}, {"nx": 320, "ny": 208}, {"nx": 480, "ny": 400}),
    tiny={"nx": 32, "ny": 32},
    reference=_bilateral_reference,
)


def _pool(layout: str, lengths: Lengths, *, flat: bool = False, block: tuple[str, int] = ("", 1)) -> lp.TranslationUnit:
    order = {"planes": "N2,N1,N0", "channels": "N0,N2,N1"}[layout]
    kernel = make(
        "pool",
        "{[c, i, j, y, x]: 0 <= c < nc and 0 <= i < ny and 0 <= j < nx and 0 <= y, x < 3}",
        "v[c, i, j] = max([y, x], u[c, 2*i + y, 2*j + x])",
        [loaded("u", F32, "nc, 2*ny + 1, 2*nx + 1", dim_tags=order), stored("v", F32, "nc, ny, nx", dim_tags=order)],
        "nc, nx, ny",
    )
    kernel = neighbours(kernel, *block)
    kernel = on_grid(kernel, **lengths)
    return lp.tag_inames(kernel, {"y": "unr", "x": "unr"}) if flat else kernel


def _pool_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    windows = np.lib.stride_tricks.sliding_window_view(arrays["u"], (3, 3), axis=(1, 2))
    return {"v": windows[:, ::2, ::2].max(axis=(3, 4))}


_POOL = Family(
    name="max_pool_3x3",
    source="pooling layer of ResNet (He et al., 2016), windows of 3 by 3 with stride 2",
    variants={
        "planes-64x4": partial(_pool, "planes", {"j": 64, "i": 4, "c": 1}),
        "planes-16x16": partial(_pool, "planes", {"j": 16, "i": 16, "c": 1}),
        "planes-8x8": partial(_pool, "planes", {"j": 8, "i": 8, "c": 1}),
        "planes-16x16-flat": partial(_pool, "planes", {"j": 16, "i": 16, "c": 1}, flat=True),
        "planes-32x4-2rows-flat": partial(_pool, "planes", {"j": 32, "i": 4, "c": 1}, flat=True, block=("i", 2)),
        "channels-32x8": partial(_pool, "channels", {"c": 32, "j": 8, "i": 1}),
        "channels-16x16": partial(_pool, "channels", {"c": 16, "j": 16, "i": 1}),
        "channels-16x16-flat": partial(_pool, "channels", {"c": 16, "j": 16, "i": 1}, flat=True),
        "channels-8x8-flat": partial(_pool, "channels", {"c": 8, "j": 8, "i": 1}, flat=True),
        "channels-across": partial(_pool, "channels", {"j": 16, "i": 4, "c": 1}, flat=True),
    },
    sizes=({"nc": 32, "nx": 30, "ny": 24}, {"nc": 64, "nx": 56, "ny": 48}, {"nc": 64, "nx": 112, "ny": 100}),
    tiny={"nc": 20, "nx": 18, "ny": 9},
    reference=_pool_reference,
)

_DIRECTIONS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))


def _weight(x: int, y: int) -> float:
    return (4 / 9, 1 / 9, 1 / 36)[abs(x) + abs(y)]


def _lbm_body() -> str:
    def along(terms: list[tuple[int, str]]) -> str:
        return " + ".join(f"({sign})*{name}" for sign, name in terms if sign)

    lines = [f"<float32> f{q} = f[{q}, i + {1 - y}, j + {1 - x}]" for q, (x, y) in enumerate(_DIRECTIONS)]
    lines += [
        f"<float32> density = {' + '.join(f'f{q}' for q in range(9))}",
        f"<float32> ux = ({along([(x, f'f{q}') for q, (x, _) in enumerate(_DIRECTIONS)])}) / density",
        f"<float32> uy = ({along([(y, f'f{q}') for q, (_, y) in enumerate(_DIRECTIONS)])}) / density",
        "<float32> rest = 1 - 1.5*(ux*ux + uy*uy)",
    ]
    for q, (x, y) in enumerate(_DIRECTIONS):
        speed = along([(x, "ux"), (y, "uy")]) or "0*ux"
        lines += [
            f"<float32> c{q} = {speed}",
            f"new[{q}, i + 1, j + 1] = 0.5*f{q} + {0.5 * _weight(x, y)!r}*density*(rest + 3*c{q} + 4.5*c{q}*c{q})",
        ]
    return "\n".join(lines)


def _lbm(order: str, lengths: Lengths, *, column: int = 1) -> lp.TranslationUnit:
    tags = {"planes": "N2,N1,N0", "points": "N0,N2,N1", "rows": "N1,N2,N0"}[order]
    new = lp.GlobalArg("new", F32, shape="9, ny + 2, nx + 2", dim_tags=tags, is_input=True, is_output=True)
    kernel = over_grid("lbm", _lbm_body(), [loaded("f", F32, "9, ny + 2, nx + 2", dim_tags=tags), new])
    return shaped(kernel, lengths, column=column)


def _lbm_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    f, new, nx, ny = arrays["f"].astype(np.float64), arrays["new"].copy(), sizes["nx"], sizes["ny"]
    pulled = np.array([f[q, 1 - y : 1 - y + ny, 1 - x : 1 - x + nx] for q, (x, y) in enumerate(_DIRECTIONS)])
    density = pulled.sum(axis=0)
    ux, uy = (np.tensordot([d[axis] for d in _DIRECTIONS], pulled, 1) / density for axis in (0, 1))
    for q, (x, y) in enumerate(_DIRECTIONS):
        speed = x * ux + y * uy
        balance = _weight(x, y) * density * (1 + 3 * speed + 4.5 * speed**2 - 1.5 * (ux**2 + uy**2))
        new[q, 1:-1, 1:-1] = 0.5 * pulled[q] + 0.5 * balance
    return {"new": new}


_LBM = Family(
    name="lbm_d2q9",
    source="lattice Boltzmann D2Q9 with one relaxation time (Qian et al., 1992), pull scheme",
    variants={
        "planes-256x1": partial(_lbm, "planes", {"j": 256, "i": 1}),
        "planes-64x4": partial(_lbm, "planes", {"j": 64, "i": 4}),
        "planes-16x16": partial(_lbm, "planes", {"j": 16, "i": 16}),
        "planes-8x8": partial(_lbm, "planes", {"j": 8, "i": 8}),
        "planes-64x1-column": partial(_lbm, "planes", {"j": 64, "part": 1}, column=10),
        "rows-64x4": partial(_lbm, "rows", {"j": 64, "i": 4}),
        "points-64x4": partial(_lbm, "points", {"j": 64, "i": 4}),
        "points-16x16": partial(_lbm, "points", {"j": 16, "i": 16}),
        "points-8x8": partial(_lbm, "points", {"j": 8, "i": 8}),
    },
    sizes=({"nx": 120, "ny": 100}, {"nx": 256, "ny": 200}, {"nx": 500, "ny": 400}),
    tiny={"nx": 33, "ny": 20},
    reference=_lbm_reference,
    tolerance=1e-3,
)

FAMILIES = (_SOBEL, _BILATERAL, _POOL, _LBM)
