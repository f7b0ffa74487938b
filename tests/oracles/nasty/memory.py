"""Nasty arrays: orders, padding, offsets, split axes, vectors, flattened and indirect subscripts; nasty prefetches."""

import loopy as lp
import numpy as np
from pymbolic import parse

from perflex.features import annotate

from .collection import ELEMENTS, TILES, nasty

XY = "x, y: float32[n + 16]"
LINE = "{[i]: 0<=i<n}"
PLANE = "{[i,j]: 0<=i,j<n}"


def in_b(name, text="a[i,j] = b[i,j] + b[j,i]", *, dtype=np.float32, **b):
    """Collect a kernel on tiles of a matrix, with an array b of some layout."""
    array = lp.GlobalArg("b", dtype, **{"shape": ("n", "n"), **b})
    nasty(name, PLANE, text, "a: float32[n,n]", TILES, more=[array])


def in_x(name, text, data, **options):
    """Collect a kernel of one work-item per element."""
    nasty(name, LINE, text, data, ELEMENTS, **options)


in_b("nesting_levels", "a[i,j] = b[i,j,1] + b[j,i,0]", shape=("n", "n", 3), dim_tags="N0,N2,N1")
in_b("padded_rows", strides=("n + 3", 1))
in_b("transposed_strides", dtype=np.float64, strides=(2, "2*n"))
in_b("automatic_strides", strides=lp.auto)
for name, offset, data in (("automatic", lp.auto, ""), ("explicit", "start", "; start: int32")):
    source = lp.GlobalArg("x", np.float32, shape=("n + 1",), offset=offset)
    in_x(f"{name}_offset", "y[i] = x[i]*x[i+1]", f"y: float32[n]{data}", more=[source])


def split_and_reordered(t):
    t = lp.tag_array_axes(lp.split_array_axis(t, "x", 0, 4), "x", "N0,N1")
    return lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")


def in_vectors(t):
    t = lp.split_array_dim(t, [("x", 0), ("y", 0)], 4, auto_split_inames=True)
    t = lp.tag_array_axes(t, "x,y", "C,vec")
    inner = next(name for name in sorted(t.default_entrypoint.all_inames()) if name.endswith("inner"))
    return lp.tag_inames(t, {inner: "vec"})


EIGHTS = {"assume": "n>=8 and n mod 8 = 0", "at": {"n": 16}}
nasty("axis_split_reordered", LINE, "y[i] = x[i]*x[i]", "x, y: float32[n]", then=split_and_reordered, **EIGHTS)
nasty("vector_axis", LINE, "y[i] = 2*x[i] + x[i]", "x, y: float32[n]", then=in_vectors, **EIGHTS,
    differs={"global load": (32, 8), "global store": (16, 4)}, why="vectors")  # fmt: skip
nasty("flattened_three_levels", "{[i,j,k]: 0<=i,j,k<n}", "a[n*(n*i + j) + k] = b[n*n*k + n*j + i + 1]",
    "a, b: float32[n*n*n + 1]", TILES, at={"n": 9})  # fmt: skip
nasty("linear_part_and_flattened_other", PLANE,
    "a[i,j] = b[(n+2)*(i+1) + j+1] + b[(n+2)*i + j+1] + b[(n+2)*(i+2) + j+1]",
    "a: float32[n,n]; b: float32[(n+2)*(n+2)]", TILES, at={"n": 9})  # fmt: skip

# Subscripts that data decide, or that are not quasi-affine.
GATHERED = ("y[i] = x[idx[i]]", "x, y: float32[n+8]; idx: int32[n]")
in_x("indirect", *GATHERED, refused=r"indirect.*annotate\(kernel, accesses=")
in_x("indirect_with_stand_in", *GATHERED, then=lambda t: annotate(t, accesses={"x[idx[i]]": "anywhere"}))
in_x("indirect_scatter", "y[idx[i]] = x[i]", GATHERED[1], then=lambda t: annotate(t, accesses={"y": "i"}))
in_x("indirect_in_one_branch", "y[i] = x[i] if idx[i] > 2 else x[idx[i]]", GATHERED[1],
    refused=r"access x\[idx.*indirect")  # fmt: skip
in_x("quadratic_subscript", "y[i] = x[i*i]", "x: float32[n*n]; y: float32[n]", refused="not quasi-affine.*annotate")
in_x("wrap_around", "y[i] = x[(i + 1) % n] + x[(i + n - 1) % n]", "x, y: float32[n]",
    refused=r"access x.*% n.* not quasi-affine.*annotate")  # fmt: skip
in_x("minimum_in_subscript", [lp.Assignment("y[i]", parse("x[min(i, 3)]"))], "x, y: float32[n+8]",
    refused=r"access x\[.*min.*\] .*not quasi-affine.*annotate")  # fmt: skip
nasty("data_dependent_loop", [LINE, "[e] -> {[j]: 0<=j<e}"], "<> e = p[i] {id=e}\ny[i] = sum(j, x[i+j]) {dep=e}",
    "x: float32[n+8]; y: float32[n]; p: int32[n]", ELEMENTS, refused="trip count|depends on the data")  # fmt: skip
nasty("scalar_in_subscript", "[n,k] -> {[i]: 0<=i<n}", "y[i] = x[i + k]*x[k]",
    "x: float32[n+k+1]; y: float32[n]; k: int32", ELEMENTS, assume="n>=1 and k>=0", at={"n": 13, "k": 3})  # fmt: skip
in_x("computed_scalar_in_subscript", "<> k = i//2 {id=k}\ny[i] = x[k] {dep=k}", "x: float32[n+8]; y: float32[n]")
nasty("zero_dimensional_array", "{[i]: 0<=i<8}", "s = s + x[i]", "x: float32[8]",
    more=[lp.GlobalArg("s", np.float32, shape=())], assume="", at={}, seq_dependencies=True)  # fmt: skip
nasty("stride_zero_broadcast", PLANE, "a[i,j] = x[0]*x[i % 1] + b[0,j]", "a, b: float32[n,n]; x: float32[4]", TILES)
nasty("separate_arrays", "{[i,j]: 0<=i<n and 0<=j<3}", "a[i,j] = 2*a[i,j] + x[i]", "x: float32[n]",
    f"{ELEMENTS}; j: unr", more=[lp.GlobalArg("a", np.float32, shape=("n", 3), dim_tags="N0,sep")], at={"n": 16},
    refused="array 'a' has an axis that is spread over several arguments.*make it")  # fmt: skip


# Prefetches: clipped, sequential, in triangles, of tiles for registers, of computed values.


def fetched(array, sweep, outer, **options):
    """Return a transformation that prefetches an array."""
    chosen = {"default_tag": "l.auto", "fetch_outer_inames": outer, **options}
    return lambda t: lp.add_prefetch(t, array, sweep.split(","), **chosen)


nasty("prefetched_halo_clipped", PLANE, "b[i,j] = a[i,j] + a[i+1,j] + a[i,j+1] + a[i+1,j+1]*a[i+2,j+2]",
    "a: float32[n+2,n+2]; b: float32[n,n]", TILES, assume="n>=4", at={"n": 19},
    then=fetched("a", "i_inner,j_inner", "i_outer,j_outer", fetch_bounding_box=True))  # fmt: skip
nasty("prefetched_by_each_work_item", "{[i,j,k]: 0<=i<n and 0<=j<3 and 0<=k<2}",
    "y[i] = sum(j, sum(k, x[i+j+k]*w[j]))", f"{XY}; w: float32[3]", ELEMENTS, assume="n>=8", at={"n": 16},
    then=fetched("x", "j,k", "i_outer,i_inner", default_tag=None, fetch_bounding_box=True,
        temporary_address_space=lp.AddressSpace.PRIVATE))  # fmt: skip
TRIANGLE = "{[i,j]: 0<=i<n and 0<=j<=i}"
for name, domain, n in (("prefetched_row_clipped", PLANE, 21), ("prefetch_in_a_triangle", TRIANGLE, 17)):
    nasty(name, domain, "y[i] = sum(j, a[i,j]*x[j])", f"{XY}; a: float32[n,n]", f"{ELEMENTS}; j/8", assume="n>=8",
        at={"n": n}, then=fetched("x", "j_inner", "i_outer,j_outer"))  # fmt: skip
nasty("transposed_clipped", PLANE, "b[i,j] = a[j,i]", "a, b: float32[n,n]", "i/8: g.1, l.1; j/8: g.0, l.0",
    assume="n>=8", at={"n": 19}, then=fetched("a", "i_inner,j_inner", "i_outer,j_outer"))  # fmt: skip
PRODUCT = ("{[i,j,k]: 0<=i,j,k<n}", "c[i,j] = sum(k, a[i,k]*b[k,j])")
ROUND = "i_outer,k_outer,j_outer"
nasty("matmul_clipped", *PRODUCT, "a, b, c: float32[n,n]", "i/4: g.1, l.1; j/4: g.0, l.0; k/8", assume="n>=8",
    at={"n": 19},
    then=lambda t: fetched("b", "k_inner,j_inner", ROUND)(fetched("a", "i_inner,k_inner", ROUND)(t)))  # fmt: skip
nasty("matmul_register_tiled", *PRODUCT, "a, b, c: float64[n,n]",
    "i/8: g.1; i_inner/4: ilp.unr, l.1; j/4: g.0, l.0; k/4", assume="n>=8 and n mod 8=0", at={"n": 24},
    then=fetched("a", "i_inner_outer,i_inner_inner,k_inner", ROUND))  # fmt: skip
nasty("precomputed_substitution", LINE, "f(a) := x[a]*x[a] + 1\ny[i] = f(i) + f(i+1) + f(i+2)", XY, ELEMENTS,
    assume="n>=8", at={"n": 18},
    then=lambda t: lp.precompute(t, "f", ["i_inner"], default_tag="l.auto", precompute_outer_inames="i_outer",
        temporary_address_space=lp.AddressSpace.LOCAL))  # fmt: skip
nasty("buffered_array", "{[i,k]: 0<=i<n and 0<=k<5}", "y[i] = y[i] + x[i+k]*x[k]", XY, ELEMENTS,
    seq_dependencies=True, **EIGHTS,
    then=lambda t: lp.buffer_array(t, "y", ["i_inner"], default_tag="l.auto", fetch_bounding_box=True,
        temporary_scope=lp.AddressSpace.LOCAL))  # fmt: skip
