"""Nasty loops: bounds, strides, orders, quasi-affine subscripts, and domains that are empty, skewed or joined."""

from __future__ import annotations

from typing import Any

import loopy as lp

from .collection import kernel, nasty, per_element

X1 = "x, y: float32[4*n + 40]"
X2 = "x, y: float32[n + 16]"


@nasty(n=11)
def triangle_both_sequential() -> Any:
    return kernel(
        "{[i,j,k]: 0<=i<n and i<=j<n and j<=k<n}",
        "y[i+j+k] = x[i]*a[j,k] + y[i+j+k]",
        f"{X1}; a: float32[n,n]",
        seq_dependencies=True,
    )


@nasty(n=7, m=10)
def min_bound() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<m and j<=i+2 and j<2*n-i}", "y[i] = sum(j, x[i+j])", X1, assume="n>=1 and m>=1")
    return per_element(t, size=4)


@nasty(n=31)
def stride_three_existential() -> Any:
    return kernel("{[i]: 2<=i<n and exists j: i=3*j+2}", "y[i] = 2*x[i]", X1, assume="n>=3")


@nasty(n=19)
def negative_range() -> Any:
    return kernel("{[i]: -n<=i<=-1}", "y[-i] = x[i+n]*x[-i]", X1)


@nasty(n=5, m=9, differs={"kernel_launch": (1, 0)}, why="empty")
def empty_domain() -> Any:
    return per_element(kernel("{[i]: m<=i<n}", "y[i] = x[i]", X1, assume="n>=1 and m>=1"))


@nasty(n=5, m=9)
def empty_inner_loop() -> Any:
    t = kernel(
        ["{[i]: 0<=i<n}", "{[j]: m<=j<n}"],
        "y[i] = x[i] {id=a}\ny[i] = y[i] + sum(j, x[j]) {dep=a}",
        X1,
        assume="n>=1 and m>=1",
    )
    return per_element(t)


@nasty()
def joined() -> Any:
    t = kernel(
        "{[i,j]: 0<=i<5 and 0<=j<7}", "a[i,j] = b[j,i]*b[j,i] + 1", "a: float32[5,7]; b: float32[7,5]", assume=""
    )
    t = lp.join_inames(t, ["i", "j"], "ij")
    return lp.split_iname(t, "ij", 8, outer_tag="g.0", inner_tag="l.0")


@nasty(n=21)
def renamed_and_duplicated() -> Any:
    t = kernel("{[i]: 0<=i<n}", "y[i] = x[i] {id=a}\nz[i] = x[i]*x[i] {id=b,dep=a}", f"{X1}; z: float32[n]")
    t = lp.duplicate_inames(t, "i", "id:b", "k")
    t = lp.rename_iname(t, "i", "first")
    return lp.split_iname(t, "first", 8)


@nasty(n=11, m=8)
def floor_of_sum() -> Any:
    t = kernel(
        "{[i,j]: 0<=i<n and 0<=j<m}",
        "y[i] = x[(2*i+j)//3]*x[(i+j) % 5] + y[i]",
        "x, y: float32[n + m + 8]",
        assume="n>=1 and m>=1",
        seq_dependencies=True,
    )
    return lp.tag_inames(t, "i:g.0")


@nasty(n=13)
def lower_bound_with_floor() -> Any:
    t = kernel("{[i,j]: 0<=i<n and i//2<=j<i}", "y[i] = sum(j, x[j])", X1)
    return per_element(t)


@nasty(n=13)
def domain_with_modulo() -> Any:
    t = kernel("{[i]: 0<=i<n and 1 <= i mod 3 <= 2}", "y[i] = x[i]", X1)
    return per_element(t)


@nasty(n=13)
def two_loop_nests_with_one_name() -> Any:
    t = kernel(
        ["{[i]: 0<=i<n}", "[i] -> {[j]: 0<=j<i}"],
        "for i\n y[i] = 0 {id=a}\n for j\n  y[i] = y[i] + x[j]*x[i] {id=b,dep=a}\n end\n y[i] = y[i]/2 {dep=b}\nend",
        X1,
    )
    return lp.tag_inames(t, "i:g.0")


@nasty(n=13)
def unused_loop() -> Any:
    return per_element(kernel("{[i,unused]: 0<=i<n and 0<=unused<5}", "y[i] = x[i]", X2))


@nasty(n=13)
def statement_without_loops() -> Any:
    return kernel("{[i]: 0<=i<n}", "y[0] = x[1]*x[2] {id=a}\ny[i+1] = x[i] {dep=a}", X2)
