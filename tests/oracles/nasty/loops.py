"""Nasty loops: bounds, strides, orders, odd work-groups, odd beginnings, reductions in sequence and in trees."""

import loopy as lp

from support.written_kernels import stepped

from .collection import ELEMENTS, nasty

X1 = "x, y: float32[4*n + 40]"
X2 = "x, y: float32[n + 16]"
BOTH = "n>=1 and m>=1"

# Domains that are empty, skewed, joined, with steps.
nasty("triangle_both_sequential", "{[i,j,k]: 0<=i<n and i<=j<n and j<=k<n}", "y[i+j+k] = x[i]*a[j,k] + y[i+j+k]",
    f"{X1}; a: float32[n,n]", at={"n": 11}, seq_dependencies=True)  # fmt: skip
nasty("min_bound", "{[i,j]: 0<=i<n and 0<=j<m and j<=i+2 and j<2*n-i}", "y[i] = sum(j, x[i+j])", X1, "i/4: g.0, l.0",
    assume=BOTH, at={"n": 7, "m": 10})  # fmt: skip
nasty("stride_three_existential", "{[i]: 2<=i<n and exists j: i=3*j+2}", "y[i] = 2*x[i]", X1, assume="n>=3",
    at={"n": 31})  # fmt: skip
nasty("negative_range", "{[i]: -n<=i<=-1}", "y[-i] = x[i+n]*x[-i]", X1, at={"n": 19})
nasty("empty_domain", "{[i]: m<=i<n}", "y[i] = x[i]", X1, ELEMENTS, assume=BOTH, at={"n": 5, "m": 9},
    differs={"kernel_launch": (1, 0)}, why="empty")  # fmt: skip
nasty("empty_inner_loop", ["{[i]: 0<=i<n}", "{[j]: m<=j<n}"], "y[i] = x[i] {id=a}\ny[i] = y[i] + sum(j, x[j]) {dep=a}",
    X1, ELEMENTS, assume=BOTH, at={"n": 5, "m": 9})  # fmt: skip
nasty("joined", "{[i,j]: 0<=i<5 and 0<=j<7}", "a[i,j] = b[j,i]*b[j,i] + 1", "a: float32[5,7]; b: float32[7,5]",
    assume="", at={}, then=lambda t: stepped(lp.join_inames(t, ["i", "j"], "ij"), "ij/8: g.0, l.0"))  # fmt: skip
nasty("renamed_and_duplicated", "{[i]: 0<=i<n}", "y[i] = x[i] {id=a}\nz[i] = x[i]*x[i] {id=b,dep=a}",
    f"{X1}; z: float32[n]", at={"n": 21},
    then=lambda t: stepped(lp.rename_iname(lp.duplicate_inames(t, "i", "id:b", "k"), "i", "p"), "p/8"))  # fmt: skip
nasty("floor_of_sum", "{[i,j]: 0<=i<n and 0<=j<m}", "y[i] = x[(2*i+j)//3]*x[(i+j) % 5] + y[i]",
    "x, y: float32[n + m + 8]", "i: g.0", assume=BOTH, at={"n": 11, "m": 8}, seq_dependencies=True)  # fmt: skip
nasty("lower_bound_with_floor", "{[i,j]: 0<=i<n and i//2<=j<i}", "y[i] = sum(j, x[j])", X1, ELEMENTS)
nasty("domain_with_modulo", "{[i]: 0<=i<n and 1 <= i mod 3 <= 2}", "y[i] = x[i]", X1, ELEMENTS)
nasty("two_loop_nests_with_one_name", ["{[i]: 0<=i<n}", "[i] -> {[j]: 0<=j<i}"],
    "for i\n y[i] = 0 {id=a}\n for j\n  y[i] = y[i] + x[j]*x[i] {id=b,dep=a}\n end\n y[i] = y[i]/2 {dep=b}\nend", X1,
    "i: g.0")  # fmt: skip
nasty("unused_loop", "{[i,unused]: 0<=i<n and 0<=unused<5}", "y[i] = x[i]", X2, ELEMENTS)
nasty("statement_without_loops", "{[i]: 0<=i<n}", "y[0] = x[1]*x[2] {id=a}\ny[i+1] = x[i] {dep=a}", X2)

# Iterations over work-items and work-groups.
BULK = ("{[i]: 0<=i<n}", "y[i] = x[i]*x[i+1] + 1", X1)
nasty("slabs", *BULK, assume="n>=17", at={"n": 37},
    then=lambda t: lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0", slabs=(0, 1)))  # fmt: skip
# Where n is no multiple of 4, loopy's last slab repeats an iteration of the bulk.
nasty("unrolled_remainder", *BULK, assume="n>=17", at={"n": 40},
    then=lambda t: lp.split_iname(t, "i", 4, inner_tag="unr", slabs=(0, 1)))  # fmt: skip
nasty("ilp_remainder", "{[i]: 0<=i<n}", "<> s = x[i]*x[i+1]\ny[i] = s + 1", X1, "i/24: g.0; i_inner/8: ilp, l.0",
    assume="n>=17", at={"n": 37})  # fmt: skip
nasty("split_twice", "{[i]: 0<=i<n}", "y[i] = x[i] + x[2*i]", X1, "i/12: g.0; i_inner/5: , l.0", at={"n": 43})
nasty("odd_work_groups_3d", "{[i,j,k]: 0<=i,j,k<n}", "a[i,j,k] = b[k,j,i] + c[j,i]",
    "a, b: float32[n,n,n]; c: float32[n,n]", "i/3: g.2, l.0; j/2: g.0, l.2; k/5: g.1, l.1", at={"n": 7})  # fmt: skip
nasty("statements_on_different_axes", "{[i,j,k]: 0<=i<n and 0<=j<4 and 0<=k<n}",
    "y[i] = x[i]*2 {id=a}\nz[k,j] = x[k+j] + 1 {id=b}", f"{X1}; z: float32[n,4]", "i/4: g.0, l.0; k: g.0; j: l.0",
    at={"n": 10})  # fmt: skip
nasty("hardware_axis_without_loop", "{[i,j]: 0<=i<n and 0<=j<n}",
    "<> s = x[i]*x[i+1] {id=a,inames=i}\na[i,j] = s + x[j] {id=b,dep=a}", f"{X1}; a: float32[n,n]",
    "j/4: g.1, l.1; i/4: g.0, l.0", at={"n": 6}, then=lp.add_inames_for_unused_hw_axes)  # fmt: skip
nasty("local_axis_from_two", "{[i,j]: 0<=i<n and 2<=j<10}", "a[i,j] = x[j]*x[i+j]", f"{X2}; a: float32[n,10]",
    "i: g.0; j: l.0")  # fmt: skip
nasty("split_from_one", "{[i]: 1<=i<n-1}", "y[i] = x[i-1] + x[i+1]", X2, ELEMENTS, assume="n>=3")
nasty("split_within_one_statement", "{[i]: 0<=i<n}", "y[i] = x[i] {id=a}\nz[i] = x[i]*2 {id=b}", f"{X2}; z: float32[n]",
    then=lambda t: lp.split_iname(t, "i", 4, within="id:a"))  # fmt: skip
nasty("sub_group_odd", "{[i,j,k]: 0<=i<n and 0<=j<3 and 0<=k<5}", "z[i,j,k] = x[i+j+k]*2", f"{X2}; z: float32[n,3,5]",
    "i: g.0; j: l.1; k: l.0", at={"n": 24})  # fmt: skip
nasty("skewed_parallel", "{[i,j]: 0<=i<n and 0<=j<m}", "a[i,j] = b[i,j] + b[i+1,j]",
    "a: float32[n,m]; b: float32[n+1,m]", assume=BOTH, at={"n": 9, "m": 6},
    then=lambda t: stepped(lp.affine_map_inames(t, "i,j", "d,k", ["d = i+2*j", "k = j"]), "d/4: g.0, l.0"))  # fmt: skip
nasty("group_bound_triangular", "{[i,j]: 0<=i<n and 0<=j<=i}", "a[i,j] = x[i]*x[j]", f"{X1}; a: float32[n,n]",
    "i/8: g.0, l.0; j/4: g.1, l.1", at={"n": 20})  # fmt: skip
nasty("no_first_group_axis", "{[i,j]: 0<=i,j<n}", "y[i] = x[j] + y[i]", X1, "i: g.1", refused="global axis 0|axis g.0")
nasty("no_first_local_axis", "{[i,j]: 0<=i<n and 0<=j<4}", "a[i,j] = x[j]", f"{X1}; a: float32[n,4]", "i: g.0; j: l.2",
    refused="local axis 0|axis l.0")  # fmt: skip
nasty("two_loops_on_one_axis", "{[i,j]: 0<=i,j<4}", "a[i,j] = 1", "a: float32[4,4]",
    then=lambda t: lp.tag_inames(t, "i:l.0,j:l.0"), assume="", at={}, refused=r"\bi\b.*\bj\b.*l\.0")  # fmt: skip
nasty("work_group_of_any_size", "{[i]: 0<=i<n}", "y[i] = x[i]", X1, "i: l.0",
    refused="work-group size .* is symbolic; fix it")  # fmt: skip
nasty("loop_without_end", "[n] -> {[i]: 0<=i}", "y[i] = x[i]", X1, refused="has no end.*give every loop")

# Reductions and scans.
AX = "x: float32[n + 16]; y: float32[n]; a: float32[n, 16]"
nasty("tree_sum_odd_length", "{[i,j]: 0<=i<n and 0<=j<13}", "y[i] = sum(j, a[i,j]*x[j]) + x[i]", AX, "i: g.0; j: l.0",
    at={"n": 9})  # fmt: skip
nasty("tree_sum_after_sequential", "{[i,j]: 0<=i<n and 0<=j<16}", "y[i] = sum(j, a[i,j]*x[j])", AX,
    "j/4: , l.0; i: g.0", at={"n": 9}, then=lambda t: lp.split_reduction_outward(t, "j_inner"))  # fmt: skip
nasty("tree_product_and_max", "{[i,j,k]: 0<=i<n and 0<=j,k<8}",
    "y[i] = product(j, x[i+j]) {id=a}\nz[i] = reduce(max, k, x[i+k])", f"{X2}; z: float32[n]", "i: g.0; j: l.0; k: l.0",
    at={"n": 12})  # fmt: skip
nasty("any_and_all", "{[i,j,k]: 0<=i<n and 0<=j,k<7}",
    "out[i] = reduce(any, j, x[i+j] > 0.5)\nout2[i] = reduce(all, k, x[i+k] > 0.1)", f"{X2}; out, out2: int32[n]",
    ELEMENTS, at={"n": 12})  # fmt: skip
nasty("argmin_in_a_tree", "{[i,j]: 0<=i<n and 0<=j<8}", "y[i], out[i] = argmin(j, x[i+j], j)", f"{X2}; out: int32[n]",
    "i: g.0; j: l.0", at={"n": 12})  # fmt: skip
nasty("segmented_sum", "{[i,j]: 0<=i<n and 0<=j<7}", "y[i], out[i] = reduce(segmented(sum), [j], x[i+j], p[j])",
    f"{X2}; p, out: int32[n+8]", ELEMENTS, at={"n": 12})  # fmt: skip
nasty("nested_triangular", "{[i,j,k]: 0<=i<n and 0<=j<=i and 0<=k<j}", "y[i] = sum(j, x[i+j]*sum(k, x[k]*x[j+k]))",
    "x: float32[2*n+16]; y: float32[n]", ELEMENTS, at={"n": 12})  # fmt: skip
nasty("over_two_loops_at_once", "{[i,j,k]: 0<=i<n and 0<=j<5 and 0<=k<=j}", "y[i] = sum((j,k), a[i,j+k]*x[k])", AX,
    ELEMENTS, at={"n": 12})  # fmt: skip
nasty("whole_array_one_group", "{[i]: 0<=i<n}", "y[0] = sum(i, x[i]*x[i])", X2, "i/8: , l.0", at={"n": 20},
    then=lambda t: lp.split_reduction_outward(t, "i_inner"))  # fmt: skip
nasty("with_a_condition_inside", "{[i,j]: 0<=i<n and 0<=j<7}", "y[i] = sum(j, x[i+j]*x[j] if x[j] > 0.3 else x[i])", X2,
    ELEMENTS, at={"n": 9})  # fmt: skip
nasty("typed_reduction", "{[i,j]: 0<=i<n and 0<=j<7}", "y[i] = sum(j, d[i+j]*x[j])", f"{X2}; d: float64[n+8]", ELEMENTS,
    at={"n": 9})  # fmt: skip
nasty("scan_sequential", "{[i,j]: 0<=i<n and 0<=j<=i}", "y[i] = sum(j, x[j])", X2, at={"n": 9},
    then=lambda t: lp.realize_reduction(t, force_scan=True))  # fmt: skip
nasty("scan_of_odd_length", "{[i,j]: 0<=i<13 and 0<=j<=i}", "y[i] = sum(j, x[j]*x[j]) + x[i]", "x, y: float32[13]",
    "i: l.0", assume="", at={}, then=lambda t: lp.realize_reduction(t, force_scan=True))  # fmt: skip
nasty("empty_reduction", "{[i,j]: 0<=i<n and i<=j<i}", "y[i] = sum(j, x[j]) + x[i]", X2, ELEMENTS,
    refused="cannot schedule.*is empty")  # fmt: skip
nasty("product_of_reduction_and_load", "{[i,j]: 0<=i<n and 0<=j<4}",
    "y[i] = 2*sum(j, 3*x[i+j]) + x[i]*product(j, x[j])", X2, ELEMENTS)  # fmt: skip
