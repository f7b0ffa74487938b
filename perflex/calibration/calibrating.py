"""From a model and measurement kernels to a calibration, in one call."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.acceptance import median_repeatability, warn_of_doubts
from perflex.calibration.calibration import Calibration
from perflex.calibration.device_match import TIMES_FACT
from perflex.calibration.gathering import Measuring, gather, target_on
from perflex.calibration.ready import described_model, found_device, own_cpu, ready_model, usual_fit
from perflex.calibration.times.table import KnownTimes
from perflex.calibration.times.target import machine_for_times, require_no_device, target_for_times
from perflex.calibration.usual_prior import fit_about_usual, usual_description
from perflex.devices.device import identity
from perflex.devices.listing import is_wall_time
from perflex.errors import CalibrationError
from perflex.fit.fitting import fit_model
from perflex.fit.options import FitOptions
from perflex.fit.problem import require_fittable, require_informed
from perflex.machines.host import host_machine
from perflex.progress import RunOptions, progress_shown
from perflex.store.resume import resumable
from perflex.timing.executors.worker_device import WorkerDevice
from perflex.timing.options import TimingOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.calibration.ready import ReadyModel
    from perflex.calibration.times.table import TimesTable
    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable
    from perflex.timing.launch.backend import TimedDevice

# What counts, builds, times or fits: another version of it may explain other values.
_VERSIONED = ("perflex", "loopy", "islpy-barvinok", "pyopencl", "numpy", "scipy")


def calibrate(
    model: Model | str,
    kernels: Sequence[Any] | None = None,
    *,
    device: str | TimedDevice | None = None,
    times: TimesTable | None = None,
    budget_s: float | None = None,
    timing: TimingOptions | None = None,
    fit: FitOptions | None = None,
    run: RunOptions | None = None,
) -> Calibration:
    """Measure the kernels on a device and fit the model to them (paper Sections 7.1 to 7.2).

    Counts and samples are kept in the store (`using_store`): a calibration that was cut short goes on where it was,
    unless it has a budget. Features that need a machine use that of `using_machine`, else the device's own.

    Parameters
    ----------
    model
        A model whose output is a wall time, or its string; or the name or file of a ready one, of which ``"general"``
        is that for any kernel on the device's kind.
    kernels
        Measurement kernels, or pairs ``(kernel, sizes)``; by default a ready model's own.
    device
        A device, or parts of its name; by default the one that the model's output feature names, or the default device.
    times
        Kernels with times that others measured, as of `load_times`, instead of kernels, device and all that says how
        to measure: no device is opened. ``"general"`` is then the model for the kind of the machine.
    budget_s
        Seconds that timing kernels, warm-ups included, and choosing them may take; counting and building come on top.
        Where building and timing all kernels fits in, that is done, as without a budget. Else only those are measured
        that tell most about the parameters for their device time (D-optimal on the scaled Jacobian), in batches, each
        kernel three times or more often where that tells more than another kernel. Of a device that is no `Device`
        only the device time counts. By default all kernels are measured.
    timing
        How kernels are timed; by default as a ready model's file says.
    fit
        How the model is fitted; by default as a ready model's file says. Where undetermined parameters are errors, what
        no kernel contains is refused before anything is timed.
    run
        Where kernels are counted and timed, and who is told of progress, as for `gather_feature_values`. Not timed
        elsewhere within a budget, which decides while it measures.

    Returns
    -------
    Calibration
        Parameters with units and uncertainties, the device's facts, and how they were obtained. Where the times
        are so bad that ``perflex calibrate`` would not write its file, a `PerflexWarning` says so; ``save`` writes it.
        Another one says so where a quarter of the samples or more were disturbed, or of the kernels rest on such.

    Raises
    ------
    CalibrationError
        The output is no wall time, the model cannot be fitted, or the kernels do not determine the parameters,
        at least not within the budget.
    DeviceError, MachineError, NoMatchError, MissingSizeError, StoreError
        As `gather_feature_values`.
    """
    run = run or RunOptions()
    if times is not None:
        require_no_device(kernels=kernels, device=device, timing=timing, budget_s=budget_s)
        return _of_times(model, times, fit, run)
    if isinstance(model, str):
        ready = ready_model(model, device)
        return calibrate_ready(ready, kernels, budget_s=budget_s, timing=timing, fit=fit, run=run)
    options, fit = timing or TimingOptions(), fit or FitOptions()
    _require_measurable(model)
    if not kernels:
        msg = "there are no measurement kernels; pass some, times of kernels, or a ready model that has its own"
        raise CalibrationError(msg)
    where, _ = found_device(device, model.output_feature)
    if budget_s is not None and isinstance(where, WorkerDevice):
        msg = "a budget chooses kernels while it measures on this machine; leave out budget_s, or measure here"
        raise CalibrationError(msg)
    cpu = own_cpu(where, model.input_features())
    target = target_on(where, model.input_features(), None if cpu is None else host_machine(cpu))
    with progress_shown(run.progress, "calibrate:") as report:
        measuring = Measuring(where, options, target, run.executor, report, *_checked(model, fit))
        table, spent = _gathered(model, kernels, budget_s, measuring)
    usual = usual_description(model)
    fit_result = fitted(model, table, fit) if usual is None else fit_about_usual(usual, table)
    found = calibration_from_table(model, table, fit_result, device=where, timing=options)
    found = replace(found, options={**found.options, **spent}, cpu=cpu)
    warn_of_doubts(found)
    return found


def calibrate_ready(
    ready: ReadyModel,
    kernels: Sequence[Any] | None = None,
    *,
    budget_s: float | None = None,
    timing: TimingOptions | None = None,
    fit: FitOptions | None = None,
    run: RunOptions | None = None,
) -> Calibration:
    """Calibrate a ready model on its device, as `calibrate`."""
    timing, fit = timing or ready.timing, fit or usual_fit(ready.description)
    # Sizes come from a measurement, too: going on, a run has to find the same kernels.
    with resumable(identity(ready.device), [ready.description.name, ready.model.expression]):
        kernels = ready.kernels() if kernels is None else kernels
        return calibrate(ready.model, kernels, device=ready.device, budget_s=budget_s, timing=timing, fit=fit, run=run)


def _gathered(
    model: Model, kernels: Sequence[Any], budget_s: float | None, measuring: Measuring
) -> tuple[FeatureTable, dict[str, Any]]:
    """Count and measure kernels, within a budget if there is one; return their table, and how a budget was spent."""
    try:
        if budget_s is None:
            return gather(tuple(model.all_features()), kernels, measuring), {}
        from perflex.calibration.budget.within_budget import measure_within_budget

        return measure_within_budget(model, kernels, budget_s, measuring)
    except CalibrationError as error:
        if "dropped" not in error.context:
            raise
        names = tuple(model.params())
        msg = f"{error.message}; so nothing determines {', '.join(names)}"
        raise CalibrationError(msg, **error.context, parameters=names) from error


def fitted(model: Model, table: FeatureTable, options: FitOptions | None = None) -> FitResult:
    """Fit a model as `fit_model`; errors say which kernels were left out before, for these may be what is lacking."""
    try:
        return fit_model(model, table, options)
    except CalibrationError as error:
        if not table.dropped:
            raise
        label, reason = table.dropped[0]
        msg = f"{error.message} ({len(table.dropped)} kernels were left out; the first: {label}: {reason})"
        raise CalibrationError(msg, **error.context) from error


def _of_times(model: Model | str, times: TimesTable, fit: FitOptions | None, run: RunOptions) -> Calibration:
    """Fit a model to times that others measured."""
    facts = machine_for_times(times)
    fitting: Callable[[FeatureTable], FitResult] | None = None
    if isinstance(model, str):
        description = described_model(model, None if facts is None else facts.kind)
        if description.usual:
            fitting = partial(fit_about_usual, description)
        model, fit = description.model(), fit or usual_fit(description)
    fit = fit or FitOptions()
    _require_measurable(model)
    features = tuple(model.all_features())
    with progress_shown(run.progress, "calibrate:") as report:
        target = target_for_times(times, features)
        # Usual values say what the kernels do not.
        refused = _checked(model, fit if fitting is None else replace(fit, on_undetermined="warn"))
        measuring = Measuring(None, TimingOptions(), target, run.executor, report, *refused, times=KnownTimes(times))
        table = gather(features, (), measuring)
    found = calibration_from_table(model, table, fit_model(model, table, fit) if fitting is None else fitting(table))
    device = {"name": times.device, "kind": "" if facts is None else facts.kind, TIMES_FACT: times.source}
    found = replace(
        found,
        device={name: value for name, value in device.items() if value},
        options={"times": times.source, "times_rows": len(times), "times_sha256": times.sha256},
    )
    warn_of_doubts(found)
    return found


def _checked(model: Model, fit: FitOptions) -> tuple[Callable[[Mapping[str, NDArray[np.float64]]], None] | None, bool]:
    """Return what refuses counts that leave costs out, and whether they may lack some."""
    strict = fit.on_undetermined == "error"
    return (partial(require_informed, model) if strict else None), not strict


def _require_measurable(model: Model) -> None:
    """Make sure of what needs no measurement, before anything is measured."""
    if not is_wall_time(model.output_feature):
        msg = (
            f"the model's output {model.output_feature!r} is no wall time; name one such as f_cl_wall_time, "
            "or use gather_feature_values and fit_model"
        )
        raise CalibrationError(msg, feature=model.output_feature)
    require_fittable(model)


def calibration_from_table(
    model: Model,
    table: FeatureTable,
    fit: FitResult,
    *,
    device: TimedDevice | None = None,
    timing: TimingOptions | None = None,
) -> Calibration:
    """Return the calibration of values gathered before and their fit."""
    return Calibration(
        model=model,
        fit=fit,
        table=table.of_features(model.all_features()),
        device=_facts(device),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=software_versions(),
        options={
            name: value for part in (timing, table.timing) if part is not None for name, value in asdict(part).items()
        },
        noise_floor=_noise_floor(table),
        dropped=table.dropped,
        machine=table.machine,
    )


def _noise_floor(table: FeatureTable) -> float | None:
    """Return the median repeatability of the rows, or their spread where nothing else is known; None without either."""
    known = median_repeatability(table)
    if known is None and table.spread is not None and np.isfinite(table.spread).any():
        # The median: some kernels that cannot be timed well do not raise the floor.
        known = float(np.nanmedian(table.spread))
    return known


def _facts(device: Any) -> dict[str, Any]:
    names = (
        "name", "platform", "vendor", "driver", "api", "kind", "compute_units", "sub_group_size", "local_memory_bytes",
        "most_local_memory_bytes", "max_work_group_size", "compute_capability",
    )  # fmt: skip
    # OpenCL and CUDA know different facts of a device; those that it lacks are left out.
    return {name: value for name in names if (value := getattr(device, name, "")) not in ("", 0)}


def software_versions() -> dict[str, str]:
    """Return the versions of what counts, builds, times and fits, by package."""
    return {package: _installed_version(package) for package in _VERSIONED}


# Each answer is read from a package's files, which takes as long as a small fit.
@cache
def _installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed as a package"
