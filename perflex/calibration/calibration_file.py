"""The calibration file: what stands in it, and reading it back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec
import numpy as np

from perflex.errors import PerflexError
from perflex.expression.model import Model
from perflex.fit.result import FitResult, FitStatus, ParameterEstimate
from perflex.fit.table import FeatureInfo, FeatureTable, scale_features_by_output
from perflex.fit.units import output_unit
from perflex.yaml_file import Fields, Finite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.calibration.record import CalibrationRecord
    from perflex.yaml_file import Section

__all__ = ["FORMAT", "calibration_content", "fitted_rows", "read_calibration_parts"]


FORMAT = "perflex-calibration/1"
_Value = TypeVar("_Value")
_Unit = TypeVar("_Unit")


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
        "measurement_kernels": _kernels_content(calibration),
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
        "sub_group_size": {"value": fit.sub_group_size, "unit": "work-item"},
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
        "covariance": {
            "unit": "product of the two parameters' units",
            "rows": [[float(v) for v in row] for row in fit.covariance],
        },
    }


# The schema of the file, as `calibration_content` writes it.
class _Quantity(Fields, Generic[_Value, _Unit]):
    value: _Value
    unit: _Unit


class _ModelText(Fields):
    output: str
    expression: str


class _Parameter(Fields):
    value: Finite
    unit: str
    standard_error: float
    kind: str
    negative: bool
    at_bound: bool
    determined: bool
    rate: _Quantity[Finite, str] | None = None


class _Status(Fields):
    valid: bool
    reason: str
    evaluations: int
    starts: int
    starts_at_optimum: int


class _Covariance(Fields):
    unit: Literal["product of the two parameters' units"]
    rows: list[list[float]]


class _Fit(Fields, kw_only=True):
    residual_norm: _Quantity[Finite, str]
    scaled_by_output: bool
    nonnegative: bool | None = None
    sub_group_size: _Quantity[int, Literal["work-item"]]
    condition_number: _Quantity[float, Literal["1"]]
    degrees_of_freedom: int
    undetermined: tuple[str, ...]
    status: _Status
    covariance: _Covariance


class _Column(Fields):
    feature: str
    unit: str


class _Kernel(Fields):
    kernel: str
    relative_error: float
    generator: str | None = None
    spread: Finite = math.nan
    values: str = ""


class _Dropped(Fields):
    kernel: str
    reason: str


class _Kernels(Fields, kw_only=True):
    relative_error_unit: Literal["1"]
    columns: tuple[_Column, ...] | None = None
    kernels: tuple[_Kernel, ...]
    dropped: tuple[_Dropped, ...]


class _CalibrationFile(Fields, kw_only=True):
    date: str
    versions: dict[str, str]
    device: dict[str, Any]
    machine: str = ""
    model: _ModelText
    options: dict[str, Any]
    noise_floor: _Quantity[Finite, Literal["1"]] | None
    parameters: dict[str, _Parameter]
    fit: _Fit
    measurement_kernels: _Kernels
    complete: bool


def read_calibration_parts(top: Section) -> dict[str, Any]:
    """Return the fields of the calibration in a file.

    Raises
    ------
    FileFormatError
        A field is missing, unknown or wrong; it is named with its line.
    """
    if top.entries.get("complete") is not True:
        msg = "it is missing at the end; the file is cut off, make it again"
        raise top.error(msg, "complete")
    file = top.read(_CalibrationFile)
    try:
        model = Model(file.model.output, file.model.expression)
    except PerflexError as error:
        raise top.error(error.message, "model", "expression") from error
    return {
        "model": model,
        "fit": _read_fit(top, file, model),
        "device": file.device,
        "machine": file.machine,
        "date": file.date,
        "versions": file.versions,
        "options": file.options,
        "noise_floor": None if file.noise_floor is None else file.noise_floor.value,
        "dropped": tuple((entry.kernel, entry.reason) for entry in file.measurement_kernels.dropped),
        "table": _read_table(top, file, model),
    }


def _read_fit(top: Section, file: _CalibrationFile, model: Model) -> FitResult:
    names, fit = model.params(), file.fit
    if sorted(file.parameters) != sorted(names):
        msg = f"the parameters must be those of the model: {', '.join(names)}"
        raise top.error(msg, "parameters")
    unit = _residual_unit(fit.scaled_by_output, model)
    if fit.residual_norm.unit != unit:
        msg = f"the unit must be {unit!r}, not {fit.residual_norm.unit!r}"
        raise top.error(msg, "fit", "residual_norm", "unit")
    rows = fit.covariance.rows
    if len(rows) != len(names) or any(len(row) != len(names) for row in rows):
        msg = f"{len(names)} rows of {len(names)} numbers must stand here"
        raise top.error(msg, "fit", "covariance", "rows")
    kernels = file.measurement_kernels.kernels
    return FitResult(
        tuple(_estimate(name, file.parameters[name]) for name in names),
        fit.residual_norm.value,
        fit.scaled_by_output,
        tuple(entry.kernel for entry in kernels),
        tuple(entry.relative_error for entry in kernels),
        FitStatus(*msgspec.structs.astuple(fit.status)),
        np.array(rows, dtype=np.float64),
        fit.condition_number.value,
        fit.degrees_of_freedom,
        fit.undetermined,
        fit.sub_group_size.value,
        fit.nonnegative,
    )


def _estimate(name: str, entry: _Parameter) -> ParameterEstimate:
    rate = (None, "") if entry.rate is None else (entry.rate.value, entry.rate.unit)
    return ParameterEstimate(
        name, entry.value, entry.unit, entry.standard_error, *rate, entry.kind, entry.negative, entry.at_bound,
        entry.determined,
    )  # fmt: skip


def _read_table(top: Section, file: _CalibrationFile, model: Model) -> FeatureTable | None:
    """Return the values that were fitted; None where the file keeps none, as those of earlier versions."""
    section = file.measurement_kernels
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
        if file.fit.scaled_by_output and not numbers[0] > 0:
            msg = f"the measured output, the first, must be positive, not {numbers[0]:g}"
            raise top.error(msg, *where, "values")
        if (entry.generator is None) != (kernels[0].generator is None):
            msg = "every kernel must have a generator, or none"
            raise top.error(msg, *where, "generator")
        values[row] = numbers
    spread = np.array([entry.spread for entry in kernels])
    table = FeatureTable(
        names[0],
        names,
        tuple(entry.kernel for entry in kernels),
        values,
        groups=tuple(entry.generator for entry in kernels if entry.generator is not None),
        spread=spread if np.isfinite(spread).any() else None,
        info={column.feature: FeatureInfo(column.unit) for column in columns},
        sub_group_size=file.fit.sub_group_size.value,
    )
    return scale_features_by_output(table) if file.fit.scaled_by_output else table


def _numbers(text: str) -> list[float]:
    """Return the finite numbers in a text; none where anything else is in it."""
    try:
        numbers = [float(word) for word in text.split()]
    except ValueError:
        return []
    return numbers if all(map(math.isfinite, numbers)) else []


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


def _kernels_content(calibration: CalibrationRecord) -> dict[str, Any]:
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
