"""The feature table: one row per (kernel, sizes), one column per feature."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.html import shown_by
from perflex.tables import Table, number, percent, seconds, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.timing.results import TimingSummary


@dataclass(frozen=True)
class FeatureInfo:
    """What a column of a feature table counts."""

    # What one unit of the feature is, singular, e.g. ``"sub-group operation"`` or ``"s"``.
    unit: str
    # How much one unit amounts to in ``amount_unit``, e.g. 32 operations or 4 bytes; None where the kernels disagree or
    # the notion makes no sense.
    amount: float | None = None
    # ``"op"``, ``"B"``, or the empty string.
    amount_unit: str = ""


@dataclass(frozen=True)
class FeatureTable:
    """Feature values of a set of kernels.

    Attributes
    ----------
    output
        Identifier of the output feature, or None when the table holds input features only.
    features
        Feature identifiers, one per column.
    kernels
        A label per row, unique.
    values
        Shape ``(len(kernels), len(features))``, as counted or measured.
    groups
        The generator (or other origin) of each row.
    spread
        Shape ``(len(kernels),)``: relative spread of each row's measured output; nan where not measured.
    info
        What each column counts.
    sub_group_size
        Work-items per sub-group that the counts were made with.
    device
        Name of the device of a measured output, or the empty string.
    dropped
        Label and reason of each kernel that was left out.
    machine
        Name of the machine that features needed, or the empty string.
    timing
        How measuring went; None where nothing was measured, or that was not kept.
    repeatability
        Shape ``(len(kernels),)``: by which fraction each row's measured output is expected to differ from one such
        measurement to the next; nan where that is not known.
    """

    output: str | None
    features: tuple[str, ...]
    kernels: tuple[str, ...]
    values: NDArray[np.float64]
    groups: tuple[str, ...] = ()
    spread: NDArray[np.float64] | None = None
    info: Mapping[str, FeatureInfo] = field(default_factory=dict)
    sub_group_size: int = 32
    device: str = ""
    dropped: tuple[tuple[str, str], ...] = ()
    machine: str = ""
    timing: TimingSummary | None = None
    repeatability: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.kernels)

    def table(self) -> Table:
        """Return a row for each kernel: its values, and the spread of repeated timings."""
        columns = [text("kernel")]
        for name in self.features:
            unit = self.info[name].unit if name in self.info else ""
            # A measured time in seconds: in the unit that suits it.
            timed = name == self.output and unit in {"s", ""} and "time" in name
            columns.append(seconds(name, name) if timed else number(name, name, unit=unit))
        spread = [None] * len(self) if self.spread is None else self.spread.tolist()
        rows = [(name, *own, s) for name, own, s in zip(self.kernels, self.values.tolist(), spread, strict=True)]
        return Table(
            "Measurement kernels", [*columns, percent("spread", meaning="relative spread of repeated timings")], rows
        )

    @property
    def heading(self) -> str:
        """What the rows are."""
        left_out = f"; {len(self.dropped)} kernels were left out" if self.dropped else ""
        where = f" on {self.device}" if self.device else ""
        return f"{len(self)} kernels{left_out}{where}; {self.sub_group_size} work-items per sub-group"

    _repr_html_ = shown_by("result.html")

    def column(self, feature: str) -> NDArray[np.float64]:
        """Return the values of one feature, shape ``(len(self),)``.

        Raises
        ------
        CalibrationError
            The table has no such column.
        """
        try:
            index = self.features.index(feature)
        except ValueError:
            msg = f"the feature table has no column {feature!r}; it has {', '.join(self.features)}"
            raise CalibrationError(msg, feature=feature) from None
        return self.values[:, index]

    def columns(self, features: Iterable[str]) -> dict[str, NDArray[np.float64]]:
        """Return the values of some features by name; errors as `column`."""
        return {feature: self.column(feature) for feature in features}

    @property
    def generators(self) -> tuple[str, ...]:
        """The generator or program of each row: its group, or what its label ``generator(arguments)`` begins with."""
        return self.groups or tuple(label.partition("(")[0] for label in self.kernels)

    @property
    def noise(self) -> NDArray[np.float64] | None:
        """Relative noise of each row's output, shape ``(len(self),)``, nan where not known; None without any.

        The rows' repeatability where at least half have one, for it is that of the median that is fitted; else the
        spread of single timings.
        """
        for column in (self.repeatability, self.spread):
            if column is None:
                continue
            known = np.isfinite(column)
            if known.any() and 2 * known.sum() >= len(column) and (column[known] > 0).any():
                return column
        return None

    def take(self, rows: Sequence[int]) -> FeatureTable:
        """Return the table reduced to the given row numbers, in that order."""
        # With the type given: numpy makes an empty list an array of floats, which cannot index.
        index = np.asarray(rows, dtype=np.intp)
        return replace(
            self,
            kernels=tuple(self.kernels[i] for i in index),
            values=self.values[index],
            groups=tuple(self.groups[i] for i in index) if self.groups else (),
            spread=None if self.spread is None else self.spread[index],
            repeatability=None if self.repeatability is None else self.repeatability[index],
        )

    def of_features(self, names: Sequence[str]) -> FeatureTable:
        """Return the rows with some of the columns, in that order; a `CalibrationError` names one that is missing."""
        values = np.column_stack([self.column(name) for name in names])
        info = {name: self.info[name] for name in names if name in self.info}
        output = self.output if self.output in names else None
        return replace(self, output=output, features=tuple(names), values=values, info=info)
