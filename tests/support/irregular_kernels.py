"""Kernels whose loops, guards and subscripts are irregular, small enough to follow access by access."""

from functools import partial

import numpy as np

from perflex.features import annotate

from .ecm_kernels import loopy_kernel, on_grid

A, AB = {"a": "(n,n)"}, {"a": "(n,n)", "b": "(n,n)"}
ABC = {**AB, "c": "(n,n)"}
XY = {"x": "(n)", "y": "(n)"}
LONG = {"x": "(2*n)", "y": "(n)"}


def _made(domain, code, arrays, grid, *, data="", **options):
    """Make a kernel: of loops in an order such as "i,j", or on a grid of "tiles" or "lines" of work-items.

    Of an array that `data` names, any element may be accessed.
    """
    dtype = options.pop("dtype", np.float32)
    if grid not in {"tiles", "lines"}:
        return loopy_kernel(domain, code, arrays, grid, dtype=dtype)
    kernel = loopy_kernel(domain, code, arrays, dtype=dtype, **options)
    kernel = on_grid(kernel, **({"j": (0, 16), "i": (1, 4)} if grid == "tiles" else {"i": (0, 64)}))
    return annotate(kernel, accesses={data: "anywhere"}) if data else kernel


def _table(rows):
    return {name: partial(_made, *row[:4], **(row[4] if len(row) > 4 else {})) for name, row in rows.items()}


_ROWS = "y[i] = sum(j, a[i,j]*x[j])"
_SYRK = "c[i,j] = c[i,j] + sum(k, a[i,k]*a[j,k])"
_STAGE = "x[(i//8)*16 + i%8]"
# Loops whose ranges depend on others: triangles, trapezoids, bands.
TRIANGULAR = _table({
    "trmv": ("{[i,j]: 0<=i<n and 0<=j<=i}", _ROWS, A | XY, "lines"),
    "trapezoid": ("{[i,j]: 0<=i<n and 0<=j<m+i}", "y[i] = sum(j, a[i,j])", {"a": "(n,n+m)", "y": "(n)"}, "lines"),
    "band": ("{[i,j]: 0<=i<n and i-8<=j<=i+8 and 0<=j<n}", _ROWS, A | XY, "lines"),
    "trmm": ("{[i,j,k]: 0<=i,j<n and i<k<n}", "b[i,j] = c[i,j] + sum(k, a[k,i]*c[k,j])", ABC, "tiles"),
    "syrk": ("{[i,j,k]: 0<=i<n and 0<=j<=i and 0<=k<n}", _SYRK, {**A, "c": "(n,n)"}, "tiles"),
    "syrk guarded": ("{[i,j,k]: 0<=i,j,k<n}", f"if j <= i\n    {_SYRK}\nend", {**A, "c": "(n,n)"}, "tiles"),
    "lu": ("{[k,i,j]: 0<=k<n and k<i<n and k<j<n}", "a[i,j] = a[i,j] - a[i,k]*a[k,j] {id=u, dep=}", A, "k,i,j"),
    "hexagon": ("{[i,j]: 0<=i,j<n and n<=2*i+2*j and i+j<=n}", "b[i,j] = a[i,j]", AB, "i,j"),
    "four loops": ("{[i,j,k,p,q]: 0<=i<n and 0<=j<=i and 0<=k<=j and 0<=p<=k and 0<=q<=p}", "a[i,j,k,p,q] = 1",
        {"a": "(n,n,n,n,n)"}, "i,j,k,p,q"),
    "upper rows": ("{[i,j]: 0<=i<n and i<=j<n}", "y[i] = y[i] + a[i,j]*x[j] {id=u, dep=}", A | XY, "i,j"),
    "half a transposition": ("{[i,j]: 0<=i<n and 0<=j<=i}", "b[i,j] = a[j,i]", AB, "i,j"),
    "stencil": ("{[j,i]: 1<=j<n-1 and 1<=i<=j}", "b[j,i] = a[j,i-1] + a[j,i+1] + a[j-1,i] + a[j+1,i]", AB, "j,i"),
})  # fmt: skip
# Guards, divisions, diagonals, accesses that data decide, and few groups or loops.
IRREGULAR = _table({
    "gathered": ("{[i,j]: 0<=i<n and 0<=j<m}", "y[i] = sum(j, v[i,j]*x[col[i,j]])",
        {"v": "(n,m)", **XY, "col": "(n,m)"}, "lines", {"data": "x", "indices": "col"}),
    "scattered": ("{[i]: 0<=i<n}", "h[idx[i]] = x[i]", {"h": "(n)", "x": "(n)", "idx": "(n)"}, "lines",
        {"data": "h", "indices": "idx", "dtype": np.float64}),
    "skewed": ("{[i,j]: 0<=i,j<n}", "b[i,i+j] = a[i+j,i]", {"a": "(2*n,n)", "b": "(n,2*n)"}, "tiles"),
    "diagonal": ("{[i]: 0<=i<n}", "y[i] = a[i,i] + a[i,n-1-i]", {**A, "y": "(n)"}, "lines"),
    "butterfly": ("{[i]: 0<=i<n}", f"y[i] = {_STAGE} + x[(i//8)*16 + i%8 + 8]", LONG, "lines"),
    "two divisors": ("{[i]: 0<=i<n}", f"y[i] = {_STAGE} + x[(i//4)*8 + i%4]", LONG, "lines"),
    "checkerboard": ("{[i,j]: 0<=i,j<n}", "if (i+j)%2 == 0\n    a[i,j] = 2*a[i,j] {id=u, dep=}\nend", A, "tiles"),
    "every third row": ("{[i,j]: 0<=i,j<n and i mod 3 = 0}", "b[i,j] = a[i,j]", AB, "i,j"),
    "every 32nd": ("{[i]: 0<=i<n and i mod 32 = 0}", "y[i] = x[i]", XY, "", {"dtype": np.float64}),
    "remainder": ("{[i]: 0<=i<n}", "y[i] = x[i] + 1", XY, "lines"),
    "no loads": ("{[i]: 0<=i<n}", "y[i] = 3", {"y": "(n)"}, "lines"),
    "product in lanes": ("{[i,j,k]: 0<=i,j,k<n}", "c[i,j] = sum(k, a[i,k]*b[k,j])", ABC, "tiles"),
    "two nests": ("{[i,j,k,l]: 0<=i<n and 0<=j<n and 0<=k<j and 0<=l<n}",
        "<> s = sum(l, a[i,l]*x[l])\ny[i] = s + sum(j, sum(k, a[i,k]*b[j,k]))", AB | XY, "lines"),
})  # fmt: skip
