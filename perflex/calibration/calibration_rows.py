"""The measurement kernels in a calibration's file: labels, errors, and the values that were fitted.

Each kernel's values stand in one text, numbers separated by blanks, in the order of ``columns`` (the output
first): as compact as a table, and every number comes back as it was. Files of earlier versions have no values.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.fit.table import FeatureInfo, FeatureTable, scale_features_by_output
from perflex.fit.units import output_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.calibration.calibration import Calibration
    from perflex.expression.model import Model
    from perflex.yaml_file import Section

__all__ = ["fitted_rows", "kernels_content", "read_errors", "read_rows"]


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
        info={name: table.info[name] for name in names if name in table.info},
        sub_group_size=table.sub_group_size,
        device=table.device,
    )
    return scale_features_by_output(part) if scaled else part


def kernels_content(calibration: Calibration) -> dict[str, Any]:
    """Return the content of the section ``measurement_kernels``."""
    fit, table = calibration.fit, calibration.table
    content: dict[str, Any] = {"relative_error_unit": "1"}
    if table is not None:
        unit = {name: info.unit for name, info in table.info.items()}
        unit.setdefault(calibration.model.output_feature, output_unit(calibration.model.output_feature, {}))
        content["columns"] = [{"feature": name, "unit": unit.get(name, name)} for name in table.features]
    entries = []
    for row, (kernel, error) in enumerate(zip(fit.kernels, fit.relative_errors, strict=True)):
        entry: dict[str, Any] = {"kernel": kernel, "relative_error": error}
        if table is not None:
            if table.groups:
                entry["generator"] = table.groups[row]
            if table.spread is not None and np.isfinite(table.spread[row]):
                entry["spread"] = float(table.spread[row])
            entry["values"] = " ".join(_written(value) for value in map(float, table.values[row]))
        entries.append(entry)
    content["kernels"] = entries
    content["dropped"] = [{"kernel": kernel, "reason": reason} for kernel, reason in calibration.dropped]
    return content


def _written(value: float) -> str:
    return repr(value).removesuffix(".0")


def read_errors(section: Section) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return label and relative error of each kernel.

    Raises
    ------
    FileFormatError
        A field is missing or wrong.
    """
    if section.text("relative_error_unit") != "1":
        msg = "the unit must be '1'"
        raise section.error(msg, "relative_error_unit")
    entries = section.sections("kernels")
    labels = tuple(entry.text("kernel") for entry in entries)
    return labels, tuple(entry.number("relative_error", finite=False) for entry in entries)


def read_rows(section: Section, model: Model, *, scaled: bool, sub_group_size: int) -> FeatureTable | None:
    """Return the values that were fitted; None where the file keeps none. Finishes the kernels' entries.

    Raises
    ------
    FileFormatError
        A field is missing, unknown or wrong.
    """
    entries = section.sections("kernels")
    table = _read_table(section, entries, model, sub_group_size) if "columns" in section else None
    for row, entry in enumerate(entries):
        if table is not None and scaled and not table.values[row, 0] > 0:
            msg = f"the measured output, the first, must be positive, not {table.values[row, 0]:g}"
            raise entry.error(msg, "values")
        entry.finish()
    return scale_features_by_output(table) if table is not None and scaled else table


def _read_table(section: Section, entries: Sequence[Section], model: Model, sub_group_size: int) -> FeatureTable:
    columns = section.sections("columns")
    names = [column.text("feature") for column in columns]
    if names != model.all_features():
        msg = f"the columns must be the model's features: {', '.join(model.all_features())}"
        raise section.error(msg, "columns")
    info = {name: FeatureInfo(column.text("unit")) for name, column in zip(names, columns, strict=True)}
    for column in columns:
        column.finish()
    values = np.array([_read_values(entry, len(names)) for entry in entries]).reshape(len(entries), len(names))
    spread = [entry.number("spread") if "spread" in entry else math.nan for entry in entries]
    grouped = bool(entries) and "generator" in entries[0]
    return FeatureTable(
        names[0],
        tuple(names),
        tuple(entry.text("kernel") for entry in entries),
        values,
        groups=tuple(entry.text("generator") for entry in entries) if grouped else (),
        spread=np.array(spread) if np.isfinite(spread).any() else None,
        info=info,
        sub_group_size=sub_group_size,
    )


def _read_values(entry: Section, count: int) -> list[float]:
    words = entry.text("values").split()
    try:
        values = [float(word) for word in words]
    except ValueError:
        values = []
    if len(values) != count or not all(map(math.isfinite, values)):
        msg = f"{count} finite numbers separated by blanks must stand here, one for each of the columns"
        raise entry.error(msg, "values")
    return values
