"""Multiplication of many small matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, integers, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT
from uipick.generators._kernel import fits_in_local_memory, loaded_array, make_kernel, size_parameters, stored_array

if TYPE_CHECKING:
    import loopy as lp


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

    from uipick._access_tags import tag_accesses

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


MATMUL_BATCH = Generator(
    name="matmul_batch",
    tags=frozenset({"matmul_batch", "matmul", "batch"}),
    arguments=(
        DTYPE,
        Argument("order", "int", "rows and columns of each matrix", integers(2, 32), (4, 8, 16)),
        Argument("per_group", "int", "matrices per work-group", (1, 2, 4, 8, 16, 32, 64), (4,)),
        Argument("prefetch", "bool", "fetch both matrices into local memory", (True, False)),
        GROUPS_FIT,
        Argument("nbatch", "int", "pairs of matrices", multiples_of(1), (4096, 8192, 12288, 16384)),
    ),
    build=matmul_batch,
    size_arguments=("nbatch",),
    constraints=(
        Constraint(
            "a work-group has at most 1024 work-items (order order per_group), along axis 2 at most 64",
            lambda a: a["order"] ** 2 * a["per_group"] <= 1024,
        ),
        Constraint(
            "groups_fit:True needs nbatch to be a multiple of per_group",
            lambda a: not a["groups_fit"] or a["nbatch"] % a["per_group"] == 0,
        ),
        # loopy drops the fetch's axis of extent one, and its local array becomes each work-item's own.
        Constraint("prefetch:True needs per_group of at least 2", lambda a: not a["prefetch"] or a["per_group"] > 1),
        Constraint(
            "with prefetching the matrices must fit in 32 KiB of local memory (2 order order per_group elements)",
            lambda a: not a["prefetch"] or fits_in_local_memory(2 * a["order"] ** 2 * a["per_group"], a["dtype"]),
        ),
    ),
)
