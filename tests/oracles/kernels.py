"""Kernels whose counts are known, for the tests of the oracles and of the features."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np


def build(domains: str | list[str], text: str, dtype: Any = np.float32, **ranks: int) -> lp.TranslationUnit:
    """Make a kernel of one size parameter ``n`` with arrays of the given ranks, each extent ``2*n + 4``."""
    arrays = [lp.GlobalArg(name, dtype, shape=("2*n + 4",) * rank) for name, rank in ranks.items()]
    return lp.make_kernel(
        domains, text, [*arrays, lp.ValueArg("n", np.int32)], assumptions="n >= 1", lang_version=(2018, 2)
    )


def matmul(*, prefetch: bool, dtype: Any = np.float32) -> lp.TranslationUnit:
    """Square matrix product in 16x16 tiles (paper Section 2), n a multiple of 16."""
    arrays = [lp.GlobalArg(name, dtype, shape=("n", "n")) for name in "abc"]
    kernel = lp.make_kernel(
        "{[i, j, k]: 0 <= i, j, k < n}",
        "c[i, j] = sum(k, a$aLD[i, k]*b$bLD[k, j])",
        [*arrays, lp.ValueArg("n", np.int32)],
        assumptions="n >= 16 and n mod 16 = 0",
        lang_version=(2018, 2),
    )
    kernel = lp.split_iname(kernel, "i", 16, outer_tag="g.1", inner_tag="l.1")
    kernel = lp.split_iname(kernel, "j", 16, outer_tag="g.0", inner_tag="l.0")
    if prefetch:
        kernel = lp.split_iname(kernel, "k", 16)
        outer = "i_outer,k_outer,j_outer"
        for name, sweep in (("a", ["i_inner", "k_inner"]), ("b", ["k_inner", "j_inner"])):
            kernel = lp.add_prefetch(kernel, name, sweep, default_tag="l.auto", fetch_outer_inames=outer)
    return kernel


def triangle() -> lp.TranslationUnit:
    """Triangular product: n*(n+1)/2 multiply-adds, one work-item per row."""
    kernel = build("{[i, j]: 0 <= j <= i < n}", "y[i] = sum(j, a[i, j]*x[j])", y=1, a=2, x=1)
    return lp.split_iname(kernel, "i", 8, outer_tag="g.0", inner_tag="l.0")


def guarded() -> lp.TranslationUnit:
    """Two guarded statements and a conditional expression, one work-item per element."""
    text = """
    if i % 2 == 0
        x[i] = a[i]*b[i] + b[i+1] {id=first}
    end
    if i > 2 and i < n - 3
        y[i] = a[i] - b[i] {id=second}
    end
    z[i] = (a[i] if i < 3 else b[i]/a[i]) {id=third}
    """
    kernel = build("{[i]: 0 <= i < n}", text, x=1, y=1, z=1, a=1, b=1)
    return lp.split_iname(kernel, "i", 4, outer_tag="g.0", inner_tag="l.0")
