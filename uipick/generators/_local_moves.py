"""Moves in local memory that no compiler can shorten.

Each work-item has ``rows`` elements in each of two local arrays and copies its own from one to the other, row by row,
again and again. Nothing is shared, so no barrier is needed; lid(0) has stride 1. The number of rows is a size parameter
(``m_inner``): were it known, a compiler could keep the rows in registers and drop all moves but the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from uipick._generator import Constraint
from uipick.generators._kernel import LOCAL_BYTES, local_array, size_parameters, stored_array
from uipick.generators._pattern import make_pattern_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import loopy as lp

_MOST_ROWS = 8


def local_rows(arguments: Mapping[str, Any]) -> int:
    """Return the rows of the two local arrays: 8, or as many as fit in 32 KiB."""
    row_bytes = 2 * arguments["lsize_0"] * arguments["lsize_1"] * np.dtype(arguments["dtype"]).itemsize
    return min(_MOST_ROWS, LOCAL_BYTES // int(row_bytes))


def move_sizes(arguments: Mapping[str, Any]) -> dict[str, int]:
    """Split m moves in ``m_outer`` rounds of ``m_inner`` rows, as many rows as possible."""
    moves = arguments["m"]
    inner = max(d for d in range(1, local_rows(arguments) + 1) if moves % d == 0)
    return {"nelements": arguments["nelements"], "m_outer": moves // inner, "m_inner": inner}


LOCAL_MEMORY_FITS = Constraint(
    "two elements per work-item must fit in 32 KiB of local memory", lambda a: local_rows(a) >= 1
)


# Any: argument values by name, of the types that the declarations say.
def make_moves_kernel(
    name: str,
    arguments: Mapping[str, Any],
    fill: Sequence[str],
    value: str,
    data: Sequence[lp.ArrayArg] = (),
) -> lp.TranslationUnit:
    """Make a kernel that fills its elements of ``source``, moves them, and stores one (access tag ``resST``).

    Parameters
    ----------
    arguments
        The generator's arguments that are not sizes.
    fill
        Instructions executed first.
    value
        What ``source`` is filled with, an expression in ``row`` and the variables of `fill`.
    data
        Global arrays besides ``result``.
    """
    import loopy as lp

    element = np.dtype(arguments["dtype"])
    shape = (local_rows(arguments), arguments["lsize_1"], arguments["lsize_0"])
    kernel = make_pattern_kernel(
        name,
        arguments,
        [
            *fill,
            "for row",
            # A variable of its own, so that integers are added as integers.
            f"<> content = {value}",
            "source[row, l1, l0] = content",
            "end",
            "for m_out, m_in",
            "target[m_in, l1, l0] = source[m_in, l1, l0]",
            "end",
            "result$resST[{index}] = target[m_inner - 1, l1, l0]",
        ],
        [
            local_array("source", element, shape),
            local_array("target", element, shape),
            *data,
            stored_array("result", element, "nelements"),
            size_parameters("m_outer, m_inner"),
        ],
        loops=["{[row, m_out, m_in]: 0 <= row, m_in < m_inner and 0 <= m_out < m_outer}"],
        assume=f"m_outer >= 1 and 1 <= m_inner <= {shape[0]}",
    )
    return lp.prioritize_loops(kernel, "m_out, m_in")
