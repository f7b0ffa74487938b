"""Data volumes of triangles: what is too large to look at says which sizes and which kernel are not."""

from __future__ import annotations

import re
from typing import Any

import loopy as lp
import numpy as np
import pytest

from perflex import estimate_volumes
from perflex.errors import UnsupportedKernelError


def matrix_times_vector(columns: str) -> Any:
    args = [
        lp.GlobalArg("L", np.float64, shape="n, n"),
        lp.GlobalArg("x, y", np.float64, shape="n"),
        lp.ValueArg("n", np.int32),
    ]
    kernel = lp.make_kernel(
        f"{{[i, j]: 0 <= i < n and {columns}}}", "y[i] = sum(j, L[i, j]*x[j])", args, lang_version=(2018, 2)
    )
    return lp.split_iname(kernel, "i", 128, outer_tag="g.0", inner_tag="l.0")


@pytest.mark.parametrize(("columns", "n"), [("0 <= j <= i", 2048), ("i <= j < n", 2048), ("0 <= j <= i", 16384)])
def test_a_triangle_that_is_too_large_says_what_is_not(columns: str, n: int) -> None:
    kernel = matrix_times_vector(columns)
    with pytest.raises(UnsupportedKernelError, match=r"couple \d+ x 128 x \d+ = \d+ instances, as those of a tri") as e:
        estimate_volumes(kernel, {"n": n}, "V100")
    times = int(re.findall(r"sizes that are (\d+) times smaller", str(e.value))[0])
    small = n // times
    volumes = estimate_volumes(kernel, {"n": small}, "V100")
    # By enumeration: a work-group has rows of its own, of whose elements it loads whole sectors of 32 B.
    rows = [(0, i) if columns.startswith("0") else (i, small - 1) for i in range(small)]
    sectors = sum((i * small + last) // 4 - (i * small + first) // 4 + 1 for i, (first, last) in enumerate(rows))
    assert volumes.arrays["L"].l2_l1_compulsory == pytest.approx(32 * sectors, rel=0.01)
    whole = estimate_volumes(matrix_times_vector("0 <= j < n"), {"n": small}, "V100").total.l2_l1_compulsory
    assert whole > volumes.total.l2_l1_compulsory
    assert estimate_volumes(matrix_times_vector("0 <= j < n"), {"n": n}, "V100").total.l2_l1_compulsory > whole
