"""The calibration file: what stands in it, and reading it back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from perflex.calibration.cross_validation import BetweenGenerators  # noqa: TC001 - msgspec reads the annotations
from perflex.calibration.doubts import DEVICE_LIMITS
from perflex.calibration.transfer_prior import LEVELS, TransferPrior
from perflex.errors import PerflexError
from perflex.expression.model import Model
from perflex.fit.options import ParameterPrior, Prior, Residual
from perflex.fit.problem import pose
from perflex.fit.result import FitResult, FitStatus, ParameterEstimate, output_unit
from perflex.fit.table import FeatureInfo, FeatureTable
from perflex.machines.host import ReportedCpu  # noqa: TC001
from perflex.yaml_file import Fields, Finite, Positive

if TYPE_CHECKING:
    from perflex.calibration.record import CalibrationRecord
    from perflex.yaml_file import Section

FORMAT = "perflex-calibration/3"


# The schema of the file, in the order written. Fields that have their default are left out.
class _ModelText(Fields, frozen=True):
    output: str
    expression: str


class _Covariance(Fields, frozen=True):
    unit: Literal["product of the two parameters' units"]
    rows: list[list[float]]


class _Fit(Fields, frozen=True, kw_only=True, omit_defaults=True):
    residual: Residual
    nonnegative: bool
    # In work-items.
    sub_group_size: Annotated[int, Meta(ge=1, le=65536)]
    condition_number: float
    collinear: tuple[str, ...] = ()
    status: FitStatus
    covariance: _Covariance


class _Prior(Fields, frozen=True):
    parameters: dict[str, ParameterPrior]
    noise: Positive
    sources: tuple[str, ...]


class _CalibrationFile(Fields, frozen=True, kw_only=True, omit_defaults=True):
    date: str
    versions: dict[str, str]
    device: dict[str, Any]
    machine: str = ""
    cpu: ReportedCpu | None = None
    model: _ModelText
    options: dict[str, Any]
    # A fraction.
    noise_floor: Finite | None
    parameters: list[ParameterEstimate]
    fit: _Fit
    between_generators: BetweenGenerators | None = None
    # Those of one device's measurements alone have neither.
    prior: _Prior | None = None
    transferred: TransferPrior | None = None
    measurement_kernels: KernelsEntry
    # Last, so that a file cut off anywhere lacks it.
    complete: bool


def calibration_content(calibration: CalibrationRecord) -> dict[str, Any]:
    """Return the content of a calibration's file."""
    fit, model, prior = calibration.fit, calibration.model, calibration.fit.prior
    file = _CalibrationFile(
        date=calibration.date,
        versions=dict(calibration.versions),
        device=dict(calibration.device),
        machine=calibration.machine,
        cpu=calibration.cpu,
        model=_ModelText(model.output_feature, model.expression),
        options=dict(calibration.options),
        noise_floor=calibration.noise_floor,
        parameters=list(fit.parameters),
        fit=_Fit(
            residual=fit.residual,
            nonnegative=fit.nonnegative,
            sub_group_size=fit.sub_group_size,
            condition_number=float(fit.condition_number),
            collinear=fit.collinear,
            status=fit.status,
            covariance=_Covariance("product of the two parameters' units", fit.covariance.tolist()),
        ),
        # Without rows to spare there are no intervals; those of other devices rest on other errors.
        between_generators=calibration.between_generators if prior is None and fit.degrees_of_freedom > 0 else None,
        prior=None if prior is None else _Prior(dict(prior), prior.noise, prior.sources),
        transferred=calibration.transferred,
        measurement_kernels=kernels_entry(calibration),
        complete=True,
    )
    return {"schema": FORMAT, **msgspec.to_builtins(file, str_keys=True, enc_hook=_plain)}


def _plain(value: object) -> Any:
    """Return a value as YAML knows it; numpy's numbers become Python's, all else text."""
    return value.item() if isinstance(value, np.generic) else str(value)


def read_calibration_parts(top: Section) -> dict[str, Any]:
    """Return the fields of the calibration in a file."""
    # First of all: in a file cut off, any other complaint would mislead.
    if top.entries.get("complete") is not True:
        msg = "it is missing at the end: the file is truncated; make it again"
        raise top.error(msg, "complete")
    file = top.read(_CalibrationFile)
    for limit in (*DEVICE_LIMITS, "compute_units"):
        if not isinstance(file.device.get(limit), int | None):
            msg = "a whole number must stand here"
            raise top.error(msg, "device", limit)
    if file.transferred is not None and len(file.transferred.limits) not in {0, len(LEVELS)}:
        msg = f"{len(LEVELS)} numbers must stand here, one for each of the shares {', '.join(map(str, LEVELS))}"
        raise top.error(msg, "transferred", "limits")
    try:
        model = Model(file.model.output, file.model.expression)
    except PerflexError as error:
        raise top.error(error.message, "model", "expression") from error
    table = read_table(top, file.measurement_kernels, model, file.fit.sub_group_size)
    table = replace(table, machine=file.machine)
    return {
        "model": model,
        "fit": _read_fit(top, file, model, table),
        "table": table,
        "device": file.device,
        "date": file.date,
        "versions": file.versions,
        "options": file.options,
        "noise_floor": file.noise_floor,
        "dropped": tuple((entry.kernel, entry.reason) for entry in file.measurement_kernels.dropped),
        "machine": file.machine,
        "cpu": file.cpu,
        "transferred": file.transferred,
        "kept_between": file.between_generators,
    }


def _read_fit(top: Section, file: _CalibrationFile, model: Model, table: FeatureTable) -> FitResult:
    names, fit = model.params(), file.fit
    if [parameter.name for parameter in file.parameters] != names:
        msg = f"the parameters must be those of the model: {', '.join(names)}"
        raise top.error(msg, "parameters")
    rows = fit.covariance.rows
    if len(rows) != len(names) or any(len(row) != len(names) for row in rows):
        msg = f"{len(names)} rows of {len(names)} numbers must stand here"
        raise top.error(msg, "fit", "covariance", "rows")
    try:
        prior = None if file.prior is None else Prior(file.prior.parameters, file.prior.noise, file.prior.sources)
        problem = pose(model, table, fit.residual, few=True)
    except PerflexError as error:
        raise top.error(error.message, "measurement_kernels" if file.prior is None else "prior") from error
    return FitResult(
        tuple(file.parameters),
        problem,
        fit.status,
        np.array(rows, dtype=np.float64).reshape(len(names), len(names)),
        fit.condition_number,
        fit.collinear,
        fit.nonnegative,
        fit.sub_group_size,
        prior,
    )


class _Column(Fields, frozen=True):
    feature: str
    unit: str


class _Kernel(Fields, frozen=True, omit_defaults=True):
    kernel: str
    # For the reader; it follows from the values and the parameters.
    relative_error: float
    # A row as one text: in YAML's block style every number would take a line.
    values: str
    generator: str | None = None
    spread: Finite | None = None
    repeatability: Finite | None = None


class _Dropped(Fields, frozen=True):
    kernel: str
    reason: str


class KernelsEntry(Fields, frozen=True, kw_only=True):
    """Measurement kernels: their values, a row each, and how far off the fit is."""

    relative_error_unit: Literal["1"]
    columns: tuple[_Column, ...]
    kernels: tuple[_Kernel, ...]
    dropped: tuple[_Dropped, ...]


def kernels_entry(calibration: CalibrationRecord) -> KernelsEntry:
    """Return the entry of a calibration's measurement kernels."""
    table, output = calibration.table, calibration.model.output_feature
    unit = {output: output_unit(output, {})} | {name: info.unit for name, info in table.info.items()}
    nothing = [None] * len(table)
    spread, repeatability = (
        nothing if column is None else [value if math.isfinite(value) else None for value in column.tolist()]
        for column in (table.spread, table.repeatability)
    )
    # repr is the shortest text that reads back as the same double.
    values = [" ".join(repr(value).removesuffix(".0") for value in row) for row in table.values.tolist()]
    columns = (calibration.fit.relative_errors, values, table.groups or nothing, spread, repeatability)
    return KernelsEntry(
        relative_error_unit="1",
        columns=tuple(_Column(name, unit.get(name, name)) for name in table.features),
        kernels=tuple(map(_Kernel, table.kernels, *columns)),
        dropped=tuple(_Dropped(kernel, reason) for kernel, reason in calibration.dropped),
    )


def read_table(top: Section, section: KernelsEntry, model: Model, sub_group_size: int) -> FeatureTable:
    """Return the values that were fitted; a `FileFormatError` names the line of a row that does not suit the model."""
    columns, kernels = section.columns, section.kernels
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
        if not numbers[0] > 0:
            msg = f"the measured output, the first, must be positive, not {numbers[0]:g}"
            raise top.error(msg, *where, "values")
        if (entry.generator is None) != (kernels[0].generator is None):
            msg = "every kernel must have a generator, or none"
            raise top.error(msg, *where, "generator")
        values[row] = numbers
    spread = np.array([math.nan if entry.spread is None else entry.spread for entry in kernels])
    repeated = np.array([math.nan if entry.repeatability is None else entry.repeatability for entry in kernels])
    return FeatureTable(
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


def _numbers(text: str) -> list[float]:
    """Return the finite numbers in a text; none where anything else is in it."""
    try:
        numbers = [float(word) for word in text.split()]
    except ValueError:
        return []
    # float also reads "nan" and "inf".
    return numbers if all(map(math.isfinite, numbers)) else []
