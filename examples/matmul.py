"""Two variants of matrix multiplication in loopy, as in the paper's Section 2.1.

perflex calibrate matmul_sq --out matmul.yaml
perflex rank matmul.yaml examples/matmul.py:prefetching examples/matmul.py:naive n=1056
"""

from __future__ import annotations

import loopy as lp
import numpy as np

from uipick import tag_accesses


def naive() -> lp.TranslationUnit:
    """Every operand comes from global memory; a and b carry the access tags that the model names."""
    kernel = lp.make_kernel(
        "{[i,j,k]: 0<=i,j,k<n}",
        "c[i,j] = sum(k, a$aLD[i,k]*b$bLD[k,j])",
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
    )
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    kernel = lp.assume(kernel, "n >= 1 and n % 16 = 0")
    kernel = lp.split_iname(kernel, "i", 16, outer_tag="g.1", inner_tag="l.1")
    return lp.split_iname(kernel, "j", 16, outer_tag="g.0", inner_tag="l.0")


def prefetching() -> lp.TranslationUnit:
    """Tiles of both operands are fetched into local memory first."""
    kernel = lp.split_iname(naive(), "k", 16)
    kernel = lp.add_prefetch(kernel, "a", ["i_inner", "k_inner"], default_tag="l.auto")
    kernel = lp.add_prefetch(kernel, "b", ["k_inner", "j_inner"], default_tag="l.auto")
    kernel = lp.add_inames_for_unused_hw_axes(kernel)
    # Prefetching drops access tags.
    return tag_accesses(kernel, loads={"a": "aLD", "b": "bLD"})
