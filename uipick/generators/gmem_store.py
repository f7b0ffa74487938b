"""Global memory: stores alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, multiples_of
from uipick._generator import Generator
from uipick.generators._kernel import size_parameters, stored_array
from uipick.generators._line import (
    FITTING_LINE_ARGUMENTS,
    LINE_NELEMENTS,
    LINE_STRIDE,
    items_divide,
    make_line_kernel,
    whole_items,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp


def gmem_store(*, dtype: str, lsize_0: int, groups_fit: bool, lid_stride_0: int) -> lp.TranslationUnit:
    """Global stores alone: m of them per work-item, with a given lid(0) stride.

    Each work-item stores its number in m elements, one of each row of a matrix with m rows: element ``lid_stride_0``
    times its own number (access tag ``resST``). No element is stored twice (access-to-footprint ratio 1). Isolates
    ``f_mem_access_global_<dtype>_store_lstrides:{0:<lid_stride_0>}``, m per work-item.

    Source: after the paper's Section 7.1.2, global memory access.
    """
    return make_line_kernel(
        "gmem_store",
        [
            "<int32> number = {item}",
            f"<{dtype}> content = number",
            "for k",
            "result$resST[k, {item}, 0] = content",
            "end",
        ],
        [
            stored_array("result", dtype, f"m, nitems, {lid_stride_0}"),
            size_parameters("m"),
        ],
        lsize_0=lsize_0,
        groups_fit=groups_fit,
        loops=["{[k]: 0 <= k < m}"],
        assume="m >= 1",
    )


# Any: argument values by name, of the types that the declarations say.
def _elements(arguments: Mapping[str, Any]) -> int:
    return int(arguments["m"] * arguments["lid_stride_0"])


GMEM_STORE = Generator(
    name="gmem_store",
    tags=frozenset({"gmem_store", "gmem"}),
    arguments=(
        *FITTING_LINE_ARGUMENTS,
        LINE_STRIDE,
        LINE_NELEMENTS,
        Argument("m", "int", "stores per work-item", multiples_of(1), (4, 16)),
    ),
    build=gmem_store,
    size_arguments=("nelements", "m"),
    constraints=(whole_items("m times lid_stride_0", _elements), items_divide("m times lid_stride_0", _elements)),
    sizes=lambda a: {"nitems": a["nelements"] // _elements(a), "m": a["m"]},
)
