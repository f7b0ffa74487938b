"""Global memory: elements that several work-items load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, integers, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._kernel import loaded_array, size_parameters, stored_array
from uipick.generators._line import (
    CHAINS,
    CHAINS_DIVIDE,
    FITTING_LINE_ARGUMENTS,
    LINE_NELEMENTS,
    items_divide,
    make_group_kernel,
    make_line_kernel,
    sum_of_chains,
    whole_items,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp


def gmem_reuse(*, dtype: str, lsize_0: int, groups_fit: bool, by: str, afr: int, chains: int) -> lp.TranslationUnit:
    """Global loads of elements that ``afr`` work-items load: access-to-footprint ratio ``afr``.

    Each work-item adds up m elements, one of each row of a matrix, with lid(0) stride 1, and stores the sum. There are
    ``afr`` such work-items for each column: with ``by:groups`` in as many work-groups along gid(1), with ``by:items``
    in one work-group along lid(1), which has stride 0. Loads carry the access tag ``inLD``, the store ``resST``.
    Isolates ``f_mem_access_global_<dtype>_load_lstrides:{0:1}_afr:<afr>``, m per work-item; beside them there are as
    many additions, and chains - 1 more.

    Source: after the paper's Sections 6.1.1 and 7.1.2, access-to-footprint ratio.
    """
    import loopy as lp

    axis = {"groups": "g1", "items": "l1"}[by]
    # Different sums in each work-item, lest a compiler add up once for all of them.
    body = sum_of_chains("in0$inLD[{row}, {item}]", chains, dtype, axis, "k")
    kernel = make_line_kernel(
        "gmem_reuse",
        [
            f"for {axis}",
            *body,
            f"result$resST[{axis}, {{item}}] = " + " + ".join(f"x{c}" for c in range(chains)),
            "end",
        ],
        [
            loaded_array("in0", dtype, f"rounds, {chains}, nitems"),
            stored_array("result", dtype, f"{afr}, nitems"),
            size_parameters("rounds"),
        ],
        lsize_0=lsize_0,
        groups_fit=groups_fit,
        loops=[f"{{[{axis}]: 0 <= {axis} < {afr}}}", "{[k]: 0 <= k < rounds}"],
        assume="rounds >= 1",
    )
    return lp.tag_inames(kernel, {axis: "g.1" if by == "groups" else "l.1"})


def gmem_uniform(*, dtype: str, lsize_0: int, groups_fit: bool, by: str, chains: int) -> lp.TranslationUnit:  # noqa: ARG001 - groups_fit is always true
    """Uniform global loads: all work-items of a work-group load the same m elements, one after another.

    With ``by:launch`` all work-groups load the same ones, with ``by:groups`` each work-group has its own. Each
    work-item adds them up and stores the sum with stride 1. Loads carry the access tag ``inLD``, the store ``resST``.
    Isolates ``f_mem_access_global_<dtype>_load_lstrides:{0:0}``, m per sub-group; beside them there are as many
    additions, and chains - 1 more.

    Source: after the paper's Sections 5 and 7.1.2, uniform access.
    """
    place, shape = ("g0, {row}", f"ngroups, rounds, {chains}") if by == "groups" else ("{row}", f"rounds, {chains}")
    # Different sums in each work-item, lest a compiler add up once for the whole work-group.
    body = sum_of_chains(f"in0$inLD[{place}]", chains, dtype, "l0", "k")
    return make_group_kernel(
        "gmem_uniform",
        [*body, "result$resST[g0, l0] = " + " + ".join(f"x{c}" for c in range(chains))],
        [
            loaded_array("in0", dtype, shape),
            stored_array("result", dtype, f"ngroups, {lsize_0}"),
            size_parameters("rounds"),
        ],
        lsize_0=lsize_0,
        loops=["{[k]: 0 <= k < rounds}"],
        assume="rounds >= 1",
    )


_M = Argument("m", "int", "loads per work-item", multiples_of(1), (16, 32))


# Any: argument values by name, of the types that the declarations say.
def _rows(arguments: Mapping[str, Any]) -> int:
    return int(arguments["m"])


GMEM_REUSE = Generator(
    name="gmem_reuse",
    tags=frozenset({"gmem_reuse", "gmem"}),
    arguments=(
        *FITTING_LINE_ARGUMENTS,
        Argument(
            "by", "str", "whether work-groups or the work-items of one load the same elements", ("groups", "items")
        ),
        Argument("afr", "int", "work-items that load an element", integers(2, 1024), (2, 4, 16)),
        CHAINS,
        LINE_NELEMENTS,
        _M,
    ),
    build=gmem_reuse,
    size_arguments=("nelements", "m"),
    constraints=(
        CHAINS_DIVIDE,
        Constraint(
            "by:items needs lsize_0 times afr of at most 1024 (work-items of a work-group)",
            lambda a: a["by"] != "items" or a["lsize_0"] * a["afr"] <= 1024,
        ),
        whole_items("m", _rows),
        items_divide("m", _rows),
    ),
    sizes=lambda a: {"nitems": a["nelements"] // a["m"], "rounds": a["m"] // a["chains"]},
)

GMEM_UNIFORM = Generator(
    name="gmem_uniform",
    tags=frozenset({"gmem_uniform", "gmem"}),
    arguments=(
        *FITTING_LINE_ARGUMENTS,
        Argument(
            "by", "str", "who loads the same elements: the whole launch, or each work-group", ("launch", "groups")
        ),
        CHAINS,
        Argument("ngroups", "int", "number of work-groups", multiples_of(1), (512, 1024, 2048)),
        Argument("m", "int", "loads per work-item", multiples_of(1), (64, 128, 256)),
    ),
    build=gmem_uniform,
    size_arguments=("ngroups", "m"),
    constraints=(CHAINS_DIVIDE,),
    sizes=lambda a: {"ngroups": a["ngroups"], "rounds": a["m"] // a["chains"]},
)
