"""Nasty arrays: orders, padding, offsets, split axes, vectors, flattened and indirect subscripts."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
from pymbolic import parse

from perflex.features import annotate

from .collection import kernel, nasty, per_element


def tiled(t: lp.TranslationUnit) -> lp.TranslationUnit:
    t = lp.split_iname(t, "i", 4, outer_tag="g.1", inner_tag="l.1")
    return lp.split_iname(t, "j", 8, outer_tag="g.0", inner_tag="l.0")


@nasty(n=13)
def nesting_levels() -> Any:
    return tiled(
        kernel(
            "{[i,j]: 0<=i,j<n}",
            "a[i,j] = b[i,j,1] + b[j,i,0]",
            "a: float32[n,n]",
            lp.GlobalArg("b", np.float32, shape=("n", "n", 3), dim_tags="N0,N2,N1"),
        )
    )


@nasty(n=13)
def padded_rows() -> Any:
    return tiled(
        kernel(
            "{[i,j]: 0<=i,j<n}",
            "a[i,j] = b[i,j] + b[j,i]",
            "a: float32[n,n]",
            lp.GlobalArg("b", np.float32, shape=("n", "n"), strides=("n + 3", 1)),
        )
    )


@nasty(n=13)
def transposed_strides() -> Any:
    return tiled(
        kernel(
            "{[i,j]: 0<=i,j<n}",
            "a[i,j] = b[i,j] + b[j,i]",
            "a: float32[n,n]",
            lp.GlobalArg("b", np.float64, shape=("n", "n"), strides=(2, "2*n")),
        )
    )


@nasty(n=13)
def automatic_strides() -> Any:
    return tiled(
        kernel(
            "{[i,j]: 0<=i,j<n}",
            "a[i,j] = b[i,j] + b[j,i]",
            "a: float32[n,n]",
            lp.GlobalArg("b", np.float32, shape=("n", "n"), strides=lp.auto),
        )
    )


@nasty(n=13)
def automatic_offset() -> Any:
    return per_element(
        kernel(
            "{[i]: 0<=i<n}",
            "y[i] = x[i]*x[i+1]",
            "y: float32[n]",
            lp.GlobalArg("x", np.float32, shape=("n + 1",), offset=lp.auto),
        )
    )


@nasty(n=13)
def explicit_offset() -> Any:
    return per_element(
        kernel(
            "{[i]: 0<=i<n}",
            "y[i] = x[i]*x[i+1]",
            "y: float32[n]; start: int32",
            lp.GlobalArg("x", np.float32, shape=("n + 1",), offset="start"),
        )
    )


@nasty(n=16)
def axis_split_reordered() -> Any:
    t = kernel("{[i]: 0<=i<n}", "y[i] = x[i]*x[i]", "x, y: float32[n]", assume="n>=8 and n mod 8 = 0")
    t = lp.split_array_axis(t, "x", 0, 4)
    t = lp.tag_array_axes(t, "x", "N0,N1")
    return lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")


@nasty(n=16, differs={"global load": (32, 8), "global store": (16, 4)}, why="vectors")
def vector_axis() -> Any:
    t = kernel("{[i]: 0<=i<n}", "y[i] = 2*x[i] + x[i]", "x, y: float32[n]", assume="n>=8 and n mod 8 = 0")
    t = lp.split_array_dim(t, [("x", 0), ("y", 0)], 4, auto_split_inames=True)
    t = lp.tag_array_axes(t, "x,y", "C,vec")
    names = sorted(t.default_entrypoint.all_inames())
    inner = next(name for name in names if name.endswith("inner"))
    return lp.tag_inames(t, {inner: "vec"})


@nasty(n=9)
def flattened_three_levels() -> Any:
    return tiled(
        kernel("{[i,j,k]: 0<=i,j,k<n}", "a[n*(n*i + j) + k] = b[n*n*k + n*j + i + 1]", "a, b: float32[n*n*n + 1]")
    )


@nasty(n=9)
def linear_part_and_flattened_other() -> Any:
    return tiled(
        kernel(
            "{[i,j]: 0<=i,j<n}",
            "a[i,j] = b[(n+2)*(i+1) + j+1] + b[(n+2)*i + j+1] + b[(n+2)*(i+2) + j+1]",
            "a: float32[n,n]; b: float32[(n+2)*(n+2)]",
        )
    )


@nasty(n=13, refused=r"indirect.*annotate\(kernel, accesses=")
def indirect() -> Any:
    return per_element(kernel("{[i]: 0<=i<n}", "y[i] = x[idx[i]]", "x, y: float32[n+8]; idx: int32[n]"))


@nasty(n=13)
def indirect_with_stand_in() -> Any:
    return annotate(indirect(), accesses={"x[idx[i]]": "anywhere"})


@nasty(n=13)
def indirect_scatter() -> Any:
    t = per_element(kernel("{[i]: 0<=i<n}", "y[idx[i]] = x[i]", "x, y: float32[n+8]; idx: int32[n]"))
    return annotate(t, accesses={"y": "i"})


@nasty(n=13, refused=r"not quasi-affine.*annotate")
def quadratic_subscript() -> Any:
    return per_element(kernel("{[i]: 0<=i<n}", "y[i] = x[i*i]", "x: float32[n*n]; y: float32[n]"))


@nasty(n=13, refused="trip count|depends on the data")
def data_dependent_loop() -> Any:
    return per_element(
        kernel(
            ["{[i]: 0<=i<n}", "[e] -> {[j]: 0<=j<e}"],
            "<> e = p[i] {id=e}\ny[i] = sum(j, x[i+j]) {dep=e}",
            "x: float32[n+8]; y: float32[n]; p: int32[n]",
        )
    )


@nasty(n=13, k=3)
def scalar_in_subscript() -> Any:
    return per_element(
        kernel(
            "[n,k] -> {[i]: 0<=i<n}",
            "y[i] = x[i + k]*x[k]",
            "x: float32[n+k+1]; y: float32[n]; k: int32",
            assume="n>=1 and k>=0",
        )
    )


@nasty(n=13)
def computed_scalar_in_subscript() -> Any:
    return per_element(
        kernel("{[i]: 0<=i<n}", "<> k = i//2 {id=k}\ny[i] = x[k] {dep=k}", "x: float32[n+8]; y: float32[n]")
    )


@nasty()
def zero_dimensional_array() -> Any:
    return kernel(
        "{[i]: 0<=i<8}",
        "s = s + x[i]",
        "x: float32[8]",
        lp.GlobalArg("s", np.float32, shape=()),
        assume="",
        seq_dependencies=True,
    )


@nasty(n=13)
def stride_zero_broadcast() -> Any:
    return tiled(kernel("{[i,j]: 0<=i,j<n}", "a[i,j] = x[0]*x[i % 1] + b[0,j]", "a, b: float32[n,n]; x: float32[4]"))


@nasty(n=13, refused=r"access x.*% n.* not quasi-affine.*annotate")
def wrap_around() -> Any:
    return per_element(kernel("{[i]: 0<=i<n}", "y[i] = x[(i + 1) % n] + x[(i + n - 1) % n]", "x, y: float32[n]"))


@nasty(n=16, refused="array 'a' has an axis that is spread over several arguments.*make it")
def separate_arrays() -> Any:
    separate = lp.GlobalArg("a", np.float32, shape=("n", 3), dim_tags="N0,sep")
    t = kernel("{[i,j]: 0<=i<n and 0<=j<3}", "a[i,j] = 2*a[i,j] + x[i]", "x: float32[n]", separate)
    return lp.tag_inames(per_element(t), "j:unr")


@nasty(n=13, refused=r"access x\[.*min.*\] .*not quasi-affine.*annotate")
def minimum_in_subscript() -> Any:
    made = [lp.Assignment("y[i]", parse("x[min(i, 3)]"))]
    return per_element(kernel("{[i]: 0<=i<n}", made, "x, y: float32[n+8]"))


@nasty(n=13, refused=r"access x\[idx.*indirect")
def indirect_in_one_branch() -> Any:
    text = "y[i] = x[i] if idx[i] > 2 else x[idx[i]]"
    return per_element(kernel("{[i]: 0<=i<n}", text, "x, y: float32[n+8]; idx: int32[n]"))
