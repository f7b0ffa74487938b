"""Global memory: loads from places that jump about in a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._kernel import loaded_array, size_parameters, stored_array
from uipick.generators._line import FITTING_LINE_ARGUMENTS, make_line_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp


def gmem_gather(
    *, spread: int, step: int, window: int, dtype: str, lsize_0: int, groups_fit: bool
) -> lp.TranslationUnit:
    """Global loads from a window, m per work-item: element ``(spread item + step k) mod window`` in iteration k.

    Neighbours in a group load elements ``spread`` apart until the window's end, from where they go on at its beginning:
    places that a compiler takes for any. Loads carry the access tag ``inLD``, the store of the sum ``resST`` (stride
    1). Isolates gathered loads at the cost of the cache level that the window fits in; beside them there are as many
    additions, and the arithmetic of the subscript.

    Source: after the paper's Section 7.1.2, accesses nested inside sequential loops.
    """
    return make_line_kernel(
        "gmem_gather",
        [
            "<int32> start = 0",
            f"<{dtype}> x = start",
            "for k",
            f"x = x + in0$inLD[({spread}*({{item}}) + {step}*k) % {window}]",
            "end",
            "result$resST[{item}] = x",
        ],
        [
            loaded_array("in0", dtype, str(window)),
            stored_array("result", dtype, "nitems"),
            size_parameters("m"),
        ],
        lsize_0=lsize_0,
        groups_fit=groups_fit,
        loops=["{[k]: 0 <= k < m}"],
        assume="m >= 1",
    )


# Any: argument values by name, of the types that the declarations say.
def _fits(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments["nitems"] % arguments["lsize_0"] == 0)


GMEM_GATHER = Generator(
    name="gmem_gather",
    tags=frozenset({"gmem_gather", "gmem"}),
    arguments=(
        Argument("spread", "int", "elements from one work-item's place to the next one's", multiples_of(1), (1, 17)),
        Argument("step", "int", "elements from one iteration's place to the next one's", multiples_of(1), (33,)),
        Argument("window", "int", "elements of the array", multiples_of(1), (4096, 262144)),
        *FITTING_LINE_ARGUMENTS,
        Argument("nitems", "int", "work-items", multiples_of(1), (8192,)),
        Argument("m", "int", "loads per work-item", multiples_of(1), (64,)),
    ),
    build=gmem_gather,
    size_arguments=("nitems", "m"),
    constraints=(Constraint("nitems must be a multiple of lsize_0", _fits),),
)
