"""A 7-point Jacobi sweep in plain loops, for layer conditions of a CPU's caches.

perflex layers examples/jacobi.py:seven_point --machine Gold-6248 M=10000 N=600
"""

from __future__ import annotations

import loopy as lp
import numpy as np


def seven_point() -> lp.TranslationUnit:
    """Arrays of M x N x N doubles; six neighbours are read, the point itself is not."""
    kernel = lp.make_kernel(
        "{[k, j, i]: 1 <= k < M - 1 and 1 <= j < N - 1 and 1 <= i < N - 1}",
        "b[k, j, i] = s*(a[k-1, j, i] + a[k+1, j, i] + a[k, j-1, i] + a[k, j+1, i] + a[k, j, i-1] + a[k, j, i+1])",
        [
            lp.GlobalArg("a, b", np.float64, shape="(M, N, N)"),
            lp.ValueArg("s", np.float64),
            lp.ValueArg("M, N", np.int32),
        ],
        name="seven_point",
        assumptions="M >= 3 and N >= 3",
        lang_version=(2018, 2),
    )
    return lp.prioritize_loops(kernel, "k,j,i")
