"""Nasty prefetches: clipped, sequential, in triangles, of tiles for registers, of computed values."""

from __future__ import annotations

from typing import Any

import loopy as lp

from .collection import kernel, nasty, per_element

XY = "x, y: float32[n + 16]"


def stencil() -> lp.TranslationUnit:
    t = kernel(
        "{[i,j]: 0<=i,j<n}",
        "b[i,j] = a[i,j] + a[i+1,j] + a[i,j+1] + a[i+1,j+1]*a[i+2,j+2]",
        "a: float32[n+2,n+2]; b: float32[n,n]",
        assume="n>=4",
    )
    t = lp.split_iname(t, "i", 4, outer_tag="g.1", inner_tag="l.1")
    return lp.split_iname(t, "j", 8, outer_tag="g.0", inner_tag="l.0")


@nasty(n=19)
def prefetched_halo_clipped() -> Any:
    return lp.add_prefetch(
        stencil(),
        "a",
        ["i_inner", "j_inner"],
        default_tag="l.auto",
        fetch_outer_inames="i_outer,j_outer",
        fetch_bounding_box=True,
    )


@nasty(n=16)
def prefetched_by_each_work_item() -> Any:
    t = kernel(
        "{[i,j,k]: 0<=i<n and 0<=j<3 and 0<=k<2}",
        "y[i] = sum(j, sum(k, x[i+j+k]*w[j]))",
        f"{XY}; w: float32[3]",
        assume="n>=8",
    )
    t = per_element(t)
    return lp.add_prefetch(
        t,
        "x",
        ["j", "k"],
        default_tag=None,
        fetch_outer_inames="i_outer,i_inner",
        temporary_address_space=lp.AddressSpace.PRIVATE,
        fetch_bounding_box=True,
    )


@nasty(n=21)
def prefetched_row_clipped() -> Any:
    t = kernel("{[i,j]: 0<=i,j<n}", "y[i] = sum(j, a[i,j]*x[j])", f"{XY}; a: float32[n,n]", assume="n>=8")
    t = lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")
    t = lp.split_iname(t, "j", 8)
    return lp.add_prefetch(t, "x", ["j_inner"], default_tag="l.auto", fetch_outer_inames="i_outer,j_outer")


@nasty(n=19)
def transposed_clipped() -> Any:
    t = kernel("{[i,j]: 0<=i,j<n}", "b[i,j] = a[j,i]", "a, b: float32[n,n]", assume="n>=8")
    t = lp.split_iname(t, "i", 8, outer_tag="g.1", inner_tag="l.1")
    t = lp.split_iname(t, "j", 8, outer_tag="g.0", inner_tag="l.0")
    return lp.add_prefetch(t, "a", ["i_inner", "j_inner"], default_tag="l.auto", fetch_outer_inames="i_outer,j_outer")


@nasty(n=19)
def matmul_clipped() -> Any:
    t = kernel("{[i,j,k]: 0<=i,j,k<n}", "c[i,j] = sum(k, a[i,k]*b[k,j])", "a, b, c: float32[n,n]", assume="n>=8")
    t = lp.split_iname(t, "i", 4, outer_tag="g.1", inner_tag="l.1")
    t = lp.split_iname(t, "j", 4, outer_tag="g.0", inner_tag="l.0")
    t = lp.split_iname(t, "k", 8)
    t = lp.add_prefetch(
        t, "a", ["i_inner", "k_inner"], default_tag="l.auto", fetch_outer_inames="i_outer,k_outer,j_outer"
    )
    return lp.add_prefetch(
        t, "b", ["k_inner", "j_inner"], default_tag="l.auto", fetch_outer_inames="i_outer,k_outer,j_outer"
    )


@nasty(n=24)
def matmul_register_tiled() -> Any:
    t = kernel(
        "{[i,j,k]: 0<=i,j,k<n}", "c[i,j] = sum(k, a[i,k]*b[k,j])", "a, b, c: float64[n,n]", assume="n>=8 and n mod 8=0"
    )
    t = lp.split_iname(t, "i", 8, outer_tag="g.1")
    t = lp.split_iname(t, "i_inner", 4, outer_tag="ilp.unr", inner_tag="l.1")
    t = lp.split_iname(t, "j", 4, outer_tag="g.0", inner_tag="l.0")
    t = lp.split_iname(t, "k", 4)
    return lp.add_prefetch(
        t,
        "a",
        ["i_inner_outer", "i_inner_inner", "k_inner"],
        default_tag="l.auto",
        fetch_outer_inames="i_outer,k_outer,j_outer",
    )


@nasty(n=17)
def prefetch_in_a_triangle() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<=i}", "y[i] = sum(j, a[i,j]*x[j])", f"{XY}; a: float32[n,n]", assume="n>=8")
    t = lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")
    t = lp.split_iname(t, "j", 8)
    return lp.add_prefetch(t, "x", ["j_inner"], default_tag="l.auto", fetch_outer_inames="i_outer,j_outer")


@nasty(n=18)
def precomputed_substitution() -> Any:
    t = kernel("{[i]: 0<=i<n}", "f(a) := x[a]*x[a] + 1\ny[i] = f(i) + f(i+1) + f(i+2)", XY, assume="n>=8")
    t = lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")
    return lp.precompute(
        t,
        "f",
        ["i_inner"],
        default_tag="l.auto",
        precompute_outer_inames=frozenset({"i_outer"}),
        temporary_address_space=lp.AddressSpace.LOCAL,
    )


@nasty(n=16)
def buffered_array() -> Any:
    t = kernel(
        "{[i,k]: 0<=i<n and 0<=k<5}",
        "y[i] = y[i] + x[i+k]*x[k]",
        XY,
        assume="n>=8 and n mod 8 = 0",
        seq_dependencies=True,
    )
    t = lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")
    return lp.buffer_array(
        t, "y", ["i_inner"], default_tag="l.auto", temporary_scope=lp.AddressSpace.LOCAL, fetch_bounding_box=True
    )
