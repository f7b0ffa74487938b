"""Moves in local memory that no compiler can shorten.

Each work-item has ``rows`` elements in each of two local arrays and copies its own from one to the other, row by row,
again and again. Nothing is shared, so no barrier is needed; lid(0) has stride 1. The number of rows is a size parameter
(``m_inner``): were it known, a compiler could keep the rows in registers and drop all moves but the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from uipick._generator import Constraint

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LOCAL_MEMORY_FITS", "MOVE_LOOPS", "local_rows", "move_sizes"]

_MOST_ROWS = 8
_LOCAL_BYTES = 32768

MOVE_LOOPS = ("{[row, m_out, m_in]: 0 <= row, m_in < m_inner and 0 <= m_out < m_outer}",)


def local_rows(arguments: Mapping[str, Any]) -> int:
    """Return the rows of the two local arrays: 8, or as many as fit in 32 KiB."""
    row_bytes = 2 * arguments["lsize_0"] * arguments["lsize_1"] * np.dtype(arguments["dtype"]).itemsize
    return min(_MOST_ROWS, _LOCAL_BYTES // int(row_bytes))


def move_sizes(arguments: Mapping[str, Any]) -> dict[str, int]:
    """Split m moves in ``m_outer`` rounds of ``m_inner`` rows, as many rows as possible."""
    moves = arguments["m"]
    inner = max(d for d in range(1, local_rows(arguments) + 1) if moves % d == 0)
    return {"nelements": arguments["nelements"], "m_outer": moves // inner, "m_inner": inner}


LOCAL_MEMORY_FITS = Constraint(
    "two elements per work-item must fit in 32 KiB of local memory", lambda a: local_rows(a) >= 1
)
