"""How a calibration's file keeps its measurement kernels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from perflex.fit.table import FeatureInfo, FeatureTable, scale_features_by_output, weigh_generators_alike
from perflex.fit.units import output_unit
from perflex.yaml_file import Fields, Finite

if TYPE_CHECKING:
    from perflex.calibration.record import CalibrationRecord
    from perflex.expression.model import Model
    from perflex.yaml_file import Section


class _Column(Fields, frozen=True):
    feature: str
    unit: str


class _Kernel(Fields, frozen=True, omit_defaults=True):
    kernel: str
    relative_error: float
    generator: str | None = None
    spread: Finite | None = None
    repeatability: Finite | None = None
    # A row as one text: in YAML's block style every number would take a line.
    values: str = ""


class _Dropped(Fields, frozen=True):
    kernel: str
    reason: str


class KernelsEntry(Fields, frozen=True, kw_only=True, omit_defaults=True):
    """Measurement kernels: their values, a row each, and how far off the fit is."""

    relative_error_unit: Literal["1"]
    # Files of earlier versions have no values.
    columns: tuple[_Column, ...] | None = None
    kernels: tuple[_Kernel, ...]
    dropped: tuple[_Dropped, ...]


def kernels_entry(calibration: CalibrationRecord) -> KernelsEntry:
    """Return the entry of a calibration's measurement kernels."""
    fit, table = calibration.fit, calibration.table
    columns, rows = None, [_Kernel(*row) for row in zip(fit.kernels, fit.relative_errors, strict=True)]
    if table is not None:
        unit = {name: info.unit for name, info in table.info.items()}
        unit.setdefault(calibration.model.output_feature, output_unit(calibration.model.output_feature, {}))
        columns = tuple(_Column(name, unit.get(name, name)) for name in table.features)
        groups = table.groups or [None] * len(rows)
        spread, repeatability = (
            [None] * len(rows)
            if column is None
            else [value if math.isfinite(value) else None for value in column.tolist()]
            for column in (table.spread, table.repeatability)
        )
        rows = [
            _Kernel(
                row.kernel,
                row.relative_error,
                group,
                width,
                repeated,
                # repr is the shortest text that reads back as the same double.
                " ".join(repr(value).removesuffix(".0") for value in values),
            )
            for row, group, width, repeated, values in zip(
                rows, groups, spread, repeatability, table.values.tolist(), strict=True
            )
        ]
    dropped = tuple(_Dropped(kernel, reason) for kernel, reason in calibration.dropped)
    return KernelsEntry(relative_error_unit="1", columns=columns, kernels=tuple(rows), dropped=dropped)


def read_table(
    top: Section, section: KernelsEntry, model: Model, *, scaled: bool, sub_group_size: int, weighed: bool = False
) -> FeatureTable | None:
    """Return the values that were fitted; None where the file keeps none, as those of earlier versions.

    With `weighed` generators counted alike in the fit.

    Raises
    ------
    FileFormatError
        A row does not suit the model; it is named with its line.
    """
    columns, kernels = section.columns, section.kernels
    if columns is None:
        return None
    names = tuple(column.feature for column in columns)
    if list(names) != model.all_features():
        msg = f"the columns must be the model's features: {', '.join(model.all_features())}"
        raise top.error(msg, "measurement_kernels", "columns")
    values = np.empty((len(kernels), len(names)))
    for row, entry in enumerate(kernels):
        where = ("measurement_kernels", "kernels", row)
        numbers = _numbers(entry.values)
        if len(numbers) != len(names):
            msg = f"{len(names)} finite numbers separated by blanks must stand here, one for each of the columns"
            raise top.error(msg, *where, "values")
        if scaled and not numbers[0] > 0:
            msg = f"the measured output, the first, must be positive, not {numbers[0]:g}"
            raise top.error(msg, *where, "values")
        if (entry.generator is None) != (kernels[0].generator is None):
            msg = "every kernel must have a generator, or none"
            raise top.error(msg, *where, "generator")
        values[row] = numbers
    spread = np.array([math.nan if entry.spread is None else entry.spread for entry in kernels])
    repeated = np.array([math.nan if entry.repeatability is None else entry.repeatability for entry in kernels])
    table = FeatureTable(
        names[0],
        names,
        tuple(entry.kernel for entry in kernels),
        values,
        groups=tuple(entry.generator for entry in kernels if entry.generator is not None),
        spread=spread if np.isfinite(spread).any() else None,
        info={column.feature: FeatureInfo(column.unit) for column in columns},
        sub_group_size=sub_group_size,
        repeatability=repeated if np.isfinite(repeated).any() else None,
    )
    if weighed and not table.groups:
        msg = "every kernel must have a generator where generators weighed alike"
        raise top.error(msg, "measurement_kernels", "kernels")
    table = weigh_generators_alike(table) if weighed else table
    return scale_features_by_output(table) if scaled else table


def _numbers(text: str) -> list[float]:
    """Return the finite numbers in a text; none where anything else is in it."""
    try:
        numbers = [float(word) for word in text.split()]
    except ValueError:
        return []
    # float also reads "nan" and "inf".
    return numbers if all(map(math.isfinite, numbers)) else []
