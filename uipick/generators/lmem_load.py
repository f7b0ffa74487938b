"""Local memory: loads with bank conflicts, and loads of one element by all work-items."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, integers, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT_ONLY
from uipick.generators._kernel import LOCAL_BYTES, local_array, size_parameters, stored_array
from uipick.generators._line import CHAINS, CHAINS_DIVIDE, LINE_LSIZE, LINE_STRIDE, make_group_kernel, sum_of_chains

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp

_MOST_BLOCKS = 8


def lmem_load(*, dtype: str, lsize_0: int, groups_fit: bool, lid_stride_0: int, chains: int) -> lp.TranslationUnit:  # noqa: ARG001 - groups_fit is always true
    """Local loads alone: m of them per work-item, with a given lid(0) stride.

    Each work-item fills its own elements of a local array, ``lid_stride_0`` apart from its neighbour's, and adds them
    up again and again; the sum is stored in global memory (access tag ``resST``). No element is shared, so that there
    is no barrier. Isolates ``f_mem_access_local_<dtype>_load_lstrides:{0:<lid_stride_0>}``, m per work-item: strides
    with a common divisor with the number of banks cause bank conflicts. Beside the loads there are as many additions,
    chains - 1 more, and one store for each element filled (chains times m_inner, the size parameter that tells how many
    rows of them there are; a compiler that knew it could keep them in registers).

    Source: after the paper's Section 7.1.2, local memory access.
    """
    arguments = {"dtype": dtype, "lsize_0": lsize_0, "lid_stride_0": lid_stride_0, "chains": chains}
    blocks = _blocks(arguments)
    # An integer variable, since loopy would add in the type of what it is assigned to.
    contents = [(f"<int32> content{c} = row + {c + 1}", f"source[row, {c}, l0, 0] = content{c}") for c in range(chains)]
    fill = ["for row", *(line for lines in contents for line in lines), "end"]
    return _make_load_kernel(
        "lmem_load",
        arguments,
        fill,
        "source[{row}, l0, 0]",
        (blocks, chains, lsize_0, lid_stride_0),
        "{[row]: 0 <= row < m_inner}",
    )


def lmem_broadcast(*, dtype: str, lsize_0: int, groups_fit: bool, chains: int) -> lp.TranslationUnit:  # noqa: ARG001 - groups_fit is always true
    """Local loads of one element by all work-items, m times, a different element each time.

    The work-group fills a local array of ``lsize_0`` elements; after a barrier each work-item adds up its first
    chains times m_inner elements (m_inner is a size parameter) again and again; the sum is stored in global memory
    (access tag ``resST``). Isolates ``f_mem_access_local_<dtype>_load_lstrides:{0:0}``, m per sub-group. Beside the
    loads there are as many additions, chains - 1 more, one local store, and one barrier.

    Source: after the paper's Section 7.1.2, local memory access.
    """
    arguments = {"dtype": dtype, "lsize_0": lsize_0, "chains": chains}
    return _make_load_kernel(
        "lmem_broadcast", arguments, [f"source[l0 // {chains}, l0 % {chains}] = l0"], "source[{row}]",
        (-(-lsize_0 // chains), chains),
    )  # fmt: skip


# Any: argument values by name, of the types that the declarations say.
def _make_load_kernel(
    name: str, arguments: Mapping[str, Any], fill: list[str], load: str, shape: tuple[int, ...], *loops: str
) -> lp.TranslationUnit:
    import loopy as lp
    import numpy as np

    element, chains, lsize_0 = np.dtype(arguments["dtype"]), arguments["chains"], arguments["lsize_0"]
    # Different sums in each work-item, lest a compiler add up once for the whole work-group.
    lines = sum_of_chains(load, chains, str(element), "l0", "m_in")
    before = lines.index("for m_in")
    total = " + ".join(f"x{c}" for c in range(chains))
    body = [*fill, *lines[:before], "for m_out", *lines[before:], "end", f"result$resST[g0, l0] = {total}"]
    kernel = make_group_kernel(
        name,
        body,
        [
            local_array("source", element, shape),
            stored_array("result", element, f"ngroups, {lsize_0}"),
            size_parameters("m_outer, m_inner"),
        ],
        lsize_0=lsize_0,
        loops=["{[m_out, m_in]: 0 <= m_out < m_outer and 0 <= m_in < m_inner}", *loops],
        assume=f"m_outer >= 1 and 1 <= m_inner <= {_blocks(arguments)}",
    )
    return lp.prioritize_loops(kernel, "m_out, m_in")


def _blocks(arguments: Mapping[str, Any]) -> int:
    """Return how many rows, of ``chains`` elements per work-item or (without stride) in all, there can be."""
    import numpy as np

    if "lid_stride_0" not in arguments:
        return min(_MOST_BLOCKS, int(arguments["lsize_0"] // arguments["chains"]))
    row = arguments["lsize_0"] * arguments["lid_stride_0"] * np.dtype(arguments["dtype"]).itemsize
    return min(_MOST_BLOCKS, LOCAL_BYTES // int(row * arguments["chains"]))


def _sizes(arguments: Mapping[str, Any]) -> dict[str, int]:
    rounds = arguments["m"] // arguments["chains"]
    inner = max(d for d in range(1, _blocks(arguments) + 1) if rounds % d == 0)
    return {"ngroups": arguments["ngroups"], "m_outer": rounds // inner, "m_inner": inner}


_LSIZE = replace(LINE_LSIZE, default=(64,))
_CHAINS = replace(CHAINS, allowed=integers(1, 8), default=(2,))
_NGROUPS = Argument("ngroups", "int", "number of work-groups", multiples_of(1), (1024, 2048, 4096))
_M = Argument("m", "int", "loads per work-item", multiples_of(1), (512, 1024))

LMEM_LOAD = Generator(
    name="lmem_load",
    tags=frozenset({"lmem_load", "lmem"}),
    arguments=(DTYPE, _LSIZE, GROUPS_FIT_ONLY, LINE_STRIDE, _CHAINS, _NGROUPS, _M),
    build=lmem_load,
    size_arguments=("ngroups", "m"),
    constraints=(
        Constraint(
            "two rows of chains times lsize_0 times lid_stride_0 elements must fit in 32 KiB of local memory",
            lambda a: _blocks(a) > 1,
        ),
        CHAINS_DIVIDE,
    ),
    sizes=_sizes,
)

LMEM_BROADCAST = Generator(
    name="lmem_broadcast",
    tags=frozenset({"lmem_broadcast", "lmem"}),
    arguments=(DTYPE, _LSIZE, GROUPS_FIT_ONLY, _CHAINS, _NGROUPS, _M),
    build=lmem_broadcast,
    size_arguments=("ngroups", "m"),
    constraints=(
        Constraint("lsize_0 must be at least twice chains", lambda a: _blocks(a) > 1),
        CHAINS_DIVIDE,
    ),
    sizes=_sizes,
)
