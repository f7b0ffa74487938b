"""Dense linear algebra: vectors, matrices with vectors, matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._generator import Argument, Constraint, integers, multiples_of
from uipick.generators._arguments import (
    DTYPE,
    GROUPS_FIT,
    LSIZE,
    LSIZE_0,
    LSIZE_1,
    MATRIX_SIZE,
    VECTOR_FITS,
    VECTOR_LSIZE,
    VECTOR_SIZE,
    WORK_GROUP_LIMIT,
    when_groups_fit,
)
from uipick.generators._declared import declared
from uipick.generators._kernel import (
    fits_in_local_memory,
    loaded_array,
    local_array,
    make_kernel,
    private_array,
    size_parameters,
    stored_array,
    updated_array,
)

if TYPE_CHECKING:
    import loopy as lp


def axpy(*, dtype: str, lsize_0: int, groups_fit: bool) -> lp.TranslationUnit:
    """Scaled vector addition y = 0.5 x + y in place, one element per work-item.

    Two global loads (access tags ``xLD``, ``yLD``), one multiply-add and one global store (``yST``) per work-item, all
    with stride 1 and AFR 1: memory bandwidth, with a load and a store of the same element. Features:
    ``f_mem_access_global_<dtype>``, 3 per work-item, and ``f_op_<dtype>_madd``, 1 per work-item.

    Source: BLAS level 1 (Lawson et al., 1979).
    """
    import loopy as lp

    kernel = make_kernel(
        "axpy",
        "{[i]: 0 <= i < n}",
        "y$yST[i] = 0.5 * x$xLD[i] + y$yLD[i]",
        [loaded_array("x", dtype, "n"), updated_array("y", dtype, "n"), size_parameters("n")],
    )
    kernel = lp.assume(kernel, "n >= 1" + (f" and n mod {lsize_0} = 0" if groups_fit else ""))
    return lp.split_iname(kernel, "i", lsize_0, outer_tag="g.0", inner_tag="l.0")


AXPY = declared(axpy, "blas", (DTYPE, VECTOR_LSIZE, GROUPS_FIT), (VECTOR_SIZE,), VECTOR_FITS)


def dot(*, dtype: str, ngroups: int, lsize_0: int, groups_fit: bool) -> lp.TranslationUnit:
    """Scalar product of two vectors, reduced in two stages, each a launch.

    In the first, ngroups work-groups run over x and y (access tags ``xLD``, ``yLD``, stride 1, each work-item every
    ngroups lsize_0 elements), then halve the number of partial sums in local memory again and again, with a barrier
    each time, and store one partial sum per work-group (``partST``). In the second, one work-group reduces these in
    the same way (``partLD``) and stores the result (``resST``). Features: multiply-adds and loads in a loop, local
    memory and barriers of a tree, two of ``f_sync_kernel_launch``; an application, which isolates none of them.

    Source: Harris, Optimizing Parallel Reduction in CUDA (2007).
    """
    import loopy as lp
    import numpy as np

    place = f"{ngroups * lsize_0}*round + {lsize_0}*group + item"
    last = f"{lsize_0}*last + last_item"
    kernel = make_kernel(
        # "dot" is the name of an OpenCL function.
        "dot_product",
        [
            f"{{[group]: 0 <= group < {ngroups}}}",
            f"{{[item, round]: 0 <= item < {lsize_0} and 0 <= round and {place} < n}}",
            f"{{[last_item, last]: 0 <= last_item < {lsize_0} and 0 <= last and {last} < {ngroups}}}",
        ],
        f"""
        partial$partST[group] = sum(item, sum(round, x$xLD[{place}] * y$yLD[{place}])) {{id=first}}
        ... gbarrier {{id=between, dep=first}}
        result$resST[0] = sum(last_item, sum(last, partial$partLD[{last}])) {{id=second, dep=between}}
        """,
        [
            loaded_array("x, y", dtype, "n"),
            stored_array("result", dtype, "1"),
            lp.TemporaryVariable("partial", np.dtype(dtype), (ngroups,), address_space=lp.AddressSpace.GLOBAL),
            size_parameters("n"),
        ],
        # Only one work-item is left in the last stage of a reduction; loopy asks for its iname all the same.
        silenced_warnings=["write_race(first)", "write_race(second)"],
    )
    kernel = lp.assume(kernel, "n >= 1" + (f" and n mod {ngroups * lsize_0} = 0" if groups_fit else ""))
    return lp.tag_inames(kernel, "group:g.0, item:l.0, last_item:l.0")


DOT = declared(
    dot,
    "blas reduction",
    (
        DTYPE,
        Argument("ngroups", "int", "work-groups of the first stage", integers(2, 4096), (64,)),
        VECTOR_LSIZE,
        GROUPS_FIT,
    ),
    (VECTOR_SIZE,),
    Constraint("a tree needs at least 2 work-items (lsize_0)", lambda a: a["lsize_0"] >= 2),
    when_groups_fit(
        "n to be a multiple of ngroups times lsize_0", lambda a: a["n"] % (a["ngroups"] * a["lsize_0"]) == 0
    ),
)


def gemv(*, dtype: str, layout: str, prefetch: bool, lsize_0: int, groups_fit: bool) -> lp.TranslationUnit:
    """Matrix-vector multiplication y = a x, one row of the n by m matrix per work-item.

    ``layout:rows`` stores rows one after another (lid(0) stride m), ``layout:columns`` columns (stride 1). With
    ``prefetch:True`` x is fetched in tiles of lsize_0 elements into local memory, two barriers per tile; with
    ``prefetch:False`` all work-items load the same element of x. Access tags ``aLD``, ``xLD`` and ``yST``; patterns
    are told apart by strides, ``f_mem_access_tag:aLD_lstrides:{0:1}`` for columns, ``xLD_lstrides:{0:0}`` without
    prefetching. Features: global loads in a loop (a with AFR 1), multiply-adds; an application, which isolates none.

    Source: BLAS level 2 (Dongarra et al., 1988).
    """
    import loopy as lp
    import numpy as np

    from uipick._accesses import tag_accesses

    kernel = make_kernel(
        "gemv",
        "{[i, j]: 0 <= i < n and 0 <= j < m}",
        "y[i] = sum(j, a[i, j] * x[j])",
        [
            lp.GlobalArg("a", np.dtype(dtype), shape="n, m", order="F" if layout == "columns" else "C"),
            loaded_array("x", dtype, "m"),
            stored_array("y", dtype, "n"),
            size_parameters("n, m"),
        ],
    )
    fit = f" and n mod {lsize_0} = 0 and m mod {lsize_0} = 0" if groups_fit else ""
    kernel = lp.assume(kernel, f"n >= 1 and m >= 1{fit}")
    kernel = lp.split_iname(kernel, "i", lsize_0, outer_tag="g.0", inner_tag="l.0")
    if prefetch:
        kernel = lp.split_iname(kernel, "j", lsize_0)
        kernel = lp.add_prefetch(kernel, "x", ["j_inner"], default_tag="l.auto")
        # The tile of x does not depend on the row: the fetch needs the group's axis added.
        kernel = lp.add_inames_for_unused_hw_axes(kernel)
    return tag_accesses(kernel, loads={"a": "aLD", "x": "xLD"}, stores={"y": "yST"})


GEMV = declared(
    gemv,
    "blas",
    (
        DTYPE,
        Argument("layout", "str", "which elements of the matrix lie next to each other", ("rows", "columns")),
        Argument("prefetch", "bool", "fetch tiles of x into local memory", (True, False)),
        VECTOR_LSIZE,
        GROUPS_FIT,
    ),
    (
        Argument("n", "int", "rows of the matrix", multiples_of(1), (2048, 4096)),
        Argument("m", "int", "columns of the matrix", multiples_of(1), (1024, 2048)),
    ),
    VECTOR_FITS,
    when_groups_fit("m to be a multiple of lsize_0", lambda a: a["m"] % a["lsize_0"] == 0),
)


def matmul_sq(*, dtype: str, prefetch: bool, lsize_0: int, lsize_1: int, groups_fit: bool) -> lp.TranslationUnit:
    """Square matrix multiplication c = a b, one element of c per work-item.

    With ``prefetch:True``, tiles of a and b are fetched into local memory (the k loop is split, two barriers
    per tile); with ``prefetch:False`` every operand comes from global memory and the k loop is not split.
    Accesses carry the tags ``aLD``, ``bLD`` and ``cST``. Features: multiply-adds, global loads in a loop, local
    loads and stores, barriers. It is an application, not a microbenchmark: it isolates none of them.

    Source: the paper's Sections 2.1 and 8.3.
    """
    import loopy as lp
    import numpy as np

    from uipick._accesses import tag_accesses

    kernel = make_kernel(
        "matmul_sq",
        "{[i,j,k]: 0<=i,j,k<n}",
        "c[i,j] = sum(k, a[i,k]*b[k,j])",
        [lp.GlobalArg("a,b,c", np.dtype(dtype), shape="n,n"), size_parameters("n")],
    )
    kernel = lp.split_iname(kernel, "i", lsize_1, outer_tag="g.1", inner_tag="l.1")
    kernel = lp.split_iname(kernel, "j", lsize_0, outer_tag="g.0", inner_tag="l.0")
    fit = f" and n mod {lsize_0} = 0 and n mod {lsize_1} = 0" if groups_fit else ""
    kernel = lp.assume(kernel, f"n >= 1{fit}")
    if prefetch:
        kernel = lp.split_iname(kernel, "k", lsize_0)
        kernel = lp.add_prefetch(kernel, "a", ["i_inner", "k_inner"], default_tag="l.auto")
        kernel = lp.add_prefetch(kernel, "b", ["k_inner", "j_inner"], default_tag="l.auto")
        # Neither tile depends on both axes of groups: their fetches need the missing one added.
        kernel = lp.add_inames_for_unused_hw_axes(kernel)
    return tag_accesses(kernel, loads={"a": "aLD", "b": "bLD"}, stores={"c": "cST"})


MATMUL_CONSTRAINTS = (
    when_groups_fit(
        "n to be a multiple of lsize_0 and lsize_1", lambda a: a["n"] % a["lsize_0"] == 0 and a["n"] % a["lsize_1"] == 0
    ),
    Constraint(
        "prefetch:True needs lsize_0 equal to lsize_1 (square tiles)",
        lambda a: not a["prefetch"] or a["lsize_0"] == a["lsize_1"],
    ),
    WORK_GROUP_LIMIT,
)

MATMUL_SQ = declared(
    matmul_sq,
    "matmul",
    (
        DTYPE,
        Argument("prefetch", "bool", "fetch tiles of both inputs into local memory", (True, False)),
        LSIZE_0,
        LSIZE_1,
        GROUPS_FIT,
    ),
    (MATRIX_SIZE,),
    *MATMUL_CONSTRAINTS,
)


def matmul_batch(*, dtype: str, order: int, per_group: int, prefetch: bool, groups_fit: bool) -> lp.TranslationUnit:
    """Multiplication of nbatch pairs of small square matrices, one element of a result per work-item.

    A work-group of order by order by per_group work-items computes per_group results; axis 2 tells the matrices of a
    work-group apart, axis 1 rows and axis 0 columns. The order is known to the compiler, which can unroll the sum.
    With ``prefetch:True`` the whole matrices are fetched into local memory, one barrier in all. Access tags ``aLD``,
    ``bLD`` and ``cST``; without prefetching a is loaded with lid(0) stride 0. Features: global loads with the AFR
    order, or 1 with prefetching, multiply-adds, local loads and stores; an application, which isolates none of them.

    Source: batched BLAS (Dongarra et al., 2017).
    """
    import loopy as lp

    from uipick._accesses import tag_accesses

    kernel = make_kernel(
        "matmul_batch",
        f"{{[e, i, j, k]: 0 <= e < nbatch and 0 <= i, j, k < {order}}}",
        "c[e, i, j] = sum(k, a[e, i, k] * b[e, k, j])",
        [
            loaded_array("a, b", dtype, f"nbatch, {order}, {order}"),
            stored_array("c", dtype, f"nbatch, {order}, {order}"),
            size_parameters("nbatch"),
        ],
    )
    kernel = lp.assume(kernel, "nbatch >= 1" + (f" and nbatch mod {per_group} = 0" if groups_fit else ""))
    kernel = lp.split_iname(kernel, "e", per_group, outer_tag="g.0", inner_tag="l.2")
    kernel = lp.tag_inames(kernel, "i:l.1, j:l.0")
    if prefetch:
        kernel = lp.add_prefetch(kernel, "a", ["e_inner", "i", "k"], default_tag=None)
        kernel = lp.add_prefetch(kernel, "b", ["e_inner", "k", "j"], default_tag=None)
        axes = {f"{name}_dim_{axis}": f"l.{2 - axis}" for name in "ab" for axis in range(3)}
        kernel = lp.tag_inames(kernel, axes)
    return tag_accesses(kernel, loads={"a": "aLD", "b": "bLD"}, stores={"c": "cST"})


MATMUL_BATCH = declared(
    matmul_batch,
    "matmul batch",
    (
        DTYPE,
        Argument("order", "int", "rows and columns of each matrix", integers(2, 32), (4, 8, 16)),
        Argument("per_group", "int", "matrices per work-group", (1, 2, 4, 8, 16, 32, 64), (4,)),
        Argument("prefetch", "bool", "fetch both matrices into local memory", (True, False)),
        GROUPS_FIT,
    ),
    (Argument("nbatch", "int", "pairs of matrices", multiples_of(1), (4096, 8192, 12288, 16384)),),
    Constraint(
        "a work-group has at most 1024 work-items (order order per_group), along axis 2 at most 64",
        lambda a: a["order"] ** 2 * a["per_group"] <= 1024,
    ),
    when_groups_fit("nbatch to be a multiple of per_group", lambda a: a["nbatch"] % a["per_group"] == 0),
    # loopy drops the fetch's axis of extent one, and its local array becomes each work-item's own.
    Constraint("prefetch:True needs per_group of at least 2", lambda a: not a["prefetch"] or a["per_group"] > 1),
    Constraint(
        "with prefetching the matrices must fit in 32 KiB of local memory (2 order order per_group elements)",
        lambda a: not a["prefetch"] or fits_in_local_memory(2 * a["order"] ** 2 * a["per_group"], a["dtype"]),
    ),
)


# Each use of the block has loops of its own (start, fetch, copy, update, end): a loop is opened in one place.
_ROWS = ("r_start", "r_fetch", "r_copy", "r", "r_end")
_COLUMNS = ("s_start", "s_fetch", "s_copy", "s", "s_end")


def matmul_rb(*, dtype: str, rows: int, columns: int, lsize: int, groups_fit: bool) -> lp.TranslationUnit:
    """Register-blocked matrix multiplication c = a b, rows by columns elements of c per work-item.

    Work-groups of lsize by lsize work-items fetch tiles of a (rows lsize by lsize) and of b (lsize by columns lsize)
    into local memory, two barriers per tile. For each k of a tile a work-item copies rows elements of a and columns of
    b into private variables and does rows times columns multiply-adds with them, all unrolled. Its elements of c lie
    lsize apart, so that lid(0) has stride 1 everywhere in b and c. Access tags ``aLD``, ``bLD`` and ``cST``.
    Features: as of ``matmul_sq`` with prefetching, with rows times columns / (rows + columns) multiply-adds per local
    load in place of 1/2. It is an application, not a microbenchmark: it isolates none of them.

    Source: the paper's Section 8.3, with the blocking that tuned matrix multiplications add to it.
    """
    import loopy as lp

    kernel = make_kernel(
        "matmul_rb",
        _domains(rows, columns, lsize),
        _body(rows, columns, lsize),
        [
            loaded_array("a, b", dtype, "n, n"),
            stored_array("c", dtype, "n, n"),
            size_parameters("n"),
            local_array("a_tile", dtype, (rows * lsize, lsize)),
            local_array("b_tile", dtype, (lsize, columns * lsize)),
            private_array("a_own", dtype, (rows,)),
            private_array("b_own", dtype, (columns,)),
            private_array("sums", dtype, (rows, columns)),
        ],
        in_order=True,
    )
    fit = f" and n mod {rows * lsize} = 0 and n mod {columns * lsize} = 0" if groups_fit else ""
    kernel = lp.assume(kernel, f"n >= 1{fit}")
    kernel = lp.tag_inames(kernel, "group_0:g.0, group_1:g.1, item_0:l.0, item_1:l.1, k_a:l.0, k_b:l.1")
    return lp.tag_inames(kernel, dict.fromkeys((*_ROWS, *_COLUMNS), "unr"))


def _body(rows: int, columns: int, lsize: int) -> str:
    return f"""
    for group_1, group_0
        for item_1, item_0, r_start, s_start
            sums[r_start, s_start] = 0 {{id=start}}
        end
        for k_outer
            for item_1, k_a, r_fetch
                a_tile[{lsize}*r_fetch + item_1, k_a] = \
                    a$aLD[{rows * lsize}*group_1 + {lsize}*r_fetch + item_1, {lsize}*k_outer + k_a]
            end
            for k_b, item_0, s_fetch
                b_tile[k_b, {lsize}*s_fetch + item_0] = \
                    b$bLD[{lsize}*k_outer + k_b, {columns * lsize}*group_0 + {lsize}*s_fetch + item_0]
            end
            for item_1, item_0, k_inner
                for r_copy
                    a_own[r_copy] = a_tile[{lsize}*r_copy + item_1, k_inner]
                end
                for s_copy
                    b_own[s_copy] = b_tile[k_inner, {lsize}*s_copy + item_0]
                end
                for r, s
                    sums[r, s] = sums[r, s] + a_own[r] * b_own[s]
                end
            end
        end
        for item_1, item_0, r_end, s_end
            c$cST[{rows * lsize}*group_1 + {lsize}*r_end + item_1, \
                {columns * lsize}*group_0 + {lsize}*s_end + item_0] = sums[r_end, s_end]
        end
    end
    """


def _domains(rows: int, columns: int, lsize: int) -> list[str]:
    place = (
        f"{rows * lsize}*group_1 + {lsize}*{{0}} + item_1 < n",
        f"{columns * lsize}*group_0 + {lsize}*{{0}} + item_0 < n",
    )
    return [
        f"{{[group_1, group_0]: 0 <= {rows * lsize}*group_1 < n and 0 <= {columns * lsize}*group_0 < n}}",
        f"{{[item_1, item_0]: 0 <= item_1, item_0 < {lsize}}}",
        f"{{[k_outer]: 0 <= {lsize}*k_outer < n}}",
        *(f"{{[{k}]: 0 <= {k} < {lsize} and {lsize}*k_outer + {k} < n}}" for k in ("k_a", "k_b", "k_inner")),
        *(f"{{[{r}]: 0 <= {r} < {rows} and {place[0].format(r)}}}" for r in _ROWS),
        *(f"{{[{s}]: 0 <= {s} < {columns} and {place[1].format(s)}}}" for s in _COLUMNS),
    ]


MATMUL_RB = declared(
    matmul_rb,
    "matmul",
    (
        DTYPE,
        Argument("rows", "int", "rows of c per work-item", (1, 2, 4, 8), (2, 4)),
        Argument("columns", "int", "columns of c per work-item", (1, 2, 4, 8), (2, 4)),
        LSIZE,
        GROUPS_FIT,
    ),
    (MATRIX_SIZE,),
    when_groups_fit(
        "n to be a multiple of rows and of columns times lsize",
        lambda a: a["n"] % (a["rows"] * a["lsize"]) == 0 == a["n"] % (a["columns"] * a["lsize"]),
    ),
    Constraint(
        "the tiles must fit in 32 KiB of local memory ((rows + columns) lsize lsize elements)",
        lambda a: fits_in_local_memory((a["rows"] + a["columns"]) * a["lsize"] ** 2, a["dtype"]),
    ),
)
