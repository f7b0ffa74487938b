"""Global memory: a working set loaded again and again, to tell cache levels apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._kernel import loaded_array, size_parameters, stored_array
from uipick.generators._line import CHAINS, FITTING_LINE_ARGUMENTS, LINE_STRIDE, make_group_kernel, sum_of_chains

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp


def gmem_working_set(
    *,
    dtype: str,
    lsize_0: int,
    groups_fit: bool,  # noqa: ARG001 - always true
    lid_stride_0: int,
    chains: int,
    shared: bool,
) -> lp.TranslationUnit:
    """Global loads of a working set, m times over: in a sequential loop, with a given lid(0) stride.

    Each work-group goes through ``working_set`` elements (gaps left by the stride included) in rows of lsize_0 times
    ``lid_stride_0``, each work-item with its own element of each row; after a barrier it starts anew, m times in all.
    With ``shared:True`` all work-groups have the same working set, else each its own. The sum is stored with stride 1.
    Loads carry the access tag ``inLD``, the store ``resST``. Isolates
    ``f_mem_access_global_<dtype>_load_lstrides:{0:<lid_stride_0>}_afr:>1`` (access-to-footprint ratio m, times the
    work-groups if shared) at the cost of the cache level that the working set fits in; beside the loads there are as
    many additions, and m local barriers.

    Source: after the paper's Section 7.1.2, accesses nested inside sequential loops.
    """
    import loopy as lp

    place, shape = "{row}, l0, 0", f"nrows, {chains}, {lsize_0}, {lid_stride_0}"
    if not shared:
        place, shape = f"g0, {place}", f"ngroups, {shape}"
    # Different sums in each work-item, lest a compiler add up once for the whole work-group.
    lines = sum_of_chains(f"in0$inLD[{place}]", chains, dtype, "l0", "j")
    before = lines.index("for j")
    total = " + ".join(f"x{c}" for c in range(chains))
    kernel = make_group_kernel(
        "gmem_working_set",
        [*lines[:before], "for round", *lines[before:], "... lbarrier", "end", f"result$resST[g0, l0] = {total}"],
        [
            loaded_array("in0", dtype, shape),
            stored_array("result", dtype, f"ngroups, {lsize_0}"),
            size_parameters("m, nrows"),
        ],
        lsize_0=lsize_0,
        loops=["{[round, j]: 0 <= round < m and 0 <= j < nrows}"],
        assume="nrows >= 1 and m >= 1",
    )
    return lp.prioritize_loops(kernel, "round, j")


# Any: argument values by name, of the types that the declarations say.
def _chunk(arguments: Mapping[str, Any]) -> int:
    return int(arguments["lsize_0"] * arguments["lid_stride_0"] * arguments["chains"])


GMEM_WORKING_SET = Generator(
    name="gmem_working_set",
    tags=frozenset({"gmem_working_set", "gmem"}),
    arguments=(
        *FITTING_LINE_ARGUMENTS,
        replace(LINE_STRIDE, default=(1,)),
        CHAINS,
        Argument("shared", "bool", "all work-groups have the same working set", (True, False), (False,)),
        Argument(
            "working_set",
            "int",
            "elements of a work-group's working set",
            multiples_of(1),
            (2048, 8192, 32768, 131072, 524288),
        ),
        Argument("ngroups", "int", "number of work-groups", multiples_of(1), (64,)),
        Argument("m", "int", "times that the working set is loaded", multiples_of(1), (8, 16)),
    ),
    build=gmem_working_set,
    size_arguments=("working_set", "ngroups", "m"),
    constraints=(
        Constraint(
            "working_set must be a multiple of lsize_0 times lid_stride_0 times chains",
            lambda a: a["working_set"] % _chunk(a) == 0,
        ),
    ),
    sizes=lambda a: {"m": a["m"], "nrows": a["working_set"] // _chunk(a), "ngroups": a["ngroups"]},
)
