"""Several launches in one program, and launches of many small work-groups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from uipick._argument import Argument, integers, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT_ONLY
from uipick.generators._kernel import make_kernel, size_parameters, stored_array
from uipick.generators._line import FITTING_LINE_ARGUMENTS, LINE_LSIZE, make_line_kernel

if TYPE_CHECKING:
    import loopy as lp


def launches(*, dtype: str, lsize_0: int, groups_fit: bool, stages: int) -> lp.TranslationUnit:  # noqa: ARG001 - groups_fit is always true
    """Several launches in one program: ``stages`` of them, separated by global barriers.

    In each stage each work-item stores its number in a row of its own (access tag ``resST``). Isolates
    ``f_sync_kernel_launch`` (``stages`` of them) when there are few work-groups: what a further launch costs that does
    not wait for the host, as opposed to the first one. The barriers are the ends of launches and do not count besides.

    Source: after the paper's Section 7.1.2, other features.
    """
    import loopy as lp

    body = []
    for stage in range(stages):
        body += ["... gbarrier"] if stage else []
        body += [
            "for g0, l0",
            f"<int32> number{stage} = {lsize_0}*g0 + l0",
            f"result$resST[{stage}, g0, l0] = number{stage}",
            "end",
        ]
    kernel = make_kernel(
        "launches",
        f"{{[g0, l0]: 0 <= g0 < ngroups and 0 <= l0 < {lsize_0}}}",
        "\n".join(body),
        [
            stored_array("result", dtype, f"{stages}, ngroups, {lsize_0}"),
            size_parameters("ngroups"),
        ],
        in_order=True,
    )
    kernel = lp.assume(kernel, "ngroups >= 1")
    return lp.tag_inames(kernel, "g0:g.0, l0:l.0")


def small_groups(*, dtype: str, lsize_0: int, groups_fit: bool) -> lp.TranslationUnit:  # noqa: ARG001 - groups_fit is always true
    """Launch of a given number of work-items in work-groups of a given size.

    Each work-item stores its number with stride 1 (access tag ``resST``). With ``nitems`` fixed and ``lsize_0`` varied
    only the number of work-groups changes: isolates ``f_thread_groups``, for work-groups that do something (those of
    ``empty`` do not).

    Source: after the paper's Section 7.1.2, other features.
    """
    return make_line_kernel(
        "small_groups",
        ["<int32> number = {item}", "result$resST[{item}] = number"],
        [stored_array("result", dtype, "nitems")],
        lsize_0=lsize_0,
    )


LAUNCHES = Generator(
    name="launches",
    tags=frozenset({"launches", "launch"}),
    arguments=(
        *FITTING_LINE_ARGUMENTS,
        Argument("stages", "int", "launches of the program", integers(1, 16), (1, 2, 4, 8)),
        Argument("ngroups", "int", "number of work-groups of each launch", multiples_of(1), (16, 256)),
    ),
    build=launches,
    size_arguments=("ngroups",),
)

SMALL_GROUPS = Generator(
    name="small_groups",
    tags=frozenset({"small_groups", "launch"}),
    arguments=(
        DTYPE,
        replace(LINE_LSIZE, default=(1, 4, 16, 64, 256)),
        GROUPS_FIT_ONLY,
        Argument("nitems", "int", "work-items", multiples_of(1), (262144, 524288)),
    ),
    build=small_groups,
    size_arguments=("nitems",),
    constraints=(Constraint("nitems must be a multiple of lsize_0", lambda a: a["nitems"] % a["lsize_0"] == 0),),
)
