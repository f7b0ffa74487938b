"""The calibration file: what stands in it, and reading it back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import PerflexError
from perflex.expression.model import Model
from perflex.fit.result import FitResult, FitStatus, ParameterEstimate
from perflex.fit.table import FeatureInfo, FeatureTable, scale_features_by_output
from perflex.fit.units import output_unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.calibration.record import CalibrationRecord
    from perflex.yaml_file import Section

__all__ = [
    "FORMAT",
    "calibration_content",
    "fitted_rows",
    "kernels_content",
    "read_calibration_parts",
    "read_errors",
    "read_rows",
]


FORMAT = "perflex-calibration/1"


_COVARIANCE_UNIT = "product of the two parameters' units"


_SUB_GROUP_UNIT = "work-item"


def calibration_content(calibration: CalibrationRecord) -> dict[str, Any]:
    """Return the content of a calibration's file."""
    fit = calibration.fit
    floor = calibration.noise_floor
    return {
        "schema": FORMAT,
        "date": calibration.date,
        "versions": dict(calibration.versions),
        "device": _scalars(calibration.device),
        **({"machine": calibration.machine} if calibration.machine else {}),
        "model": {"output": calibration.model.output_feature, "expression": calibration.model.expression},
        "options": _scalars(calibration.options),
        "noise_floor": None if floor is None else _quantity(floor, "1"),
        "parameters": {parameter.name: _parameter_content(parameter) for parameter in fit.parameters},
        "fit": _fit_content(calibration),
        "measurement_kernels": kernels_content(calibration),
        # Last, so that a file cut off anywhere lacks it.
        "complete": True,
    }


def _quantity(value: float, unit: str) -> dict[str, Any]:
    return {"value": float(value), "unit": unit}


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as YAML knows them; numpy's numbers become Python's, all else text."""
    return {str(key): _scalar(value) for key, value in values.items()}


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_scalar(entry) for entry in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _parameter_content(parameter: ParameterEstimate) -> dict[str, Any]:
    content: dict[str, Any] = {
        "value": parameter.value,
        "unit": parameter.unit,
        "standard_error": parameter.standard_error,
        "kind": parameter.kind,
        "negative": parameter.negative,
        "at_bound": parameter.at_bound,
        "determined": parameter.determined,
    }
    if parameter.rate is not None:
        content["rate"] = _quantity(parameter.rate, parameter.rate_unit)
    return content


def _residual_unit(fit_is_scaled: bool, model: Model) -> str:
    return "1" if fit_is_scaled else output_unit(model.output_feature, {})


def _fit_content(calibration: CalibrationRecord) -> dict[str, Any]:
    fit = calibration.fit
    return {
        "residual_norm": _quantity(fit.residual_norm, _residual_unit(fit.scaled, calibration.model)),
        "scaled_by_output": fit.scaled,
        **({} if fit.nonnegative is None else {"nonnegative": fit.nonnegative}),
        "sub_group_size": {"value": fit.sub_group_size, "unit": _SUB_GROUP_UNIT},
        "condition_number": _quantity(fit.condition_number, "1"),
        "degrees_of_freedom": fit.degrees_of_freedom,
        "undetermined": list(fit.undetermined),
        "status": {
            "valid": fit.status.valid,
            "reason": fit.status.reason,
            "evaluations": fit.status.evaluations,
            "starts": fit.status.starts,
            "starts_at_optimum": fit.status.starts_at_optimum,
        },
        "covariance": {"unit": _COVARIANCE_UNIT, "rows": [[float(v) for v in row] for row in fit.covariance]},
    }


def read_calibration_parts(top: Section) -> dict[str, Any]:
    """Return the fields of the calibration in a file.

    Raises
    ------
    FileFormatError
        A field is missing, unknown or wrong; it is named with its line.
    """
    if "complete" not in top or not top.flag("complete"):
        msg = "it is missing at the end; the file is cut off, make it again"
        raise top.error(msg, "complete")
    model = _read_model(top.section("model"))
    parameters = _read_parameters(top.section("parameters"), model)
    kernels = top.section("measurement_kernels")
    labels, errors = read_errors(kernels)
    noise_floor = None
    if top.entries.get("noise_floor", ...) is None:
        top.skip("noise_floor")
    else:
        noise_floor = top.quantity("noise_floor", "1")
    versions = top.section("versions")
    fit = _read_fit(top.section("fit"), model, parameters, labels, errors)
    parts = {
        "model": model,
        "fit": fit,
        "device": top.plain("device"),
        "machine": top.text("machine") if "machine" in top else "",
        "date": top.text("date"),
        "versions": {key: versions.text(key) for key in versions},
        "options": top.plain("options"),
        "noise_floor": noise_floor,
        "dropped": tuple((entry.text("kernel"), entry.text("reason")) for entry in kernels.sections("dropped")),
        "table": read_rows(kernels, model, scaled=fit.scaled, sub_group_size=fit.sub_group_size),
    }
    kernels.finish()
    top.finish()
    return parts


def _read_model(section: Section) -> Model:
    output, expression = section.text("output"), section.text("expression")
    section.finish()
    try:
        return Model(output, expression)
    except PerflexError as error:
        raise section.error(error.message, "expression") from error


def _read_parameters(section: Section, model: Model) -> tuple[ParameterEstimate, ...]:
    if sorted(section) != sorted(model.params()):
        msg = f"the parameters must be those of the model: {', '.join(model.params())}"
        raise section.error(msg)
    estimates = []
    for name in model.params():
        entry = section.section(name)
        rate, rate_unit = None, ""
        if "rate" in entry:
            rate = entry.quantity("rate")
            rate_unit = entry.section("rate").text("unit")
        estimates.append(
            ParameterEstimate(
                name,
                entry.number("value"),
                entry.text("unit"),
                entry.number("standard_error", finite=False),
                rate,
                rate_unit,
                entry.text("kind"),
                entry.flag("negative"),
                entry.flag("at_bound"),
                entry.flag("determined"),
            )
        )
        entry.finish()
    return tuple(estimates)


def _read_fit(
    section: Section,
    model: Model,
    parameters: tuple[ParameterEstimate, ...],
    labels: tuple[str, ...],
    errors: tuple[float, ...],
) -> FitResult:
    scaled = section.flag("scaled_by_output")
    status = section.section("status")
    fit = FitResult(
        parameters,
        section.quantity("residual_norm", _residual_unit(scaled, model)),
        scaled,
        labels,
        errors,
        FitStatus(
            status.flag("valid"),
            status.text("reason"),
            status.integer("evaluations"),
            status.integer("starts"),
            status.integer("starts_at_optimum"),
        ),
        _read_covariance(section.section("covariance"), len(parameters)),
        section.quantity("condition_number", "1", finite=False),
        section.integer("degrees_of_freedom"),
        section.texts("undetermined"),
        int(section.quantity("sub_group_size", _SUB_GROUP_UNIT)),
        section.flag("nonnegative") if "nonnegative" in section else None,
    )
    status.finish()
    section.finish()
    return fit


def _read_covariance(section: Section, count: int) -> Any:
    rows = section.items("rows")
    numbers = all(
        isinstance(row, list) and len(row) == count and all(type(v) in {int, float} for v in row) for row in rows
    )
    if len(rows) != count or not numbers:
        msg = f"{count} rows of {count} numbers must stand here"
        raise section.error(msg, "rows")
    if section.text("unit") != _COVARIANCE_UNIT:
        msg = f"the unit must be {_COVARIANCE_UNIT!r}"
        raise section.error(msg, "unit")
    section.finish()
    return np.array(rows, dtype=np.float64)


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


def kernels_content(calibration: CalibrationRecord) -> dict[str, Any]:
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
