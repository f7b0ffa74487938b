"""Conditions that data decide in part: what is known of them still counts, and counts are marked as bounds."""

from __future__ import annotations

import pytest

from perflex import source_kernel
from perflex.features import count_features

KERNEL = """
__global__ void f(float *a, float *m, const int *flag, int n) {{
    int i = blockIdx.x * 64 + threadIdx.x;
    {body}
}}
"""


def stores(body: str) -> tuple[float, bool]:
    """Stores of 256 work-items for 200 elements, and whether they are exact."""
    kernel = source_kernel(KERNEL.format(body=body), "f", local=[64], groups=[4])
    (found,) = count_features(kernel, {"n": 200}, identifiers=["f_mem_access_global_store"])
    return float(found.value), found.exact


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ("if (flag[i] && i < n) a[i] = 1;", 200),
        ("if (i < n && flag[i]) a[i] = 1;", 200),
        ("if (i < n && flag[i] && threadIdx.x < 3) a[i] = 1;", 12),
        ("if (!(i >= n || flag[i])) a[i] = 1;", 200),
        ("if (i < n || flag[i]) a[i] = 1;", 256),
        ("if (i < n && flag[i]) {} else a[i] = 1;", 256),
        ("if (i >= n || flag[i]) {} else a[i] = 1;", 200),
        ("if (i < 0 && flag[i]) a[i] = 1;", 0),
    ],
)
def test_known_parts_bound_the_others(body: str, most: int) -> None:
    # By truth tables: the most elements of any flags for which it stores.
    assert stores(body)[0] == most


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("if (m != nullptr && i < n) a[i] = 1;", 200),
        ("if (threadIdx.x == 0 && m) a[i] = 1;", 4),
        ("if (m == NULL) a[i] = 1;", 0),
        ("if (0 != m) a[i] = 1;", 256),
        ("if (!m) a[i] = 1;", 0),
        ("if ((float *)0 == m || i < 8) a[i] = 1;", 8),
    ],
)
def test_arguments_are_no_null_pointers(body: str, count: int) -> None:
    assert stores(body) == (count, True)


def test_the_warp_has_32_work_items() -> None:
    assert stores("if (threadIdx.x % warpSize == 0) a[i] = 1;") == (8, True)
