"""Matrix-vector multiplication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT
from uipick.generators._kernel import loaded_array, make_kernel, size_parameters, stored_array
from uipick.generators._vectors import VECTOR_FITS, VECTOR_LSIZE

if TYPE_CHECKING:
    import loopy as lp


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

    from uipick._access_tags import tag_accesses

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


GEMV = Generator(
    name="gemv",
    tags=frozenset({"gemv", "blas"}),
    arguments=(
        DTYPE,
        Argument("layout", "str", "which elements of the matrix lie next to each other", ("rows", "columns")),
        Argument("prefetch", "bool", "fetch tiles of x into local memory", (True, False)),
        VECTOR_LSIZE,
        GROUPS_FIT,
        Argument("n", "int", "rows of the matrix", multiples_of(1), (2048, 4096)),
        Argument("m", "int", "columns of the matrix", multiples_of(1), (1024, 2048)),
    ),
    build=gemv,
    size_arguments=("n", "m"),
    constraints=(
        VECTOR_FITS,
        Constraint(
            "groups_fit:True needs m to be a multiple of lsize_0",
            lambda a: not a["groups_fit"] or a["m"] % a["lsize_0"] == 0,
        ),
    ),
)
