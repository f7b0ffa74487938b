"""Settings as columns of numbers that can be learned from, and what some variants say of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.search.gaussian_process import GaussianProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Beyond it, floats no longer tell whole numbers apart.
_MOST = 2**53


@dataclass(frozen=True)
class Columns:
    """What is known of variants: columns, shape ``(n, d)``, and logarithms of expected times, ``(n,)`` or None."""

    table: Array
    logs: Array | None = None


def settings_columns(settings: Sequence[Mapping[str, Any]]) -> list[Array]:
    """Return settings as numbers, shape ``(n,)`` each; texts and truth values have a column for each value.

    Positive whole numbers have a second column, their largest odd divisor: sizes of problems are mostly multiples of
    powers of two, which tiles of 48 do not divide, and then kernels have guards.
    """
    columns: list[Array] = []
    for name in settings[0] if settings else ():
        values = [each[name] for each in settings]
        if not all(isinstance(value, (int, float)) for value in values):
            columns += [np.array([float(value == other) for value in values]) for other in dict.fromkeys(values)]
            continue
        columns.append(np.array(values, dtype=np.float64))
        if all(0 < value < _MOST and float(value).is_integer() for value in values):
            whole = columns[-1].astype(np.int64)
            columns.append((whole // (whole & -whole)).astype(np.float64))
    return columns


def even(column: Array) -> Array:
    """Return a column on an even scale: its logarithm where positive, else nearly so above its usual size."""
    if (column > 0).all():
        return np.log(column)
    sizes = np.abs(column[column != 0])
    # Linear near 0, logarithmic far from it, for either sign.
    return np.arcsinh(column / np.median(sizes)) if sizes.size else column


def even_table(table: Array) -> Array:
    """Return a table with all of its columns on even scales."""
    return np.column_stack([even(column) for column in table.T])


def interpolated(table: Array, known: Sequence[int], seconds: Array) -> Array:
    """Return the times of all rows of a table from those of some, which stay as they are, shape ``(n,)``."""
    rows = np.asarray(known, dtype=np.intp)
    found = np.exp(GaussianProcess().forecast(Columns(even_table(table)), rows, seconds).logs)
    found[rows] = seconds
    return found
