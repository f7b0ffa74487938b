"""Pairs of particles, clusters, and arithmetic in registers."""

from __future__ import annotations

from functools import partial

import loopy as lp
import numpy as np

from .families import Arrays, Family, Lengths, Sizes, shaped_as, sized_as
from .kernels import F32, F64, I32, fetched_locally, fits, loaded, make, on_grid, scratch, stored, unrolled, updated

_IN_BOX = 32

_BOX_BODY = """
    for box, own
        <float32> x = p[box + 1, 0, own]
        <float32> y = p[box + 1, 1, own]
        <float32> z = p[box + 1, 2, own]
        potential = 0
        fx = 0
        fy = 0
        fz = 0
        for side, other
            <float32> dx = x - p[box + side, 0, other]
            <float32> dy = y - p[box + side, 1, other]
            <float32> dz = z - p[box + side, 2, other]
            <float32> strength = p[box + side, 3, other]*exp(-0.5*(dx*dx + dy*dy + dz*dz))
            potential = potential + strength
            fx = fx + strength*dx
            fy = fy + strength*dy
            fz = fz + strength*dz
        end
        v[box, own] = potential
        force[box, 0, own] = fx
        force[box, 1, own] = fy
        force[box, 2, own] = fz
    end
"""


def _boxes(lengths: Lengths, *, points: bool = False, times: int = 1, side_flat: bool = False) -> lp.TranslationUnit:
    order = "N2,N0,N1" if points else "N2,N1,N0"
    kernel = make(
        "box_forces",
        f"{{[box, own, side, other]: 0 <= box < nbox and 0 <= own, other < {_IN_BOX} and 0 <= side < 3}}",
        _BOX_BODY,
        [
            loaded("p", F32, f"nbox + 2, 4, {_IN_BOX}", dim_tags=order),
            stored("v", F32, f"nbox, {_IN_BOX}"),
            stored("force", F32, f"nbox, 3, {_IN_BOX}", dim_tags=order),
            *scratch("potential, fx, fy, fz", F32),
        ],
        "nbox",
    )
    kernel = on_grid(kernel, **lengths)
    if side_flat:
        kernel = lp.tag_inames(kernel, {"side": "unr"})
    return unrolled(kernel, "other", times)


def _boxes_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    p, nbox = arrays["p"].astype(np.float64), sizes["nbox"]
    v, force = np.zeros((nbox, _IN_BOX)), np.zeros((nbox, 3, _IN_BOX))
    for box in range(nbox):
        around = np.concatenate(p[box : box + 3], axis=1)
        apart = p[box + 1, :3, :, None] - around[:3, None, :]
        strength = around[3] * np.exp(-0.5 * (apart**2).sum(axis=0))
        v[box], force[box] = strength.sum(axis=1), (strength * apart).sum(axis=2)
    return {"v": v, "force": force}


_BOXES = Family(
    name="box_pair_forces",
    source="Rodinia lavaMD (Che et al., 2009), a row of boxes of 32 particles",
    variants={
        "32x1": partial(_boxes, {"own": 32, "box": 1}),
        "32x8": partial(_boxes, {"own": 32, "box": 8}),
        "16x4": partial(_boxes, {"own": 16, "box": 4}),
        "8x8": partial(_boxes, {"own": 8, "box": 8}),
        "32x4-unroll4": partial(_boxes, {"own": 32, "box": 4}, times=4),
        "32x4-flat-sides": partial(_boxes, {"own": 32, "box": 4}, side_flat=True),
        "16x8-across": partial(_boxes, {"box": 16, "own": 8}),
        "points-32x4": partial(_boxes, {"own": 32, "box": 4}, points=True),
        "points-8x8": partial(_boxes, {"own": 8, "box": 8}, points=True),
    },
    sizes=({"nbox": 24}, {"nbox": 160}, {"nbox": 800}),
    tiny={"nbox": 19},
    reference=_boxes_reference,
    tolerance=1e-3,
)

_KMEANS_BODY = """
    for i
        nearest = 1e30
        label = 0
        for k
            distance = 0
            for f
                <float32> apart = x[f, i] - centre[k, f]
                distance = distance + apart*apart
            end
            label = (k if distance < nearest else label)
            nearest = (distance if distance < nearest else nearest)
        end
        to[i] = label
        least[i] = nearest
    end
"""


def _kmeans(
    items: int, *, points: bool = False, flat: str = "", each: int = 1, local: bool = False
) -> lp.TranslationUnit:
    kernel = make(
        "kmeans",
        "{[i, k, f]: 0 <= i < n and 0 <= k < 16 and 0 <= f < 8}",
        _KMEANS_BODY,
        [
            loaded("x", F32, "8, n", dim_tags="N0,N1" if points else "N1,N0"),
            loaded("centre", F32, "16, 8"),
            stored("to", I32, "n"),
            stored("least", F32, "n"),
            *scratch("nearest, distance", F32),
            *scratch("label", I32),
        ],
    )
    if each > 1:
        kernel = lp.assume(kernel, fits(each, "n"))
        kernel = lp.split_iname(kernel, "i", each, outer_iname="part", inner_iname="point")
    kernel = on_grid(kernel, **{"part" if each > 1 else "i": items})
    if local:
        kernel = fetched_locally(kernel, ("centre", ["k", "f"]))
    return lp.tag_inames(kernel, dict.fromkeys(flat, "unr")) if flat else kernel


def _kmeans_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    apart = arrays["x"].astype(np.float64)[None] - arrays["centre"].astype(np.float64)[:, :, None]
    distances = (apart**2).sum(axis=1)
    return {"to": distances.argmin(axis=0), "least": distances.min(axis=0)}


_KMEANS = Family(
    name="kmeans_nearest",
    source="Rodinia kmeans (Che et al., 2009), the nearest of 16 centres in 8 dimensions",
    variants={
        **sized_as(_kmeans, 256, 64, 8, prefix="features-"),
        "features-64-flat-f": partial(_kmeans, 64, flat="f"),
        "features-64-flat": partial(_kmeans, 64, flat="kf"),
        "points-256": partial(_kmeans, 256, points=True),
        "points-64-flat-f": partial(_kmeans, 64, points=True, flat="f"),
        "points-16-loop4": partial(_kmeans, 16, points=True, each=4),
        "features-128-local": partial(_kmeans, 128, local=True),
    },
    sizes=({"n": 4000}, {"n": 40000}, {"n": 200000}),
    tiny={"n": 300},
    reference=_kmeans_reference,
)

_FRACTAL_BODY = """
    for i, j
        re = 0
        im = 0
        inside = 0
        for step
            <float64> re2 = re*re
            <float64> im2 = im*im
            im = 2*re*im + 0.25*cy[i] - 0.375
            re = re2 - im2 + 0.25*cx[j] - 0.5
            inside = inside + (1 if re2 + im2 < 0.25 else 0)
        end
        count[i, j] = inside
    end
"""


def _fractal(lengths: Lengths, *, times: int = 1, block: tuple[str, int] = ("", 1)) -> lp.TranslationUnit:
    kernel = make(
        "fractal",
        "{[i, j, step]: 0 <= i < ny and 0 <= j < nx and 0 <= step < 40}",
        _FRACTAL_BODY,
        [
            loaded("cx", F64, "nx"),
            loaded("cy", F64, "ny"),
            stored("count", I32, "ny, nx"),
            *scratch("re, im", F64),
            *scratch("inside", I32),
        ],
        "nx, ny",
    )
    if block[0]:
        kernel = lp.split_iname(kernel, block[0], block[1], outer_iname="rest", inner_iname="own")
        kernel = lp.tag_inames(kernel, {"own": "ilp.unr"})
    kernel = on_grid(kernel, **lengths)
    return unrolled(kernel, "step", times)


def _fractal_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    c = (0.25 * arrays["cx"] - 0.5)[None, :] + 1j * (0.25 * arrays["cy"] - 0.375)[:, None]
    z, count = np.zeros_like(c), np.zeros(c.shape, np.int32)
    for _ in range(40):
        count += z.real**2 + z.imag**2 < 0.25
        z = z * z + c
    return {"count": count}


_FRACTAL = Family(
    name="mandelbrot_fixed",
    source="Mandelbrot iteration with a fixed number of steps, as in Intel's and NVIDIA's samples",
    variants={
        **shaped_as(_fractal, "256x1", "64x4", "16x16", "8x8", "4x16"),
        "64x4-unroll8": partial(_fractal, {"j": 64, "i": 4}, times=8),
        "32x4-2rows": partial(_fractal, {"j": 32, "rest": 4}, block=("i", 2)),
        "16x4-4rows": partial(_fractal, {"j": 16, "rest": 4}, block=("i", 4)),
    },
    sizes=({"nx": 160, "ny": 100}, {"nx": 280, "ny": 200}, {"nx": 500, "ny": 320}),
    tiny={"nx": 43, "ny": 19},
    reference=_fractal_reference,
)

_SHIFT_BODY = """
    for i
        state = s[i]
        total = 0
        for step
            state = state ^ (state << 13)
            state = state ^ (state >> 17)
            state = state ^ (state << 5)
            total = total ^ state
        end
        s[i] = state
        mixed[i] = total
    end
"""


def _shift(items: int, *, times: int = 1, streams: int = 1, column: int = 1) -> lp.TranslationUnit:
    kernel = make(
        "xorshift",
        "{[i, step]: 0 <= i < n and 0 <= step < 32}",
        _SHIFT_BODY,
        [updated("s", I32, "n"), stored("mixed", I32, "n"), *scratch("state, total", I32)],
    )
    axis = "i"
    if max(streams, column) > 1:
        kernel = lp.assume(kernel, fits(max(streams, column), "n"))
        kernel = lp.split_iname(kernel, "i", max(streams, column), outer_iname="rest", inner_iname="own")
        axis = "rest"
    if streams > 1:
        kernel = lp.tag_inames(kernel, {"own": "ilp.unr"})
    kernel = on_grid(kernel, **{axis: items})
    return unrolled(kernel, "step", times)


def _shift_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    state = arrays["s"].copy()
    total = np.zeros_like(state)
    for _ in range(32):
        for left, right in ((13, 0), (0, 17), (5, 0)):
            state ^= state << left if left else state >> right
        total ^= state
    return {"s": state, "mixed": total}


_SHIFT = Family(
    name="xorshift_streams",
    source="xorshift generators (Marsaglia, 2003), 32 steps of a stream for each element",
    variants={
        **sized_as(_shift, 256, 64, 16, 8),
        "64-unroll8": partial(_shift, 64, times=8),
        "8-unroll8": partial(_shift, 8, times=8),
        "64-2streams": partial(_shift, 64, streams=2),
        "64-4streams": partial(_shift, 64, streams=4),
        "64-loop4": partial(_shift, 64, column=4),
    },
    sizes=({"n": 20000}, {"n": 120000}, {"n": 800000}),
    tiny={"n": 500},
    reference=_shift_reference,
)

FAMILIES = (_BOXES, _KMEANS, _FRACTAL, _SHIFT)
