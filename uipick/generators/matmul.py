"""Square matrix multiplication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT, LSIZE_0, LSIZE_1, MATRIX_SIZE, WORK_GROUP_LIMIT
from uipick.generators._kernel import make_kernel, size_parameters

if TYPE_CHECKING:
    import loopy as lp


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

    from uipick._access_tags import tag_accesses

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


MATMUL_ARGUMENTS = (
    DTYPE,
    Argument("prefetch", "bool", "fetch tiles of both inputs into local memory", (True, False)),
    LSIZE_0,
    LSIZE_1,
    GROUPS_FIT,
    MATRIX_SIZE,
)
MATMUL_CONSTRAINTS = (
    Constraint(
        "groups_fit:True needs n to be a multiple of lsize_0 and lsize_1",
        lambda a: not a["groups_fit"] or (a["n"] % a["lsize_0"] == 0 and a["n"] % a["lsize_1"] == 0),
    ),
    Constraint(
        "prefetch:True needs lsize_0 equal to lsize_1 (square tiles)",
        lambda a: not a["prefetch"] or a["lsize_0"] == a["lsize_1"],
    ),
    WORK_GROUP_LIMIT,
)

MATMUL_SQ = Generator(
    name="matmul_sq",
    tags=frozenset({"matmul_sq", "matmul"}),
    arguments=MATMUL_ARGUMENTS,
    build=matmul_sq,
    size_arguments=("n",),
    constraints=MATMUL_CONSTRAINTS,
)
