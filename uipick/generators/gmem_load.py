"""Global memory: many loads per work-item, one store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, multiples_of
from uipick._generator import Generator
from uipick.generators._kernel import loaded_array, size_parameters, stored_array
from uipick.generators._line import (
    CHAINS,
    CHAINS_DIVIDE,
    FITTING_LINE_ARGUMENTS,
    LINE_NELEMENTS,
    LINE_STRIDE,
    items_divide,
    make_line_kernel,
    sum_of_chains,
    whole_items,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp


def gmem_load(*, dtype: str, lsize_0: int, groups_fit: bool, lid_stride_0: int, chains: int) -> lp.TranslationUnit:
    """Global loads alone: m of them per work-item, with a given lid(0) stride, and one store.

    Each work-item adds up m elements, one of each row of a matrix with m rows: element ``lid_stride_0`` times its own
    number. No element is loaded twice (access-to-footprint ratio 1); with ``lid_stride_0:1`` all are loaded. The sum
    is stored with stride 1. Loads carry the access tag ``inLD``, the store ``resST``. Isolates
    ``f_mem_access_global_<dtype>_load_lstrides:{0:<lid_stride_0>}``, m per work-item; beside them there are as many
    additions, and chains - 1 more.

    Source: after the paper's Section 7.1.2, global memory access.
    """
    body = sum_of_chains("in0$inLD[{row}, {item}, 0]", chains, dtype, "0", "k")
    return make_line_kernel(
        "gmem_load",
        [*body, "result$resST[{item}] = " + " + ".join(f"x{c}" for c in range(chains))],
        [
            loaded_array("in0", dtype, f"rounds, {chains}, nitems, {lid_stride_0}"),
            stored_array("result", dtype, "nitems"),
            size_parameters("rounds"),
        ],
        lsize_0=lsize_0,
        groups_fit=groups_fit,
        loops=["{[k]: 0 <= k < rounds}"],
        assume="rounds >= 1",
    )


# Any: argument values by name, of the types that the declarations say.
def _sizes(arguments: Mapping[str, Any]) -> dict[str, int]:
    items = arguments["nelements"] // _elements(arguments)
    return {"nitems": items, "rounds": arguments["m"] // arguments["chains"]}


def _elements(arguments: Mapping[str, Any]) -> int:
    return int(arguments["m"] * arguments["lid_stride_0"])


GMEM_LOAD = Generator(
    name="gmem_load",
    tags=frozenset({"gmem_load", "gmem"}),
    arguments=(
        *FITTING_LINE_ARGUMENTS,
        LINE_STRIDE,
        CHAINS,
        LINE_NELEMENTS,
        Argument("m", "int", "loads per work-item", multiples_of(1), (16, 32)),
    ),
    build=gmem_load,
    size_arguments=("nelements", "m"),
    constraints=(
        CHAINS_DIVIDE,
        whole_items("m times lid_stride_0", _elements),
        items_divide("m times lid_stride_0", _elements),
    ),
    sizes=_sizes,
)
