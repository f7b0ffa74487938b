"""Layers of neural networks, and the beams of an antenna array."""

from __future__ import annotations

from functools import partial

import loopy as lp
import numpy as np

from .families import Arrays, Family, Lengths, Sizes, sized_as
from .kernels import F32, fetched_locally, fits, loaded, make, on_grid, scratch, stored, unrolled

_DEPTH = 16

_ATTENTION_BODY = """
    for h, i
        for d0
            sums[d0] = 0
        end
        total = 0
        for j
            score = 0
            for d1
                score = score + q[h, i, d1]*k[h, j, d1]
            end
            <float32> weight = exp(0.25*score - 4)
            total = total + weight
            for d2
                sums[d2] = sums[d2] + weight*v[h, j, d2]
            end
        end
        for d3
            out[h, i, d3] = sums[d3] / total
        end
    end
"""


def _attention(
    items: int, *, across: bool = False, flat: bool = True, tile: int = 0, times: int = 1
) -> lp.TranslationUnit:
    order = "N2,N0,N1" if across else "N2,N1,N0"
    kernel = make(
        "attention",
        f"{{[h, i, j, d0, d1, d2, d3]: 0 <= h < nh and 0 <= i, j < n and 0 <= d0, d1, d2, d3 < {_DEPTH}}}",
        _ATTENTION_BODY,
        [
            loaded("q", F32, f"nh, n, {_DEPTH}", dim_tags=order),
            loaded("k, v", F32, f"nh, n, {_DEPTH}"),
            stored("out", F32, f"nh, n, {_DEPTH}", dim_tags=order),
            *scratch("sums", F32, _DEPTH),
            *scratch("score, total", F32),
        ],
        "n, nh",
        assume=fits(32, "n") if tile or times > 1 else "",
    )
    kernel = on_grid(kernel, i=items)
    kernel = lp.tag_inames(kernel, {"h": "g.1"})
    if flat:
        kernel = lp.tag_inames(kernel, dict.fromkeys(("d0", "d1", "d2", "d3"), "unr"))
    kernel = unrolled(kernel, "j", times)
    if tile:
        kernel = lp.assume(kernel, fits(items, "n"))
        kernel = lp.split_iname(kernel, "j", tile)
        kernel = fetched_locally(kernel, ("k", ["j_inner", "d1"]), ("v", ["j_inner", "d2"]))
    return kernel


def _attention_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    weights = np.exp(0.25 * np.einsum("hid,hjd->hij", q, k) - 4)
    return {"out": np.einsum("hij,hjd->hid", weights, v) / weights.sum(axis=2)[:, :, None]}


_ATTENTION = Family(
    name="attention_heads",
    source="scaled dot-product attention (Vaswani et al., 2017), one query per work-item, heads of depth 16",
    variants={
        **sized_as(_attention, 256, 64, 32, 8),
        "64-loops": partial(_attention, 64, flat=False),
        "64-across": partial(_attention, 64, across=True),
        "16-across-loops": partial(_attention, 16, across=True, flat=False),
        "64-unroll2": partial(_attention, 64, times=2),
        "64-tile16": partial(_attention, 64, tile=16),
    },
    sizes=({"n": 128, "nh": 2}, {"n": 192, "nh": 4}, {"n": 256, "nh": 12}),
    tiny={"n": 64, "nh": 2},
    reference=_attention_reference,
    tolerance=1e-3,
)

_NORM_BODY = """
    for r
        <float32> mean = sum(a, x[r, a]) / width
        <float32> variance = sum(b, (x[r, b] - mean)*(x[r, b] - mean)) / width
        <float32> scale = rsqrt(variance + 0.00001)
        for c
            y[r, c] = (x[r, c] - mean)*scale*gain[c] + bias[c]
        end
    end
"""
_NORM_MOMENTS = """
    for r
        total = 0
        squares = 0
        for a
            <float32> value = x[r, a]
            total = total + value
            squares = squares + value*value
        end
        <float32> mean = total / width
        <float32> scale = rsqrt(squares / width - mean*mean + 0.00001)
        for c
            y[r, c] = (x[r, c] - mean)*scale*gain[c] + bias[c]
        end
    end
"""


def _norm(items: int, *, across: bool = False, moments: bool = False, times: int = 1) -> lp.TranslationUnit:
    order = "N0,N1" if across else "N1,N0"
    sums = scratch("total, squares", F32) if moments else []
    kernel = make(
        "layer_norm",
        ["{[r]: 0 <= r < n}", "{[a]: 0 <= a < width}", "{[b]: 0 <= b < width}", "{[c]: 0 <= c < width}"],
        _NORM_MOMENTS if moments else _NORM_BODY,
        [
            loaded("x", F32, "n, width", dim_tags=order),
            loaded("gain, bias", F32, "width"),
            stored("y", F32, "n, width", dim_tags=order),
            *sums,
        ],
        "n, width",
        assume=fits(times, "width"),
    )
    if moments:
        kernel = lp.remove_unused_inames(kernel)
    loops = "ac" if moments else "abc"
    kernel = on_grid(kernel, r=items)
    for iname in loops if times > 1 else "":
        kernel = unrolled(kernel, iname, times)
    return kernel


_NORM_GROUP = """
    for r, item
        total = 0
        squares = 0
        for a
            <float32> value = x[r, ITEMS*a + item]
            total = total + value
            squares = squares + value*value
        end
        totals[item] = total
        all_squares[item] = squares
        <float32> mean = sum(b, totals[b]) / width
        <float32> scale = rsqrt(sum(d, all_squares[d]) / width - mean*mean + 0.00001)
        for c
            y[r, ITEMS*c + item] = (x[r, ITEMS*c + item] - mean)*scale*gain[ITEMS*c + item] + bias[ITEMS*c + item]
        end
    end
"""


def _norm_group(items: int) -> lp.TranslationUnit:
    kernel = make(
        "layer_norm",
        f"{{[r, a, c, item, b, d]: 0 <= r < n and 0 <= {items}*a, {items}*c < width and 0 <= item, b, d < {items}}}",
        _NORM_GROUP.replace("ITEMS", str(items)),
        [
            loaded("x", F32, "n, width"),
            loaded("gain, bias", F32, "width"),
            stored("y", F32, "n, width"),
            *scratch("total, squares", F32),
            *scratch("totals, all_squares", F32, items, local=True),
        ],
        "n, width",
        assume=fits(items, "width"),
    )
    return lp.tag_inames(kernel, {"r": "g.0", "item": "l.0"})


def _norm_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    x = arrays["x"].astype(np.float64)
    centred = x - x.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return {"y": centred * scale * arrays["gain"] + arrays["bias"]}


_NORM = Family(
    name="layer_norm",
    source="layer normalisation (Ba, Kiros and Hinton, 2016)",
    variants={
        **sized_as(_norm, 64, 8),
        "64-unroll8": partial(_norm, 64, times=8),
        "64-moments": partial(_norm, 64, moments=True),
        "across-256": partial(_norm, 256, across=True),
        "across-64": partial(_norm, 64, across=True),
        "across-16-moments": partial(_norm, 16, across=True, moments=True),
        **sized_as(_norm_group, 32, 128, prefix="group-"),
    },
    sizes=({"n": 500, "width": 128}, {"n": 2000, "width": 256}, {"n": 4000, "width": 640}),
    tiny={"n": 70, "width": 128},
    reference=_norm_reference,
    tolerance=2e-3,
)

_BEAM_FUSED = """
    for b, t
        re = 0
        im = 0
        for a
            re = re + w[b, a, 0]*x[a, t, 0] - w[b, a, 1]*x[a, t, 1]
            im = im + w[b, a, 0]*x[a, t, 1] + w[b, a, 1]*x[a, t, 0]
        end
        y[b, t, 0] = re
        y[b, t, 1] = im
    end
"""
_BEAM_APART = """
    y[b, t, 0] = sum(a, w[b, a, 0]*x[a, t, 0] - w[b, a, 1]*x[a, t, 1])
    y[b, t, 1] = sum(a2, w[b, a2, 0]*x[a2, t, 1] + w[b, a2, 1]*x[a2, t, 0])
"""


def _beam(
    lengths: Lengths, *, planar: bool = False, apart: bool = False, times: int = 1, beams: int = 1, local: bool = False
) -> lp.TranslationUnit:
    order = "N1,N0,N2" if planar else "N2,N1,N0"
    sums = [] if apart else scratch("re, im", F32)
    loops = "0 <= a < na and 0 <= a2 < na" if apart else "0 <= a < na"
    kernel = make(
        "beamformer",
        f"{{[b, t, a{', a2' if apart else ''}]: 0 <= b < nb and 0 <= t < nt and {loops}}}",
        _BEAM_APART if apart else _BEAM_FUSED,
        [
            loaded("w", F32, "nb, na, 2"),
            loaded("x", F32, "na, nt, 2", dim_tags=order),
            stored("y", F32, "nb, nt, 2", dim_tags=order),
            *sums,
        ],
        "na, nb, nt",
        assume=f"{fits(16, 'na')} and {fits(8, 'nb')}",
    )
    if beams > 1:
        kernel = lp.split_iname(kernel, "b", beams, outer_iname="rest", inner_iname="own", inner_tag="ilp.unr")
    kernel = on_grid(kernel, **lengths)
    if local:
        kernel = lp.split_iname(kernel, "a", 16)
        kernel = lp.assume(kernel, fits(lengths["t"], "nt"))
        kernel = fetched_locally(kernel, ("w", ["b_inner", "a_inner"]), ("x", ["a_inner", "t_inner"]))
    return unrolled(kernel, "a", times)


def _beam_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    w, x = (arrays[name][..., 0] + 1j * arrays[name][..., 1].astype(np.float64) for name in "wx")
    y = w @ x
    return {"y": np.stack([y.real, y.imag], axis=-1)}


_BEAM = Family(
    name="complex_beamformer",
    source="beamforming in radio astronomy (Sclocco et al., 2012): complex weights times samples",
    variants={
        "pairs-64x4": partial(_beam, {"t": 64, "b": 4}),
        "pairs-16x16": partial(_beam, {"t": 16, "b": 16}),
        "pairs-8x8": partial(_beam, {"t": 8, "b": 8}),
        "pairs-64x4-apart": partial(_beam, {"t": 64, "b": 4}, apart=True),
        "planar-64x4": partial(_beam, {"t": 64, "b": 4}, planar=True),
        "planar-8x8": partial(_beam, {"t": 8, "b": 8}, planar=True),
        "planar-64x4-apart": partial(_beam, {"t": 64, "b": 4}, planar=True, apart=True),
        "planar-64x4-unroll4": partial(_beam, {"t": 64, "b": 4}, planar=True, times=4),
        "planar-32x2-4beams": partial(_beam, {"t": 32, "rest": 2}, planar=True, beams=4),
        "pairs-32x2-4beams": partial(_beam, {"t": 32, "rest": 2}, beams=4),
        "pairs-16x8-local": partial(_beam, {"t": 16, "b": 8}, local=True),
    },
    sizes=({"na": 32, "nb": 16, "nt": 512}, {"na": 48, "nb": 32, "nt": 2048}, {"na": 64, "nb": 32, "nt": 6000}),
    tiny={"na": 16, "nb": 8, "nt": 80},
    reference=_beam_reference,
    tolerance=1e-3,
)

FAMILIES = (_ATTENTION, _NORM, _BEAM)
