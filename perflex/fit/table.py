"""The feature table: one row per (kernel, sizes), one column per feature."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.html import shown_by

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.timing.results import TimingSummary


@dataclass(frozen=True)
class FeatureInfo:
    """What a column of a feature table counts.

    Attributes
    ----------
    unit
        What one unit of the feature is, singular, e.g. ``"sub-group operation"`` or ``"s"``.
    amount
        How much one unit amounts to in ``amount_unit``, e.g. 32 operations or 4 bytes; None where the
        kernels disagree or the notion makes no sense.
    amount_unit
        ``"op"``, ``"B"``, or the empty string.
    """

    unit: str
    amount: float | None = None
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
        Shape ``(len(kernels), len(features))``, as counted or measured (never scaled).
    groups
        The generator (or other origin) of each row.
    scale
        Shape ``(len(kernels),)``: the factor that the fit applies to each row's residual, in 1/[output];
        ones unless `scale_features_by_output` was called.
    spread
        Shape ``(len(kernels),)``: relative spread of each row's measured output; nan where not measured.
    repeatability
        Shape ``(len(kernels),)``: by which fraction each row's measured output is expected to differ from one such
        measurement to the next; nan where that is not known.
    weights
        Shape ``(len(kernels),)``: how much each row's square counts in a fit, positive; None for all alike.
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
    """

    output: str | None
    features: tuple[str, ...]
    kernels: tuple[str, ...]
    values: NDArray[np.float64]
    groups: tuple[str, ...] = ()
    scale: NDArray[np.float64] | None = None
    spread: NDArray[np.float64] | None = None
    info: Mapping[str, FeatureInfo] = field(default_factory=dict)
    sub_group_size: int = 32
    device: str = ""
    dropped: tuple[tuple[str, str], ...] = ()
    machine: str = ""
    timing: TimingSummary | None = None
    repeatability: NDArray[np.float64] | None = None
    weights: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.kernels)

    _repr_html_ = shown_by("perflex.fit.table_html:feature_table_html")

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

    def take(self, rows: Sequence[int]) -> FeatureTable:
        """Return the table reduced to the given row numbers, in that order."""
        # With the type given: numpy makes an empty list an array of floats, which cannot index.
        index = np.asarray(rows, dtype=np.intp)
        return replace(
            self,
            kernels=tuple(self.kernels[i] for i in index),
            values=self.values[index],
            groups=tuple(self.groups[i] for i in index) if self.groups else (),
            scale=None if self.scale is None else self.scale[index],
            spread=None if self.spread is None else self.spread[index],
            repeatability=None if self.repeatability is None else self.repeatability[index],
            weights=None if self.weights is None else self.weights[index],
        )


def scale_features_by_output(table: FeatureTable) -> FeatureTable:
    """Make a fit minimise relative instead of absolute errors (paper Section 7.2).

    The paper divides each row's features by its output and sets the output to 1. That is the same as
    dividing the residual by the output as long as the model is homogeneous of degree one in its
    features; for other models (an overlap with an absolute edge) only the latter is meant, so the
    factor is kept beside the values and applied to the residual.

    Parameters
    ----------
    table
        A table with an output column of positive values.

    Returns
    -------
    FeatureTable
        The same values with ``scale`` set to 1/output.

    Raises
    ------
    CalibrationError
        The table has no output column, or an output is not a positive finite number.
    """
    if table.output is None:
        msg = "the feature table has no output column to scale by; gather it with the model's output feature"
        raise CalibrationError(msg)
    output = table.column(table.output)
    bad = [table.kernels[i] for i in np.flatnonzero(~(np.isfinite(output) & (output > 0)))]
    if bad:
        msg = f"cannot scale by an output that is not positive and finite: {', '.join(bad[:5])}"
        raise CalibrationError(msg, kernel=bad[0])
    # Beside the values, not in them: what was measured stays readable, and scaling twice is the same as once.
    return replace(table, scale=1.0 / output)


def weigh_generators_alike(table: FeatureTable) -> FeatureTable:
    """Make a fit count each generator as much as any other, however many rows it has.

    What a model leaves out is much the same in all rows of a generator, so that many rows of one say little more than
    few. Each row's square counts with the rows over the generators, divided by the rows of its own generator: the mean
    weight is one. That is weighted least squares, standard errors and all.

    Parameters
    ----------
    table
        A table that names the generator of each row.

    Returns
    -------
    FeatureTable
        The same values with ``weights`` set.

    Raises
    ------
    CalibrationError
        The table does not name generators.
    """
    if not table.groups:
        msg = "the feature table does not name the generators of its rows; gather it anew, or weigh all rows alike"
        raise CalibrationError(msg)
    _, place, count = np.unique(table.groups, return_inverse=True, return_counts=True)
    return replace(table, weights=len(table) / (len(count) * count[place]))


def fitted_rows(model: Model, table: FeatureTable, *, scaled: bool) -> FeatureTable:
    """Return what a fit of a model used of a table: the model's columns, and the factor of each residual."""
    names = tuple(model.all_features())
    part = FeatureTable(
        model.output_feature,
        names,
        table.kernels,
        np.column_stack([table.column(name) for name in names]),
        groups=table.groups,
        spread=table.spread,
        repeatability=table.repeatability,
        info={name: table.info[name] for name in names if name in table.info},
        sub_group_size=table.sub_group_size,
        device=table.device,
        weights=table.weights,
    )
    return scale_features_by_output(part) if scaled else part
