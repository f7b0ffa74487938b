"""Dense linear algebra: vectors, matrices with vectors, matrix products."""

from __future__ import annotations

import numpy as np

from uipick import _loopy as lp
from uipick._generator import Constraint
from uipick.generators import _arguments as arg
from uipick.generators._arrays import (
    loaded_array,
    local_array,
    private_array,
    size_parameters,
    stored_array,
    updated_array,
)
from uipick.generators._declared import declared
from uipick.generators._kernel import make_kernel, tagged


def axpy(*, dtype: str, lsize_0: int, assume: str) -> lp.TranslationUnit:
    """Scaled vector addition y = 0.5 x + y in place, one element per work-item.

    Two global loads (access tags ``xLD``, ``yLD``), one multiply-add and one global store (``yST``) per work-item, all
    with stride 1 and AFR 1: memory bandwidth, with a load and a store of the same element. Features:
    ``f_mem_access_global_<dtype>``, 3 per work-item, and ``f_op_<dtype>_madd``, 1 per work-item.

    Source: BLAS level 1 (Lawson et al., 1979).
    """
    kernel = make_kernel(
        "axpy",
        "{[i]: 0 <= i < n}",
        "y$yST[i] = 0.5 * x$xLD[i] + y$yLD[i]",
        [loaded_array("x", dtype, "n"), updated_array("y", dtype, "n"), size_parameters("n")],
        assume=assume,
    )
    return lp.split_iname(kernel, "i", lsize_0, outer_tag="g.0", inner_tag="l.0")


AXPY = declared(axpy, "blas", (arg.DTYPE, *arg.VECTOR_ARGUMENTS), (arg.VECTOR_SIZE,), fits="n % lsize_0")


def dot(*, dtype: str, ngroups: int, lsize_0: int, assume: str) -> lp.TranslationUnit:
    """Scalar product of two vectors, reduced in two stages, each a launch.

    In the first, ngroups work-groups run over x and y (access tags ``xLD``, ``yLD``, stride 1, each work-item every
    ngroups lsize_0 elements), then halve the number of partial sums in local memory again and again, with a barrier
    each time, and store one partial sum per work-group (``partST``). In the second, one work-group reduces these in
    the same way (``partLD``) and stores the result (``resST``). Features: multiply-adds and loads in a loop, local
    memory and barriers of a tree, two of ``f_sync_kernel_launch``; an application, which isolates none of them.

    Source: Harris, Optimizing Parallel Reduction in CUDA (2007).
    """
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
        assume=assume,
    )
    return lp.tag_inames(kernel, "group:g.0, item:l.0, last_item:l.0")


DOT = declared(
    dot,
    "blas reduction",
    (arg.DTYPE, arg.within("ngroups", "work-groups of the first stage", 2, 4096, 64), *arg.VECTOR_ARGUMENTS),
    (arg.VECTOR_SIZE,),
    # A tree needs two work-items.
    Constraint("lsize_0 >= 2"),
    fits="n % (ngroups * lsize_0)",
)


def gemv(*, dtype: str, layout: str, prefetch: bool, lsize_0: int, assume: str) -> lp.TranslationUnit:
    """Matrix-vector multiplication y = a x, one row of the n by m matrix per work-item.

    ``layout:rows`` stores rows one after another (lid(0) stride m), ``layout:columns`` columns (stride 1). With
    ``prefetch:True`` x is fetched in tiles of lsize_0 elements into local memory, two barriers per tile; with
    ``prefetch:False`` all work-items load the same element of x. Access tags ``aLD``, ``xLD`` and ``yST``; patterns
    are told apart by strides, ``f_mem_access_tag:aLD_lstrides:{0:1}`` for columns, ``xLD_lstrides:{0:0}`` without
    prefetching. Features: global loads in a loop (a with AFR 1), multiply-adds; an application, which isolates none.

    Source: BLAS level 2 (Dongarra et al., 1988).
    """
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
        assume=assume,
    )
    kernel = lp.split_iname(kernel, "i", lsize_0, outer_tag="g.0", inner_tag="l.0")
    if prefetch:
        kernel = lp.split_iname(kernel, "j", lsize_0)
        kernel = lp.add_prefetch(kernel, "x", ["j_inner"], default_tag="l.auto")
        # The tile of x does not depend on the row: the fetch needs the group's axis added.
        kernel = lp.add_inames_for_unused_hw_axes(kernel)
    return tagged(kernel, loads={"a": "aLD", "x": "xLD"}, stores={"y": "yST"})


GEMV = declared(
    gemv,
    "blas",
    (
        arg.DTYPE,
        arg.choice("layout", "which elements of the matrix lie next to each other", ("rows", "columns")),
        arg.choice("prefetch", "fetch tiles of x into local memory", (True, False)),
        *arg.VECTOR_ARGUMENTS,
    ),
    (arg.positive("n", "rows of the matrix", 2048, 4096), arg.positive("m", "columns of the matrix", 1024, 2048)),
    fits="n % lsize_0, m % lsize_0",
)


def matmul_sq(*, dtype: str, prefetch: bool, lsize_0: int, lsize_1: int, assume: str) -> lp.TranslationUnit:
    """Square matrix multiplication c = a b, one element of c per work-item.

    With ``prefetch:True``, tiles of a and b are fetched into local memory (the k loop is split, two barriers
    per tile); with ``prefetch:False`` every operand comes from global memory and the k loop is not split.
    Accesses carry the tags ``aLD``, ``bLD`` and ``cST``. Features: multiply-adds, global loads in a loop, local
    loads and stores, barriers. It is an application, not a microbenchmark: it isolates none of them.

    Source: the paper's Sections 2.1 and 8.3.
    """
    kernel = make_kernel(
        "matmul_sq",
        "{[i,j,k]: 0<=i,j,k<n}",
        "c[i,j] = sum(k, a[i,k]*b[k,j])",
        [lp.GlobalArg("a,b,c", np.dtype(dtype), shape="n,n"), size_parameters("n")],
        assume=assume,
    )
    kernel = lp.split_iname(kernel, "i", lsize_1, outer_tag="g.1", inner_tag="l.1")
    kernel = lp.split_iname(kernel, "j", lsize_0, outer_tag="g.0", inner_tag="l.0")
    if prefetch:
        kernel = lp.split_iname(kernel, "k", lsize_0)
        kernel = lp.add_prefetch(kernel, "a", ["i_inner", "k_inner"], default_tag="l.auto")
        kernel = lp.add_prefetch(kernel, "b", ["k_inner", "j_inner"], default_tag="l.auto")
        # Neither tile depends on both axes of groups: their fetches need the missing one added.
        kernel = lp.add_inames_for_unused_hw_axes(kernel)
    return tagged(kernel, loads={"a": "aLD", "b": "bLD"}, stores={"c": "cST"})


_PREFETCH = arg.choice("prefetch", "fetch tiles of both inputs into local memory", (True, False))
MATMUL_SQ = declared(
    matmul_sq,
    "matmul",
    (arg.DTYPE, _PREFETCH, *arg.SQUARE_ARGUMENTS),
    (arg.MATRIX_SIZE,),
    arg.needs("prefetch:True", "lsize_0 == lsize_1"),
    arg.WORK_GROUP_LIMIT,
    fits="n % lsize_0, n % lsize_1",
)


def matmul_batch(*, dtype: str, order: int, per_group: int, prefetch: bool, assume: str) -> lp.TranslationUnit:
    """Multiplication of nbatch pairs of small square matrices, one element of a result per work-item.

    A work-group of order by order by per_group work-items computes per_group results; axis 2 tells the matrices of a
    work-group apart, axis 1 rows and axis 0 columns. The order is known to the compiler, which can unroll the sum.
    With ``prefetch:True`` the whole matrices are fetched into local memory, one barrier in all. Access tags ``aLD``,
    ``bLD`` and ``cST``; without prefetching a is loaded with lid(0) stride 0. Features: global loads with the AFR
    order, or 1 with prefetching, multiply-adds, local loads and stores; an application, which isolates none of them.

    Source: batched BLAS (Dongarra et al., 2017).
    """
    kernel = make_kernel(
        "matmul_batch",
        f"{{[e, i, j, k]: 0 <= e < nbatch and 0 <= i, j, k < {order}}}",
        "c[e, i, j] = sum(k, a[e, i, k] * b[e, k, j])",
        [
            loaded_array("a, b", dtype, f"nbatch, {order}, {order}"),
            stored_array("c", dtype, f"nbatch, {order}, {order}"),
            size_parameters("nbatch"),
        ],
        assume=assume,
    )
    kernel = lp.split_iname(kernel, "e", per_group, outer_tag="g.0", inner_tag="l.2")
    kernel = lp.tag_inames(kernel, "i:l.1, j:l.0")
    if prefetch:
        kernel = lp.add_prefetch(kernel, "a", ["e_inner", "i", "k"], default_tag=None)
        kernel = lp.add_prefetch(kernel, "b", ["e_inner", "k", "j"], default_tag=None)
        axes = {f"{name}_dim_{axis}": f"l.{2 - axis}" for name in "ab" for axis in range(3)}
        kernel = lp.tag_inames(kernel, axes)
    return tagged(kernel, loads={"a": "aLD", "b": "bLD"}, stores={"c": "cST"})


MATMUL_BATCH = declared(
    matmul_batch,
    "matmul batch",
    (
        arg.DTYPE,
        arg.within("order", "rows and columns of each matrix", 2, 32, 4, 8, 16),
        arg.choice("per_group", "matrices per work-group", (1, 2, 4, 8, 16, 32, 64), 4),
        arg.choice("prefetch", "fetch both matrices into local memory", (True, False)),
        arg.GROUPS_FIT,
    ),
    (arg.positive("nbatch", "pairs of matrices", 4096, 8192, 12288, 16384),),
    # Work-items of a work-group; along axis 2 there are at most 64.
    Constraint("order**2 * per_group <= 1024"),
    # loopy drops the fetch's axis of extent one, and its local array becomes each work-item's own.
    arg.needs("prefetch:True", "per_group > 1"),
    arg.in_local_memory("2 * order**2 * per_group", "prefetch:True"),
    fits="nbatch % per_group",
)


# Each use of the block has loops of its own (start, fetch, copy, update, end): a loop is opened in one place.
_ROWS = ("r_start", "r_fetch", "r_copy", "r", "r_end")
_COLUMNS = ("s_start", "s_fetch", "s_copy", "s", "s_end")


def matmul_rb(*, dtype: str, rows: int, columns: int, lsize: int, assume: str) -> lp.TranslationUnit:
    """Register-blocked matrix multiplication c = a b, rows by columns elements of c per work-item.

    Work-groups of lsize by lsize work-items fetch tiles of a (rows lsize by lsize) and of b (lsize by columns lsize)
    into local memory, two barriers per tile. For each k of a tile a work-item copies rows elements of a and columns of
    b into private variables and does rows times columns multiply-adds with them, all unrolled. Its elements of c lie
    lsize apart, so that lid(0) has stride 1 everywhere in b and c. Access tags ``aLD``, ``bLD`` and ``cST``.
    Features: as of ``matmul_sq`` with prefetching, with rows times columns / (rows + columns) multiply-adds per local
    load in place of 1/2. It is an application, not a microbenchmark: it isolates none of them.

    Source: the paper's Section 8.3, with the blocking that tuned matrix multiplications add to it.
    """
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
        assume=assume,
        in_order=True,
    )
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
        arg.DTYPE,
        arg.choice("rows", "rows of c per work-item", (1, 2, 4, 8), 2, 4),
        arg.choice("columns", "columns of c per work-item", (1, 2, 4, 8), 2, 4),
        arg.LSIZE,
        arg.GROUPS_FIT,
    ),
    (arg.MATRIX_SIZE,),
    arg.in_local_memory("(rows + columns) * lsize**2"),
    fits="n % (rows * lsize), n % (columns * lsize)",
)
