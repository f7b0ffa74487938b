"""A launch that does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, multiples_of
from uipick._generator import Generator
from uipick.generators._arguments import LSIZE_0, LSIZE_1, WORK_GROUP_LIMIT
from uipick.generators._kernel import make_kernel, size_parameters

if TYPE_CHECKING:
    import loopy as lp


def empty(*, lsize_0: int, lsize_1: int) -> lp.TranslationUnit:
    """Launch of ngroups work-groups that do nothing.

    Isolates ``f_sync_kernel_launch`` (few work-groups) and ``f_thread_groups`` (many).

    Source: the paper's Section 7.1.2, other features.
    """
    import loopy as lp

    kernel = make_kernel(
        "empty",
        f"{{[g0, l0, l1]: 0 <= g0 < ngroups and 0 <= l0 < {lsize_0} and 0 <= l1 < {lsize_1}}}",
        """
        for g0, l1, l0
            ... nop
        end
        """,
        [size_parameters("ngroups")],
    )
    kernel = lp.assume(kernel, "ngroups >= 1")
    return lp.tag_inames(kernel, "g0:g.0, l0:l.0, l1:l.1")


EMPTY = Generator(
    name="empty",
    tags=frozenset({"empty", "launch"}),
    arguments=(
        LSIZE_0,
        LSIZE_1,
        Argument("ngroups", "int", "number of work-groups", multiples_of(1), (16, 256, 4096, 16384, 65536)),
    ),
    build=empty,
    size_arguments=("ngroups",),
    constraints=(WORK_GROUP_LIMIT,),
)
