"""What passes between a tuner and who measures for it, and what it learns from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from perflex.search.spaces.extraction import ExtractedSpace

    Array = NDArray[np.float64]

__all__ = ["Asked", "TunerStep", "features_of"]

_NO_TABLE = "features must be a finite table of numbers with a row per variant and a column per feature"


@dataclass(frozen=True)
class Asked:
    """A variant that is to be measured.

    Attributes
    ----------
    number
        Its row in the table of features.
    name
        Its name.
    settings
        Its settings; empty where the tuner was given features only.
    predicted
        Seconds; nan in the first batch.
    """

    number: int
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    predicted: float = math.nan


@dataclass(frozen=True)
class TunerStep:
    """A measurement that the tuner was told.

    Attributes
    ----------
    number, name
        Of the variant.
    seconds
        Its time; nan if it failed.
    best
        The fastest so far, seconds.
    """

    number: int
    name: str
    seconds: float
    best: float


def features_of(space: ExtractedSpace | ArrayLike) -> Array:
    """Return features, and settings as numbers beside them: texts and truth values one column for each value.

    Raises
    ------
    CalibrationError
        They are no finite table of numbers.
    """
    settings = getattr(space, "settings", None)
    if settings is None:
        return _table(space)
    columns: list[Array] = list(np.asarray(getattr(space, "values", None), dtype=np.float64).T)
    for name in settings[0]:
        values = [each[name] for each in settings]
        if all(isinstance(value, (int, float)) for value in values):
            columns.append(np.array(values, dtype=np.float64))
        else:
            columns += [np.array([float(value == other) for value in values]) for other in dict.fromkeys(values)]
    return _finite(np.column_stack(columns))


def _table(given: object) -> Array:
    try:
        table = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CalibrationError(_NO_TABLE) from error
    return _finite(table[:, None] if table.ndim == 1 else table)


def _finite(table: Array) -> Array:
    if table.ndim != 2 or not table.shape[1] or not np.isfinite(table).all():
        raise CalibrationError(_NO_TABLE)
    return table
