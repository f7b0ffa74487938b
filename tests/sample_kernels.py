"""loopy kernels that several tests look at."""

import loopy as lp
import numpy as np


def make(domain, body, dtypes, name="knl", **kwargs):
    kernel = lp.make_kernel(domain, body, name=name, target=lp.PyOpenCLTarget(), lang_version=(2018, 2), **kwargs)
    return lp.add_dtypes(kernel, dtypes)


def matmul(*, prefetch, fit=True, tile=16):
    """The paper's matrix multiplication (Section 2.1), written as printed there."""
    kernel = make(
        "{[i,j,k]: 0<=i,j,k<n}",
        "c[i,j] = sum(k, a$aLD[i,k]*b$bLD[k,j])",
        {"a": np.float32, "b": np.float32},
        name="matmul",
    )
    kernel = lp.split_iname(kernel, "i", tile)
    kernel = lp.split_iname(kernel, "j", tile)
    if prefetch:
        kernel = lp.split_iname(kernel, "k", tile)
    kernel = lp.assume(kernel, f"n >= 1 and n % {tile} = 0" if fit else "n >= 1")
    kernel = lp.tag_inames(kernel, "i_outer:g.1, i_inner:l.1, j_outer:g.0, j_inner:l.0")
    if prefetch:
        kernel = lp.add_prefetch(kernel, "a", ["i_inner", "k_inner"], default_tag="l.auto")
        kernel = lp.add_prefetch(kernel, "b", ["k_inner", "j_inner"], default_tag="l.auto")
    return kernel


def pointwise(expression, dtypes=None):
    """``out[i] = expression`` over 0 <= i < n, work-groups of 32."""
    used = {
        name: dtype
        for name, dtype in (dtypes or {"x": np.float32, "y": np.float32}).items()
        if f"{name}[" in expression
    }
    kernel = make("{[i]: 0<=i<n}", f"out[i] = {expression}", used)
    kernel = lp.assume(kernel, "n >= 32 and n % 32 = 0")
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")
