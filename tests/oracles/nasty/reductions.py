"""Nasty reductions and scans: sequential, in trees over work-items, nested, of pairs, over odd domains."""

from __future__ import annotations

from typing import Any

import loopy as lp

from .collection import kernel, nasty, per_element

XY = "x, y: float32[n + 16]"
AX = "x: float32[n + 16]; y: float32[n]; a: float32[n, 16]"


@nasty(n=9)
def tree_sum_odd_length() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<13}", "y[i] = sum(j, a[i,j]*x[j]) + x[i]", AX)
    return lp.tag_inames(t, "i:g.0,j:l.0")


@nasty(n=9)
def tree_sum_after_sequential() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<16}", "y[i] = sum(j, a[i,j]*x[j])", AX)
    t = lp.split_reduction_outward(lp.split_iname(t, "j", 4, inner_tag="l.0"), "j_inner")
    return lp.tag_inames(t, "i:g.0")


@nasty(n=12)
def tree_product_and_max() -> Any:
    t = kernel(
        "{[i,j,k]: 0<=i<n and 0<=j,k<8}",
        "y[i] = product(j, x[i+j]) {id=a}\nz[i] = reduce(max, k, x[i+k])",
        f"{XY}; z: float32[n]",
    )
    return lp.tag_inames(t, "i:g.0,j:l.0,k:l.0")


@nasty(n=12)
def any_and_all() -> Any:
    return per_element(
        kernel(
            "{[i,j,k]: 0<=i<n and 0<=j,k<7}",
            "out[i] = reduce(any, j, x[i+j] > 0.5)\nout2[i] = reduce(all, k, x[i+k] > 0.1)",
            f"{XY}; out, out2: int32[n]",
        )
    )


@nasty(n=12)
def argmin_in_a_tree() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<8}", "y[i], out[i] = argmin(j, x[i+j], j)", f"{XY}; out: int32[n]")
    return lp.tag_inames(t, "i:g.0,j:l.0")


@nasty(n=12)
def segmented_sum() -> Any:
    return per_element(
        kernel(
            "{[i,j]: 0<=i<n and 0<=j<7}",
            "y[i], out[i] = reduce(segmented(sum), [j], x[i+j], p[j])",
            f"{XY}; p, out: int32[n+8]",
        )
    )


@nasty(n=12)
def nested_triangular() -> Any:
    return per_element(
        kernel(
            "{[i,j,k]: 0<=i<n and 0<=j<=i and 0<=k<j}",
            "y[i] = sum(j, x[i+j]*sum(k, x[k]*x[j+k]))",
            "x: float32[2*n+16]; y: float32[n]",
        )
    )


@nasty(n=12)
def over_two_loops_at_once() -> Any:
    return per_element(kernel("{[i,j,k]: 0<=i<n and 0<=j<5 and 0<=k<=j}", "y[i] = sum((j,k), a[i,j+k]*x[k])", AX))


@nasty(n=20)
def whole_array_one_group() -> Any:
    t = kernel("{[i]: 0<=i<n}", "y[0] = sum(i, x[i]*x[i])", XY, assume="n>=1")
    return lp.split_reduction_outward(lp.split_iname(t, "i", 8, inner_tag="l.0"), "i_inner")


@nasty(n=9)
def with_a_condition_inside() -> Any:
    return per_element(kernel("{[i,j]: 0<=i<n and 0<=j<7}", "y[i] = sum(j, x[i+j]*x[j] if x[j] > 0.3 else x[i])", XY))


@nasty(n=9)
def typed_reduction() -> Any:
    return per_element(kernel("{[i,j]: 0<=i<n and 0<=j<7}", "y[i] = sum(j, d[i+j]*x[j])", f"{XY}; d: float64[n+8]"))


@nasty(n=9)
def scan_sequential() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<=i}", "y[i] = sum(j, x[j])", XY)
    return lp.realize_reduction(t, force_scan=True)


@nasty()
def scan_of_odd_length() -> Any:
    t = kernel("{[i,j]: 0<=i<13 and 0<=j<=i}", "y[i] = sum(j, x[j]*x[j]) + x[i]", "x, y: float32[13]", assume="")
    return lp.realize_reduction(lp.tag_inames(t, "i:l.0"), force_scan=True)


@nasty(n=9, refused="cannot schedule.*is empty")
def empty_reduction() -> Any:
    return per_element(kernel("{[i,j]: 0<=i<n and i<=j<i}", "y[i] = sum(j, x[j]) + x[i]", XY))


@nasty(n=13)
def product_of_reduction_and_load() -> Any:
    return per_element(kernel("{[i,j]: 0<=i<n and 0<=j<4}", "y[i] = 2*sum(j, 3*x[i+j]) + x[i]*product(j, x[j])", XY))
