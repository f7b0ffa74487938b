"""The calibration file: what stands in it, and reading it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.calibration_rows import kernels_content, read_errors, read_rows
from perflex.errors import PerflexError
from perflex.expression.model import Model
from perflex.fit.result import FitResult, FitStatus, ParameterEstimate
from perflex.fit.units import output_unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.calibration.calibration import Calibration
    from perflex.yaml_file import Section

__all__ = ["FORMAT", "calibration_content", "read_calibration_parts"]

FORMAT = "perflex-calibration/1"
_COVARIANCE_UNIT = "product of the two parameters' units"
_SUB_GROUP_UNIT = "work-item"


def calibration_content(calibration: Calibration) -> dict[str, Any]:
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


def _fit_content(calibration: Calibration) -> dict[str, Any]:
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
