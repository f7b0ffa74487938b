"""Nasty distributions of iterations over work-items and work-groups: splits, slabs, tags, odd sizes, odd beginnings."""

from __future__ import annotations

from typing import Any

import loopy as lp

from .collection import kernel, nasty, per_element

X1 = "x, y: float32[4*n + 40]"
X2 = "x, y: float32[n + 16]"


@nasty(n=37)
def slabs() -> Any:
    t = kernel("{[i]: 0<=i<n}", "y[i] = x[i]*x[i+1] + 1", X1, assume="n>=17")
    return lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0", slabs=(0, 1))


# Where n is no multiple of 4, loopy's last slab repeats an iteration of the bulk; see `test_nasty_kernels`.
@nasty(n=40)
def unrolled_remainder() -> Any:
    t = kernel("{[i]: 0<=i<n}", "y[i] = x[i]*x[i+1] + 1", X1, assume="n>=17")
    return lp.split_iname(t, "i", 4, inner_tag="unr", slabs=(0, 1))


@nasty(n=37)
def ilp_remainder() -> Any:
    t = kernel("{[i]: 0<=i<n}", "<> s = x[i]*x[i+1]\ny[i] = s + 1", X1, assume="n>=17")
    t = lp.split_iname(t, "i", 24, outer_tag="g.0")
    return lp.split_iname(t, "i_inner", 8, outer_tag="ilp", inner_tag="l.0")


@nasty(n=43)
def split_twice() -> Any:
    t = kernel("{[i]: 0<=i<n}", "y[i] = x[i] + x[2*i]", X1)
    t = lp.split_iname(t, "i", 12, outer_tag="g.0")
    return lp.split_iname(t, "i_inner", 5, inner_tag="l.0")


@nasty(n=7)
def odd_work_groups_3d() -> Any:
    t = kernel(
        "{[i,j,k]: 0<=i,j,k<n}",
        "a[i,j,k] = b[k,j,i] + c[j,i]",
        "a, b: float32[n,n,n]; c: float32[n,n]",
    )
    t = lp.split_iname(t, "i", 3, outer_tag="g.2", inner_tag="l.0")
    t = lp.split_iname(t, "j", 2, outer_tag="g.0", inner_tag="l.2")
    return lp.split_iname(t, "k", 5, outer_tag="g.1", inner_tag="l.1")


@nasty(n=10)
def statements_on_different_axes() -> Any:
    t = kernel(
        "{[i,j,k]: 0<=i<n and 0<=j<4 and 0<=k<n}",
        "y[i] = x[i]*2 {id=a}\nz[k,j] = x[k+j] + 1 {id=b}",
        f"{X1}; z: float32[n,4]",
    )
    t = lp.split_iname(t, "i", 4, outer_tag="g.0", inner_tag="l.0")
    return lp.tag_inames(t, "k:g.0,j:l.0")


@nasty(n=6)
def hardware_axis_without_loop() -> Any:
    t = kernel(
        "{[i,j]: 0<=i<n and 0<=j<n}",
        "<> s = x[i]*x[i+1] {id=a,inames=i}\na[i,j] = s + x[j] {id=b,dep=a}",
        f"{X1}; a: float32[n,n]",
    )
    t = lp.split_iname(t, "j", 4, outer_tag="g.1", inner_tag="l.1")
    t = lp.split_iname(t, "i", 4, outer_tag="g.0", inner_tag="l.0")
    return lp.add_inames_for_unused_hw_axes(t)


@nasty(n=13)
def local_axis_from_two() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 2<=j<10}", "a[i,j] = x[j]*x[i+j]", f"{X2}; a: float32[n,10]")
    return lp.tag_inames(t, "i:g.0,j:l.0")


@nasty(n=13)
def split_from_one() -> Any:
    return per_element(kernel("{[i]: 1<=i<n-1}", "y[i] = x[i-1] + x[i+1]", X2, assume="n>=3"))


@nasty(n=13)
def split_within_one_statement() -> Any:
    t = kernel("{[i]: 0<=i<n}", "y[i] = x[i] {id=a}\nz[i] = x[i]*2 {id=b}", f"{X2}; z: float32[n]")
    return lp.split_iname(t, "i", 4, within="id:a")


@nasty(n=24)
def sub_group_odd() -> Any:
    t = kernel("{[i,j,k]: 0<=i<n and 0<=j<3 and 0<=k<5}", "z[i,j,k] = x[i+j+k]*2", f"{X2}; z: float32[n,3,5]")
    return lp.tag_inames(t, "i:g.0,j:l.1,k:l.0")


@nasty(n=9, m=6)
def skewed_parallel() -> Any:
    t = kernel(
        "{[i,j]: 0<=i<n and 0<=j<m}",
        "a[i,j] = b[i,j] + b[i+1,j]",
        "a: float32[n,m]; b: float32[n+1,m]",
        assume="n>=1 and m>=1",
    )
    t = lp.affine_map_inames(t, "i,j", "d,k", ["d = i + 2*j", "k = j"])
    return lp.split_iname(t, "d", 4, outer_tag="g.0", inner_tag="l.0")


@nasty(n=20)
def group_bound_triangular() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<=i}", "a[i,j] = x[i]*x[j]", f"{X1}; a: float32[n,n]")
    t = lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(t, "j", 4, outer_tag="g.1", inner_tag="l.1")


@nasty(n=13, refused="global axis 0|axis g.0")
def no_first_group_axis() -> Any:
    return lp.tag_inames(kernel("{[i,j]: 0<=i,j<n}", "y[i] = x[j] + y[i]", X1), "i:g.1")


@nasty(n=13, refused="local axis 0|axis l.0")
def no_first_local_axis() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<4}", "a[i,j] = x[j]", f"{X1}; a: float32[n,4]")
    return lp.tag_inames(t, "i:g.0,j:l.2")


@nasty(refused=r"\bi\b.*\bj\b.*l\.0")
def two_loops_on_one_axis() -> Any:
    t = kernel("{[i,j]: 0<=i,j<4}", "a[i,j] = 1", "a: float32[4,4]", assume="")
    return lp.tag_inames(t, "i:l.0,j:l.0")


@nasty(n=13, refused="work-group size .* is symbolic; fix it")
def work_group_of_any_size() -> Any:
    return lp.tag_inames(kernel("{[i]: 0<=i<n}", "y[i] = x[i]", X1), "i:l.0")


@nasty(n=13, refused="has no end.*give every loop")
def loop_without_end() -> Any:
    return kernel("[n] -> {[i]: 0<=i}", "y[i] = x[i]", X1)
