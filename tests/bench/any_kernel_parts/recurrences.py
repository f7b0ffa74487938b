"""Recurrences along one axis, many of them side by side."""

from __future__ import annotations

from functools import partial

import loopy as lp
import numpy as np

from .families import Arrays, Family, Sizes, sized_as
from .kernels import F64, I32, fits, loaded, make, on_grid, scratch, stored, updated

_THOMAS_BODY = """
    for s
        FIRST
        c[0, s] = c[0, s]*inverse
        d[0, s] = d[0, s]*inverse
        for k
            PIVOT
            c[k, s] = c[k, s]*inverse
            d[k, s] = (d[k, s] - a[k, s]*d[k - 1, s])*inverse
        end
        for l
            d[m - 2 - l, s] = d[m - 2 - l, s] - c[m - 2 - l, s]*d[m - 1 - l, s]
        end
    end
"""
_THOMAS_KEPT = """
    for s
        <float64> start = 1 / (b[0, s] + 4)
        upper = c[0, s]*start
        value = d[0, s]*start
        c[0, s] = upper
        d[0, s] = value
        for k
            <float64> inverse = 1 / (b[k, s] + 4 - a[k, s]*upper)
            value = (d[k, s] - a[k, s]*value)*inverse
            upper = c[k, s]*inverse
            c[k, s] = upper
            d[k, s] = value
        end
        for l
            value = d[m - 2 - l, s] - c[m - 2 - l, s]*value
            d[m - 2 - l, s] = value
        end
    end
"""


def _thomas(items: int, *, kept: bool = True, rows: bool = False, systems: int = 1) -> lp.TranslationUnit:
    order = "N0,N1" if rows else "N1,N0"
    loose = _THOMAS_BODY.replace("FIRST", "<float64> start = 1 / (b[0, s] + 4)").replace(
        "PIVOT", "<float64> inverse = 1 / (b[k, s] + 4 - a[k, s]*c[k - 1, s])"
    )
    loose = loose.replace("[0, s]*inverse", "[0, s]*start")
    kernel = make(
        "thomas",
        ["{[s]: 0 <= s < n}", "{[k]: 1 <= k < m}", "{[l]: 0 <= l < m - 1}"],
        _THOMAS_KEPT if kept else loose,
        [
            loaded("a, b", F64, "m, n", dim_tags=order),
            updated("c, d", F64, "m, n", dim_tags=order),
            *(scratch("upper, value", F64) if kept else []),
        ],
        "m, n",
        assume=f"m >= 2 and {fits(systems, 'n')}",
    )
    if systems > 1:
        kernel = lp.split_iname(kernel, "s", systems, outer_iname="rest", inner_iname="own")
        return on_grid(kernel, rest=items)
    return on_grid(kernel, s=items)


def _thomas_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    a, b, c, d = arrays["a"], arrays["b"] + 4, arrays["c"].copy(), arrays["d"].copy()
    c[0], d[0] = c[0] / b[0], d[0] / b[0]
    for k in range(1, sizes["m"]):
        pivot = b[k] - a[k] * c[k - 1]
        c[k], d[k] = c[k] / pivot, (d[k] - a[k] * d[k - 1]) / pivot
    for k in reversed(range(sizes["m"] - 1)):
        d[k] -= c[k] * d[k + 1]
    return {"c": c, "d": d}


_THOMAS = Family(
    name="tridiagonal_batch",
    source="Thomas algorithm for many tridiagonal systems, as in cuSPARSE gtsv2StridedBatch",
    variants={
        **sized_as(_thomas, 256, 64, 16, 8, prefix="side-by-side-"),
        "side-by-side-64-memory": partial(_thomas, 64, kept=False),
        "rows-64": partial(_thomas, 64, rows=True),
        "rows-8": partial(_thomas, 8, rows=True),
        "rows-64-memory": partial(_thomas, 64, kept=False, rows=True),
        "rows-8-loop4": partial(_thomas, 8, rows=True, systems=4),
    },
    sizes=({"m": 32, "n": 600}, {"m": 64, "n": 2000}, {"m": 100, "n": 6000}),
    tiny={"m": 12, "n": 100},
    reference=_thomas_reference,
)

_SCAN_STEP = """
            total = (0 if flag[r, {0}] > 8 else total) + x[r, {0}]
            y[r, {0}] = total
"""


def _scan(items: int, *, across: bool = False, times: int = 1, rows: int = 1) -> lp.TranslationUnit:
    order = "N0,N1" if across else "N1,N0"
    # Loopy would unroll the sums and the stores one after the other.
    steps = "".join(_SCAN_STEP.format(f"{times}*k + {step}") for step in range(times))
    kernel = make(
        "segmented_scan",
        f"{{[r, k]: 0 <= r < n and 0 <= k and {times}*k < m}}",
        f"for r\n total = 0\n for k\n {steps} end\n end",
        [
            loaded("x, flag", I32, "n, m", dim_tags=order),
            stored("y", I32, "n, m", dim_tags=order),
            *scratch("total", I32),
        ],
        "m, n",
        assume=f"{fits(8, 'm')} and {fits(rows, 'n')}",
    )
    if rows > 1:
        kernel = lp.split_iname(kernel, "r", rows, outer_iname="rest", inner_iname="own", inner_tag="ilp.unr")
    return on_grid(kernel, **{"rest" if rows > 1 else "r": items})


def _scan_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    x, flag, y = arrays["x"], arrays["flag"], np.zeros_like(arrays["x"])
    total = np.zeros(sizes["n"], np.int32)
    for k in range(sizes["m"]):
        total = np.where(flag[:, k] > 8, 0, total) + x[:, k]
        y[:, k] = total
    return {"y": y}


_SCAN = Family(
    name="segmented_scan",
    source="segmented sums of integers (Blelloch, 1990), rows scanned side by side",
    variants={
        **sized_as(_scan, 256, 64, 8, prefix="rows-"),
        "rows-64-unroll8": partial(_scan, 64, times=8),
        "rows-32-2rows": partial(_scan, 32, rows=2),
        "across-256": partial(_scan, 256, across=True),
        "across-64": partial(_scan, 64, across=True),
        "across-8": partial(_scan, 8, across=True),
        "across-64-unroll8": partial(_scan, 64, across=True, times=8),
    },
    sizes=({"m": 64, "n": 800}, {"m": 128, "n": 3000}, {"m": 320, "n": 7000}),
    tiny={"m": 16, "n": 330},
    reference=_scan_reference,
)

_SOLVE_BODY = """
    for c
        for i
            x[i, c] = (x[i, c] - 0.0625*sum(k, lower[i, k]*x[k, c])) / lower[i, i]
        end
    end
"""
_SOLVE_RIGHT = """
    for c
        for i
            <float64> value = x[i, c] / lower[i, i]
            x[i, c] = value
            for k
                x[k, c] = x[k, c] - 0.0625*lower[k, i]*value
            end
        end
    end
"""


def _solve(items: int, *, rows: bool = False, right: bool = False, columns: int = 1) -> lp.TranslationUnit:
    order = "N0,N1" if rows else "N1,N0"
    inner = "{[k]: i + 1 <= k < n}" if right else "{[k]: 0 <= k < i}"
    kernel = make(
        "triangular_solve",
        ["{[c]: 0 <= c < m}", "{[i]: 0 <= i < n}", f"[n, i] -> {inner}"],
        _SOLVE_RIGHT if right else _SOLVE_BODY,
        [loaded("lower", F64, "n, n"), updated("x", F64, "n, m", dim_tags=order)],
        "m, n",
        assume=fits(columns, "m"),
    )
    if columns > 1:
        kernel = lp.split_iname(kernel, "c", columns, outer_iname="rest", inner_iname="own", inner_tag="ilp.unr")
    return on_grid(kernel, **{"rest" if columns > 1 else "c": items})


def _solve_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    lower, x = arrays["lower"], arrays["x"].copy()
    for i in range(sizes["n"]):
        x[i] = (x[i] - 0.0625 * lower[i, :i] @ x[:i]) / lower[i, i]
    return {"x": x}


_SOLVE = Family(
    name="triangular_solve",
    source="BLAS trsm (Dongarra et al., 1990): forward substitution for many right-hand sides",
    variants={
        **sized_as(_solve, 256, 64, 16, 8),
        "64-right-looking": partial(_solve, 64, right=True),
        "32-2columns": partial(_solve, 32, columns=2),
        "rows-64": partial(_solve, 64, rows=True),
        "rows-8": partial(_solve, 8, rows=True),
        "rows-64-right-looking": partial(_solve, 64, rows=True, right=True),
    },
    sizes=({"m": 300, "n": 40}, {"m": 1000, "n": 80}, {"m": 3000, "n": 128}),
    tiny={"m": 90, "n": 17},
    reference=_solve_reference,
)

FAMILIES = (_THOMAS, _SCAN, _SOLVE)
