"""Kernels whose loops, guards and subscripts are irregular, small enough to follow access by access."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.features import annotate

from .ecm_kernels import loopy_kernel, on_grid

if TYPE_CHECKING:
    import loopy as lp

SQUARE = {"a": "(n,n)", "b": "(n,n)"}
VECTORS = {"a": "(n,n)", "x": "(n)", "y": "(n)"}


def _grid2(domain: str, code: str, arrays: dict[str, str]) -> lp.TranslationUnit:
    return on_grid(loopy_kernel(domain, code, arrays, dtype=np.float32), j=(0, 16), i=(1, 4))


def _line(domain: str, code: str, arrays: dict[str, str], items: int = 64) -> lp.TranslationUnit:
    return on_grid(loopy_kernel(domain, code, arrays, dtype=np.float32), i=(0, items))


def triangular() -> dict[str, lp.TranslationUnit]:
    """Loops whose ranges depend on others: triangles, trapezoids, bands."""
    rows = "y[i] = sum(j, a[i,j]*x[j])"
    product = "c[i,j] = c[i,j] + sum(k, a[i,k]*a[j,k])"
    return {
        "trmv": _line("{[i,j]: 0<=i<n and 0<=j<=i}", rows, VECTORS),
        "trapezoid": _line("{[i,j]: 0<=i<n and 0<=j<m+i}", "y[i] = sum(j, a[i,j])", {"a": "(n,n+m)", "y": "(n)"}),
        "band": _line("{[i,j]: 0<=i<n and i-8<=j<=i+8 and 0<=j<n}", rows, VECTORS),
        "trmm": _grid2(
            "{[i,j,k]: 0<=i,j<n and i<k<n}", "b[i,j] = c[i,j] + sum(k, a[k,i]*c[k,j])", {**SQUARE, "c": "(n,n)"}
        ),
        "syrk": _grid2("{[i,j,k]: 0<=i<n and 0<=j<=i and 0<=k<n}", product, {"a": "(n,n)", "c": "(n,n)"}),
        "syrk guarded": _grid2(
            "{[i,j,k]: 0<=i,j,k<n}", f"if j <= i\n    {product}\nend", {"a": "(n,n)", "c": "(n,n)"}
        ),
        "lu": loopy_kernel(
            "{[k,i,j]: 0<=k<n and k<i<n and k<j<n}", "a[i,j] = a[i,j] - a[i,k]*a[k,j] {id=u, dep=}",
            {"a": "(n,n)"}, "k,i,j", dtype=np.float32,
        ),
        "hexagon": loopy_kernel(
            "{[i,j]: 0<=i,j<n and n<=2*i+2*j and i+j<=n}", "b[i,j] = a[i,j]", SQUARE, "i,j", dtype=np.float32
        ),
        "four loops": loopy_kernel(
            "{[i,j,k,p,q]: 0<=i<n and 0<=j<=i and 0<=k<=j and 0<=p<=k and 0<=q<=p}", "a[i,j,k,p,q] = 1",
            {"a": "(n,n,n,n,n)"}, "i,j,k,p,q", dtype=np.float32,
        ),
    }  # fmt: skip


def irregular() -> dict[str, lp.TranslationUnit]:
    """Kernels with guards, divisions, diagonals, accesses that data decide, and few groups or loops."""
    gathered = loopy_kernel(
        "{[i,j]: 0<=i<n and 0<=j<m}", "y[i] = sum(j, v[i,j]*x[col[i,j]])",
        {"v": "(n,m)", "x": "(n)", "y": "(n)", "col": "(n,m)"}, dtype=np.float32,
        indices="col",
    )  # fmt: skip
    scattered = loopy_kernel("{[i]: 0<=i<n}", "h[idx[i]] = x[i]", {"h": "(n)", "x": "(n)", "idx": "(n)"}, indices="idx")
    stage = "x[(i//8)*16 + i%8]"
    return {
        "gathered": annotate(on_grid(gathered, i=(0, 64)), accesses={"x": "anywhere"}),
        "scattered": annotate(on_grid(scattered, i=(0, 64)), accesses={"h": "anywhere"}),
        "skewed": _grid2("{[i,j]: 0<=i,j<n}", "b[i,i+j] = a[i+j,i]", {"a": "(2*n,n)", "b": "(n,2*n)"}),
        "diagonal": _line("{[i]: 0<=i<n}", "y[i] = a[i,i] + a[i,n-1-i]", {"a": "(n,n)", "y": "(n)"}),
        "butterfly": _line("{[i]: 0<=i<n}", f"y[i] = {stage} + x[(i//8)*16 + i%8 + 8]", {"x": "(2*n)", "y": "(n)"}),
        "two divisors": _line("{[i]: 0<=i<n}", f"y[i] = {stage} + x[(i//4)*8 + i%4]", {"x": "(2*n)", "y": "(n)"}),
        "checkerboard": _grid2(
            "{[i,j]: 0<=i,j<n}", "if (i+j)%2 == 0\n    a[i,j] = 2*a[i,j] {id=u, dep=}\nend", {"a": "(n,n)"}
        ),
        "every third row": loopy_kernel(
            "{[i,j]: 0<=i,j<n and i mod 3 = 0}", "b[i,j] = a[i,j]", SQUARE, "i,j", dtype=np.float32
        ),
        "every 32nd": loopy_kernel("{[i]: 0<=i<n and i mod 32 = 0}", "y[i] = x[i]", {"x": "(n)", "y": "(n)"}),
        "remainder": _line("{[i]: 0<=i<n}", "y[i] = x[i] + 1", {"x": "(n)", "y": "(n)"}, 48),
        "no loads": _line("{[i]: 0<=i<n}", "y[i] = 3", {"y": "(n)"}),
        "product in lanes": _grid2("{[i,j,k]: 0<=i,j,k<n}", "c[i,j] = sum(k, a[i,k]*b[k,j])", {**SQUARE, "c": "(n,n)"}),
        "two nests": _line(
            "{[i,j,k,l]: 0<=i<n and 0<=j<n and 0<=k<j and 0<=l<n}",
            "<> s = sum(l, a[i,l]*x[l])\ny[i] = s + sum(j, sum(k, a[i,k]*b[j,k]))",
            {**SQUARE, "x": "(n)", "y": "(n)"},
        ),
    }
