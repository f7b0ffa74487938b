"""Global accesses of square matrix multiplication, the rest removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument
from uipick._generator import Generator
from uipick.generators.matmul import MATMUL_ARGUMENTS, MATMUL_CONSTRAINTS, matmul_sq

if TYPE_CHECKING:
    import loopy as lp

__all__ = ["MATMUL_SQ_MEM"]


def matmul_sq_mem(*, keep: str, **variant: str | bool | int) -> lp.TranslationUnit:
    """Global accesses of square matrix multiplication, arithmetic and local memory removed.

    The kernel of ``matmul_sq`` after work removal: of its accesses ``aLD``, ``bLD`` and ``cST`` only those in ``keep``
    (joined by ``_``) are left, in their loops and with their patterns and tags. Loads are summed in one variable, which
    is stored once per work-item with stride 1 (by ``cST``, or in ``read_tgt_dest`` without an access tag). Isolates
    ``f_mem_access_tag:aLD`` and ``f_mem_access_tag:bLD``; beside them there is one addition per load.

    Source: the paper's Sections 7.1.1 and 7.1.2, second variety of global memory access.
    """
    from uipick._remove_work import remove_work

    return remove_work(matmul_sq(**variant), keep_tags=keep.split("_"))  # type: ignore[arg-type]


MATMUL_SQ_MEM = Generator(
    name="matmul_sq_mem",
    tags=frozenset({"matmul_sq_mem", "work_removed"}),
    arguments=(
        *MATMUL_ARGUMENTS[:-1],
        Argument(
            "keep",
            "str",
            "access tags of the accesses that are left, joined by _",
            ("aLD", "bLD", "aLD_bLD", "cST", "aLD_cST", "bLD_cST", "aLD_bLD_cST"),
            ("aLD", "bLD", "aLD_bLD"),
        ),
        MATMUL_ARGUMENTS[-1],
    ),
    build=matmul_sq_mem,
    size_arguments=("n",),
    constraints=MATMUL_CONSTRAINTS,
)
