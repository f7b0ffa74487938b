"""Predicted against measured or reference volumes, row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perflex.csv_file import csv_rows
from perflex.errors import FileFormatError
from perflex.file_io import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Row = dict[str, str]


@dataclass(frozen=True)
class ComparedPair:
    """One configuration: its key (e.g. work-group extents), and both values of a quantity in one unit."""

    key: tuple[tuple[str, str], ...]
    predicted: float
    reference: float

    @property
    def deviation(self) -> float:
        """The prediction's relative error; infinite where the reference is zero, or the ratio beyond all numbers."""
        if self.predicted == self.reference:
            return 0.0
        return self.predicted / self.reference - 1 if self.reference else float("inf")


@dataclass(frozen=True)
class TableComparison:
    """A quantity over all configurations that both sides have.

    Attributes
    ----------
    quantity
        Its name.
    pairs
        The configurations, in the order of the reference.
    unmatched
        Configurations that only one side has.
    """

    quantity: str
    pairs: tuple[ComparedPair, ...]
    unmatched: int = 0

    def percentile(self, percent: float) -> float:
        """Return a percentile of the absolute relative errors; 50 is the median, 100 the worst."""
        sizes = sorted(abs(pair.deviation) for pair in self.pairs)
        place = (len(sizes) - 1) * percent / 100
        below, above = sizes[math.floor(place)], sizes[math.ceil(place)]
        # Between two errors that are infinite there is no difference to interpolate.
        return below if below == above else below * (math.ceil(place) - place) + above * (place - math.floor(place))

    @property
    def rms(self) -> float:
        """Root mean square of the relative errors."""
        # Squares of errors that tables can have are beyond all numbers; hypot takes none.
        return math.hypot(*(pair.deviation / math.sqrt(len(self.pairs)) for pair in self.pairs))

    @property
    def bias(self) -> float:
        """Mean relative error, with its sign; nan where errors are infinite to both sides."""
        return sum(pair.deviation / len(self.pairs) for pair in self.pairs)

    @property
    def rank_correlation(self) -> float:
        """Spearman's correlation of the two orders; nan where one side is constant."""
        sides = [np.array([getattr(pair, side) for pair in self.pairs]) for side in ("predicted", "reference")]
        if len(self.pairs) < 2 or any(np.all(side == side[0]) for side in sides):
            return float("nan")
        from scipy.stats import rankdata

        # Spearman's coefficient is Pearson's of the ranks; ties have their mean rank.
        return float(np.corrcoef(rankdata(sides[0]), rankdata(sides[1]))[0, 1])


def read_rows(path: Path | str) -> list[Row]:
    """Read the rows of a CSV file with a heading.

    Raises
    ------
    FileFormatError
        The file cannot be read, or a row has more or fewer fields than the heading; names the line.
    """
    path = Path(path)
    return [row for _, row in csv_rows(read_text(path), path)]


def compare_rows(
    predicted: Sequence[Mapping[str, str]],
    reference: Sequence[Mapping[str, str]],
    keys: Sequence[str],
    quantity: str,
    reference_quantity: str = "",
) -> TableComparison:
    """Pair the rows of two tables.

    Parameters
    ----------
    predicted, reference
        Rows by column name, as `read_rows` gives them.
    keys
        Columns that identify a configuration in both, e.g. the work-group's extents.
    quantity
        Column to compare.
    reference_quantity
        Its name in the reference; by default the same.

    Raises
    ------
    FileFormatError
        A column is missing, a value is no number, a configuration stands there twice, or none is in both.
    """
    left = _by_key(predicted, keys, quantity, "prediction")
    right = _by_key(reference, keys, reference_quantity or quantity, "reference")
    pairs = tuple(ComparedPair(key, left[key], value) for key, value in right.items() if key in left)
    if not pairs:
        msg = f"no configuration ({', '.join(keys)}) is in both tables; check their values"
        raise FileFormatError(msg, field=quantity)
    return TableComparison(quantity, pairs, len(left) + len(right) - 2 * len(pairs))


def _by_key(
    rows: Sequence[Mapping[str, str]], keys: Sequence[str], quantity: str, which: str
) -> dict[tuple[tuple[str, str], ...], float]:
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for number, row in enumerate(rows, start=1):
        missing = [column for column in (*keys, quantity) if column not in row]
        if missing:
            msg = f"the {which} has no column {missing[0]!r}; it has {', '.join(row)}"
            raise FileFormatError(msg, field=missing[0])
        key = tuple((column, row[column].strip()) for column in keys)
        if key in found:
            shown = ", ".join(f"{column}={value}" for column, value in key)
            msg = f"the {which} has {shown} twice (row {number}); name more columns that tell them apart"
            raise FileFormatError(msg, field=keys[0] if keys else quantity)
        try:
            found[key] = float(row[quantity])
        except ValueError:
            found[key] = math.nan
        # float also reads "nan" and "inf".
        if not math.isfinite(found[key]):
            msg = f"row {number} of the {which} has {row[quantity]!r} for {quantity}, which is no finite number"
            raise FileFormatError(msg, field=quantity)
    return found


def comparison_table(comparisons: Sequence[TableComparison]) -> list[dict[str, str]]:
    """Return a row per quantity: configurations, errors in per cent and rank correlation."""
    return [
        {
            "quantity": comparison.quantity,
            "configurations": str(len(comparison.pairs)),
            "median_%": f"{100 * comparison.percentile(50):.2f}",
            "rms_%": f"{100 * comparison.rms:.2f}",
            "p90_%": f"{100 * comparison.percentile(90):.2f}",
            "worst_%": f"{100 * comparison.percentile(100):.2f}",
            "bias_%": f"{100 * comparison.bias:+.2f}",
            "rank_correlation": f"{comparison.rank_correlation:.4f}",
        }
        for comparison in comparisons
    ]
