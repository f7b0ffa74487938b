"""Nasty loops: bounds, strides, splits, tags, orders, and how iterations get to work-items."""

from __future__ import annotations

from typing import Any

import loopy as lp

from .collection import kernel, nasty, per_element

X1 = "x, y: float32[4*n + 40]"


@nasty(n=13)
def triangle_upper() -> Any:
    t = kernel("{[i,j]: 0<=i<n and i<=j<n}", "y[i] = sum(j, x[j]*a[i,j])", f"{X1}; a: float32[n,n]")
    return per_element(t)


@nasty(n=11)
def triangle_both_sequential() -> Any:
    return kernel(
        "{[i,j,k]: 0<=i<n and i<=j<n and j<=k<n}",
        "y[i+j+k] = x[i]*a[j,k] + y[i+j+k]",
        f"{X1}; a: float32[n,n]",
        seq_dependencies=True,
    )


@nasty(n=12, m=3)
def both_bounds_parametric() -> Any:
    return per_element(kernel("{[i]: m<=i<n-m}", "y[i] = x[i-m] + x[i+m]", X1, assume="n>=1 and m>=0"))


@nasty(n=7, m=10)
def min_bound() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<m and j<=i+2 and j<2*n-i}", "y[i] = sum(j, x[i+j])", X1, assume="n>=1 and m>=1")
    return per_element(t, size=4)


@nasty(n=7, m=10)
def max_bound() -> Any:
    return kernel(
        "{[i,j]: 0<=i<n and j>=i-3 and j>=0 and j>=m-2*i and j<m}",
        "y[i] = sum(j, x[i+j]*x[j])",
        "x, y: float32[2*n + 2*m]",
        assume="n>=1 and m>=1",
    )


@nasty(n=31)
def stride_three_with_offset() -> Any:
    return kernel("{[i,j]: 2<=i<n and i=3*j+2}", "y[i] = 2*x[i]", X1, assume="n>=3")


@nasty(n=31)
def stride_three_existential() -> Any:
    return kernel("{[i]: 2<=i<n and exists j: i=3*j+2}", "y[i] = 2*x[i]", X1, assume="n>=3")


@nasty(n=19)
def reversed_subscripts() -> Any:
    return per_element(kernel("{[i]: 0<=i<n}", "y[n-1-i] = x[2*n-2*i] + x[n-i]", X1))


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


@nasty(n=1)
def one_iteration() -> Any:
    return per_element(kernel("{[i,j]: 0<=i<n and 0<=j<1}", "y[i] = x[i]*x[j] + x[i+j]", X1))


@nasty(n=1)
def group_of_one() -> Any:
    return kernel("{[i]: 0<=i<n}", "y[i] = x[i]*x[i+1]", X1)


@nasty(n=9)
def local_size_one() -> Any:
    return per_element(kernel("{[i]: 0<=i<n}", "y[i] = x[i]*x[i+1]", X1), size=1)


@nasty(n=9)
def no_parallel_loops() -> Any:
    return kernel("{[i,j]: 0<=i<n and 0<=j<=i}", "y[i] = sum(j, x[j])/x[i]", X1)


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


@nasty(n=37)
def ilp_unr_tag() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<5}", "y[i] = sum(j, x[i+j]*x[j])", X1, assume="n>=17")
    t = lp.split_iname(t, "i", 24, outer_tag="g.0")
    return lp.split_iname(t, "i_inner", 8, outer_tag="ilp.unr", inner_tag="l.0")


@nasty(n=43)
def split_twice() -> Any:
    t = kernel("{[i]: 0<=i<n}", "y[i] = x[i] + x[2*i]", X1)
    t = lp.split_iname(t, "i", 12, outer_tag="g.0")
    return lp.split_iname(t, "i_inner", 5, inner_tag="l.0")


@nasty(n=43)
def split_by_three_and_outer_again() -> Any:
    t = kernel("{[i]: 0<=i<n}", "y[i] = x[i] + x[2*i]", X1)
    t = lp.split_iname(t, "i", 3)
    return lp.split_iname(t, "i_outer", 7, outer_tag="g.0", inner_tag="l.0")


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


@nasty(n=9, m=6)
def skewed() -> Any:
    t = kernel(
        "{[i,j]: 0<=i<n and 0<=j<m}",
        "a[i,j] = b[i,j] + b[i+1,j]",
        "a: float32[n,m]; b: float32[n+1,m]",
        assume="n>=1 and m>=1",
    )
    return lp.affine_map_inames(t, "i,j", "d,k", ["d = i + j", "k = j"])


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


@nasty(n=22)
def halved_subscript() -> Any:
    return per_element(kernel("{[i]: 0<=i<n}", "y[i] = x[i//2] + x[i % 4]", X1))


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


@nasty(n=10, m=7)
def odd_work_groups_2d() -> Any:
    t = kernel(
        "{[i,j]: 0<=i<n and 0<=j<m}",
        "a[i,j] = b[j,i] + 2*c[j]",
        "a: float32[n,m]; b: float32[m,n]; c: float32[m]",
        assume="n>=1 and m>=1",
    )
    t = lp.split_iname(t, "i", 5, outer_tag="g.0", inner_tag="l.1")
    return lp.split_iname(t, "j", 3, outer_tag="g.1", inner_tag="l.0")


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


@nasty(n=8, m=5)
def priority() -> Any:
    t = kernel(
        "{[i,j]: 0<=i<n and 0<=j<m}",
        "a[i,j] = a[i,j]*x[i] + x[j]",
        "x: float32[n+m]; a: float32[n,m]",
        assume="n>=1 and m>=1",
    )
    return lp.prioritize_loops(t, "j,i")


@nasty(n=20)
def group_bound_triangular() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<=i}", "a[i,j] = x[i]*x[j]", f"{X1}; a: float32[n,n]")
    t = lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(t, "j", 4, outer_tag="g.1", inner_tag="l.1")


@nasty(n=20)
def block_triangular_tiles() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<=i}", "y[i] = sum(j, a[i,j]*x[j])", f"{X1}; a: float32[n,n]")
    t = lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(t, "j", 8)


@nasty(n=12)
def untagged_group_only() -> Any:
    return lp.tag_inames(kernel("{[i]: 0<=i<n}", "y[i] = x[i]", X1), "i:g.0")


@nasty()
def constant_sizes_only() -> Any:
    t = kernel("{[i,j]: 0<=i<10 and 0<=j<3}", "y[i] = sum(j, x[i+j])", "x, y: float32[16]", assume="")
    return lp.tag_inames(t, "i:l.0")


@nasty(n=12)
def fixed_parameter() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<m}", "y[i] = sum(j, x[i+j])", X1, assume="n>=1 and m>=1")
    return per_element(lp.fix_parameters(t, m=5))


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
