"""The calibration file: what stands in it, and reading it back."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from perflex.calibration.carried_entry import CarriedEntry, PriorEntry
from perflex.calibration.carried_over import LEVELS
from perflex.calibration.cpu_entry import CpuEntry
from perflex.calibration.kernel_entries import KernelsEntry, kernels_entry, read_table
from perflex.calibration.learned_entry import LearnedEntry
from perflex.calibration.left_out_entry import GeneratorTermEntry, LeftOutEntry
from perflex.errors import PerflexError
from perflex.expression.model import Model
from perflex.expression.roles import find_roles
from perflex.fit.loss import Loss  # noqa: TC001 - msgspec reads the annotations
from perflex.fit.result import FitResult, FitStatus, ParameterEstimate
from perflex.fit.units import output_unit
from perflex.yaml_file import Fields, Finite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.calibration.carried_over import CarriedOver
    from perflex.calibration.record import CalibrationRecord
    from perflex.yaml_file import Section

FORMAT = "perflex-calibration/1"
_Value = TypeVar("_Value")
_Unit = TypeVar("_Unit")


# The schema of the file, in the order written. Fields that have their default are left out.
class _Quantity(Fields, Generic[_Value, _Unit], frozen=True):
    value: _Value
    unit: _Unit


class _ModelText(Fields, frozen=True):
    output: str
    expression: str


class _Parameter(Fields, frozen=True, omit_defaults=True):
    value: Finite
    unit: str
    standard_error: float
    kind: str
    negative: bool
    at_bound: bool
    determined: bool
    rate: _Quantity[Finite, str] | None = None
    # The 95 % confidence interval in the same unit; files of earlier versions have none.
    low: Finite | None = None
    high: Finite | None = None


class _Status(Fields, frozen=True):
    valid: bool
    reason: str
    evaluations: int
    starts: int
    starts_at_optimum: int


class _Covariance(Fields, frozen=True):
    unit: Literal["product of the two parameters' units"]
    rows: list[list[float]]


class _Fit(Fields, frozen=True, kw_only=True, omit_defaults=True):
    residual_norm: _Quantity[Finite, str]
    scaled_by_output: bool
    nonnegative: bool | None = None
    # What counted alike in the fit; rows in files of earlier versions.
    weights: Literal["rows", "generators"] = "rows"
    # Files of earlier versions, and sums of squares, have none of these three.
    loss: Loss = "squared"
    loss_scale: _Quantity[Finite, str] | None = None
    robust_deviation: _Quantity[Finite, str] | None = None
    sub_group_size: _Quantity[Annotated[int, Meta(ge=1, le=65536)], Literal["work-item"]]
    condition_number: _Quantity[float, Literal["1"]]
    degrees_of_freedom: int
    undetermined: tuple[str, ...]
    # Files of earlier versions have none.
    collinear: tuple[str, ...] = ()
    no_overlap: tuple[str, ...] = ()
    bounds: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    status: _Status
    covariance: _Covariance


class _CalibrationFile(Fields, frozen=True, kw_only=True, omit_defaults=True):
    date: str
    versions: dict[str, str]
    device: dict[str, Any]
    machine: str = ""
    cpu: CpuEntry | None = None
    model: _ModelText
    options: dict[str, Any]
    noise_floor: _Quantity[Finite, Literal["1"]] | None
    parameters: dict[str, _Parameter]
    fit: _Fit
    # Files of earlier versions, and of few generators, have none.
    left_out: LeftOutEntry | None = None
    # Only where intervals ask for it: a refit for each generator takes too long to be repeated by each command.
    generator_term: GeneratorTermEntry | None = None
    learned: LearnedEntry | None = None
    # Those of one device's measurements alone have neither.
    prior: PriorEntry | None = None
    transferred: CarriedEntry | None = None
    measurement_kernels: KernelsEntry
    # Last, so that a file cut off anywhere lacks it.
    complete: bool


def calibration_content(calibration: CalibrationRecord) -> dict[str, Any]:
    """Return the content of a calibration's file."""
    fit, floor, model = calibration.fit, calibration.noise_floor, calibration.model
    file = _CalibrationFile(
        date=calibration.date,
        versions=dict(calibration.versions),
        device=_scalars(calibration.device),
        machine=calibration.machine,
        cpu=None if calibration.cpu is None else CpuEntry.of(calibration.cpu),
        model=_ModelText(model.output_feature, model.expression),
        options=_scalars(calibration.options),
        noise_floor=None if floor is None else _Quantity(float(floor), "1"),
        parameters={
            parameter.name: _parameter(parameter, fit.interval(parameter.name)) for parameter in fit.parameters
        },
        fit=_Fit(
            residual_norm=_Quantity(float(fit.residual_norm), _residual_unit(fit.scaled, model)),
            scaled_by_output=fit.scaled,
            nonnegative=fit.nonnegative,
            weights="rows" if calibration.table is None or calibration.table.weights is None else "generators",
            loss=fit.loss,
            loss_scale=_optional(fit.loss_scale, _residual_unit(fit.scaled, model)),
            robust_deviation=_optional(fit.robust_deviation, _residual_unit(fit.scaled, model)),
            sub_group_size=_Quantity(fit.sub_group_size, "work-item"),
            condition_number=_Quantity(float(fit.condition_number), "1"),
            degrees_of_freedom=fit.degrees_of_freedom,
            undetermined=tuple(fit.undetermined),
            collinear=tuple(fit.collinear),
            no_overlap=tuple(fit.no_overlap),
            bounds=dict(fit.bounds),
            status=_Status(*astuple(fit.status)),
            covariance=_Covariance("product of the two parameters' units", fit.covariance.tolist()),
        ),
        left_out=None if calibration.left_out is None else LeftOutEntry.of(calibration.left_out),
        generator_term=_generator_term(calibration),
        learned=None if calibration.learned is None else LearnedEntry.of(calibration.learned),
        prior=None if fit.prior is None else PriorEntry.of(fit.prior),
        transferred=None if calibration.transferred is None else CarriedEntry.of(calibration.transferred),
        measurement_kernels=kernels_entry(calibration),
        complete=True,
    )
    return {"schema": FORMAT, **msgspec.to_builtins(file, str_keys=True)}


def _generator_term(calibration: CalibrationRecord) -> GeneratorTermEntry | None:
    fit = calibration.fit
    # Without rows to spare there are no intervals; those of many generators, or of other devices, rest on other errors.
    if calibration.table is None or calibration.transferred is not None or fit.degrees_of_freedom < 1:
        return None
    return None if calibration.known_left_out is not None else GeneratorTermEntry.of(calibration.generator_term)


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as YAML knows them; numpy's numbers become Python's, all else text."""
    return {str(key): _scalar(value) for key, value in values.items()}


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_scalar(entry) for entry in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _parameter(estimate: ParameterEstimate, interval: tuple[float, float]) -> _Parameter:
    low, high = interval
    return _Parameter(
        estimate.value,
        estimate.unit,
        estimate.standard_error,
        estimate.kind,
        estimate.negative,
        estimate.at_bound,
        estimate.determined,
        None if estimate.rate is None else _Quantity(float(estimate.rate), estimate.rate_unit),
        low if math.isfinite(low) else None,
        high if math.isfinite(high) else None,
    )


def _optional(value: float | None, unit: str) -> _Quantity[float, str] | None:
    return None if value is None else _Quantity(float(value), unit)


def _residual_unit(fit_is_scaled: bool, model: Model) -> str:
    return "1" if fit_is_scaled else output_unit(model.output_feature, {})


def read_calibration_parts(top: Section) -> dict[str, Any]:
    """Return the fields of the calibration in a file.

    Raises
    ------
    FileFormatError
        A field is missing, unknown or wrong; it is named with its line.
    """
    # First of all: in a file cut off, any other complaint would mislead.
    if top.entries.get("complete") is not True:
        msg = "it is missing at the end: the file is truncated; make it again"
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
        "cpu": None if file.cpu is None else file.cpu.reported(),
        "date": file.date,
        "versions": file.versions,
        "options": file.options,
        "noise_floor": None if file.noise_floor is None else file.noise_floor.value,
        "dropped": tuple((entry.kernel, entry.reason) for entry in file.measurement_kernels.dropped),
        "table": read_table(
            top,
            file.measurement_kernels,
            model,
            scaled=file.fit.scaled_by_output,
            sub_group_size=file.fit.sub_group_size.value,
            weighed=file.fit.weights == "generators",
        ),
        "left_out": None if file.left_out is None else file.left_out.errors(),
        "kept_generator_term": None if file.generator_term is None else file.generator_term.term(),
        "learned": None if file.learned is None else file.learned.residuals(),
        "transferred": _read_carried(top, file),
    }


def _read_carried(top: Section, file: _CalibrationFile) -> CarriedOver | None:
    if file.transferred is None:
        return None
    if not file.transferred.limits_fit:
        msg = f"{len(LEVELS)} numbers must stand here, one for each of the shares {', '.join(map(str, LEVELS))}"
        raise top.error(msg, "transferred", "limits")
    return file.transferred.carried()


def _read_fit(top: Section, file: _CalibrationFile, model: Model) -> FitResult:
    names, fit = model.params(), file.fit
    if sorted(file.parameters) != sorted(names):
        msg = f"the parameters must be those of the model: {', '.join(names)}"
        raise top.error(msg, "parameters")
    unit = _residual_unit(fit.scaled_by_output, model)
    in_it = {"residual_norm": fit.residual_norm, "loss_scale": fit.loss_scale, "robust_deviation": fit.robust_deviation}
    for field, quantity in in_it.items():
        if quantity is not None and quantity.unit != unit:
            msg = f"the unit must be {unit!r}, not {quantity.unit!r}"
            raise top.error(msg, "fit", field, "unit")
        if quantity is not None and quantity.value < 0:
            msg = "it must not be negative"
            raise top.error(msg, "fit", field, "value")
    if (fit.loss == "squared") != (fit.loss_scale is None) or not (fit.loss_scale is None or fit.loss_scale.value > 0):
        msg = f"the loss {fit.loss} has {'no scale' if fit.loss == 'squared' else 'a scale above zero'}"
        raise top.error(msg, "fit", "loss")
    rows = fit.covariance.rows
    if len(rows) != len(names) or any(len(row) != len(names) for row in rows):
        msg = f"{len(names)} rows of {len(names)} numbers must stand here"
        raise top.error(msg, "fit", "covariance", "rows")
    for name in find_roles(model.tree).edges:
        # Earlier versions gave half of the sum for it, with costs of twice their value.
        if file.parameters[name].value == 0 and name not in fit.no_overlap:
            msg = f"{name} is 0 in a file of an earlier version, where that meant another model; calibrate again"
            raise top.error(msg, "parameters", name)
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
        fit.loss,
        None if fit.loss_scale is None else fit.loss_scale.value,
        None if fit.robust_deviation is None else fit.robust_deviation.value,
        collinear=fit.collinear,
        kept_intervals={
            name: (entry.low, entry.high)
            for name, entry in file.parameters.items()
            if entry.low is not None and entry.high is not None
        },
        no_overlap=fit.no_overlap,
        bounds=fit.bounds,
        prior=None if file.prior is None else file.prior.prior(),
    )


def _estimate(name: str, entry: _Parameter) -> ParameterEstimate:
    return ParameterEstimate(
        name,
        entry.value,
        entry.unit,
        entry.standard_error,
        None if entry.rate is None else entry.rate.value,
        "" if entry.rate is None else entry.rate.unit,
        entry.kind,
        entry.negative,
        entry.at_bound,
        entry.determined,
    )
