"""Sums in a sequential loop: what stays in registers from one iteration to the next, and what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._kernel import loaded_array, size_parameters
from uipick.generators._line import FITTING_LINE_ARGUMENTS, make_line_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp

_FACTORS = {"item": "s$sLD[{item}]", "loop": "s$sLD[k]"}


def loop_sum(
    *, layout: str, sum_in: str, factor: str, dtype: str, lsize_0: int, groups_fit: bool
) -> lp.TranslationUnit:
    """Weighted sums, one per work-item: ``y[i] = y[i] + a[k, i] s`` for each of m values of k.

    ``layout:columns`` has the work-items of a group load neighbours of a (stride 1), ``layout:rows`` elements m apart.
    ``sum_in:private`` keeps the sum in a private variable and stores it at the end; ``sum_in:global`` loads and stores
    y in every iteration. The factor s is ``s[i]`` (``factor:item``), which no iteration changes: compilers load it once
    where they know that the stores to y leave it alone, or ``s[k]`` (``factor:loop``), the same for all work-items.
    Access tags ``aLD``, ``sLD``, ``yLD`` and ``yST``. Isolates loads that loops leave invariant and stores in loops,
    each beside one multiply-add per iteration.

    Source: after the paper's Section 7.1.2, accesses nested inside sequential loops.
    """
    import loopy as lp
    import numpy as np

    place = "k, {item}" if layout == "columns" else "{item}, k"
    term = f"a$aLD[{place}] * {_FACTORS[factor]}"
    body = ["for k", f"y$yST[{{item}}] = y$yLD[{{item}}] + {term}", "end"]
    if sum_in == "private":
        body = [f"<{dtype}> x = y$yLD[{{item}}]", "for k", f"x = x + {term}", "end", "y$yST[{item}] = x"]
    return make_line_kernel(
        "loop_sum",
        body,
        [
            loaded_array("a", dtype, "m, nitems" if layout == "columns" else "nitems, m"),
            loaded_array("s", dtype, "nitems" if factor == "item" else "m"),
            lp.GlobalArg("y", np.dtype(dtype), shape="nitems", is_input=True, is_output=True),
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


LOOP_SUM = Generator(
    name="loop_sum",
    tags=frozenset({"loop_sum", "gmem"}),
    arguments=(
        Argument("layout", "str", "which elements of a lie next to each other", ("columns", "rows")),
        Argument("sum_in", "str", "where the sum is kept", ("private", "global")),
        Argument("factor", "str", "whose factor multiplies: the work-item's or the iteration's", ("item", "loop")),
        *FITTING_LINE_ARGUMENTS,
        Argument("nitems", "int", "work-items", multiples_of(1), (4096, 16384)),
        Argument("m", "int", "loop iterations", multiples_of(1), (64, 256)),
    ),
    build=loop_sum,
    size_arguments=("nitems", "m"),
    constraints=(Constraint("nitems must be a multiple of lsize_0", _fits),),
)
