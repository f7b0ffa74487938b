"""Settings as columns of numbers that can be learned from, and what some variants say of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.gaussian_process import Columns, GaussianProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from perflex.search.gaussian_process import Forecast
    from perflex.search.variants import Variants

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

# Beyond it, floats no longer tell whole numbers apart.
_MOST = 2**53
# Times of fewer variants do not tell what a calibration misses from noise.
LEAST = 8
_NO_TABLE = "features must be a finite table of numbers with a row per variant and a column per feature"


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


def codes_of(settings: Sequence[Mapping[str, Any]]) -> Indices:
    """Return a number for each value of each setting, equal for equal values, shape ``(n, d)``."""
    columns = [[repr(each[name]) for each in settings] for name in settings[0]]
    places = [{value: place for place, value in enumerate(dict.fromkeys(values))} for values in columns]
    return np.array([[place[value] for value in values] for place, values in zip(places, columns, strict=True)]).T


def features_of(space: Variants | ArrayLike) -> Array:
    """Return features, and settings as numbers beside them, shape ``(n, d)``; a CalibrationError where one is none."""
    settings = getattr(space, "settings", None)
    if settings is None:
        try:
            table = np.asarray(space, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise CalibrationError(_NO_TABLE) from error
        table = table[:, None] if table.ndim == 1 else table
    else:
        values = np.asarray(getattr(space, "values", None), dtype=np.float64)
        table = np.column_stack([*values.T, *settings_columns(settings)])
    if table.ndim != 2 or not table.shape[1] or not np.isfinite(table).all():
        raise CalibrationError(_NO_TABLE)
    return table


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


def corrected(space: Variants | ArrayLike, expected: Array, measured: Indices, seconds: Array) -> Forecast:
    """Return expected times, shape ``(n,)``, corrected by what those of measured variants, shape ``(m,)``, miss.

    A measured variant's own time is not seen by what is forecast of it.
    """
    process, known = GaussianProcess(), Columns(even_table(features_of(space)), np.log(expected))
    found, unseen = process.forecast(known, measured, seconds), process.unseen(known, measured, seconds)
    found.logs[measured], found.deviations[measured] = unseen.logs, unseen.deviations
    return found
