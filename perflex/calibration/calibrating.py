"""From a model and measurement kernels to a calibration, in one call."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from perflex.calibration.acceptance import median_repeatability, warn_of_doubts
from perflex.calibration.built_target import require_cycles
from perflex.calibration.calibration import Calibration
from perflex.calibration.gathering import Measuring, gather, target_on
from perflex.calibration.its_device import TIMES_FACT
from perflex.calibration.learned import require_learners
from perflex.calibration.left_out import left_out_errors
from perflex.calibration.own_machine import own_cpu
from perflex.calibration.ready import described_model, ready_model
from perflex.calibration.times.table import KnownTimes
from perflex.calibration.times.target import machine_for_times, require_no_device, target_for_times
from perflex.compiled.in_core.source import PORTS, cycle_source
from perflex.devices.wall_time import is_wall_time
from perflex.errors import CalibrationError
from perflex.fit.fitting import fit_model, require_informed
from perflex.fit.problem import require_fittable
from perflex.fit.table import fitted_rows, scale_features_by_output, weigh_generators_alike
from perflex.machines.host import host_machine
from perflex.models import FitSettings
from perflex.progress import progress_shown
from perflex.store.store import using_store
from perflex.timing.measuring import chosen_device
from perflex.timing.options import TimingOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from perflex.calibration.times.table import TimesTable
    from perflex.expression.model import Model
    from perflex.fit.loss import Loss
    from perflex.fit.prior import Prior
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable
    from perflex.machines.machine import Machine
    from perflex.progress import Progress
    from perflex.store.records import Recorder
    from perflex.store.store import StorePlace
    from perflex.timing.launch.backend import TimedDevice

Weights = Literal["rows", "generators"]

# What counts, builds, times or fits: another version of it may explain other values.
_VERSIONED = ("perflex", "loopy", "islpy-barvinok", "pyopencl", "numpy", "scipy")


def calibrate(  # noqa: PLR0913 - one parameter per choice
    model: Model | str,
    kernels: Sequence[Any] | None = None,
    *,
    device: str | TimedDevice | None = None,
    timing: TimingOptions | None = None,
    relative: bool = True,
    nonnegative: bool = True,
    sub_group_size: int | None = None,
    executor: Executor | None = None,
    store: StorePlace | None = None,
    machine: str | Path | Machine | None = None,
    progress: bool | Progress | None = None,
    budget_s: float | None = None,
    guess: Mapping[str, float] | None = None,
    recorder: Recorder | None = None,
    measure_executor: Executor | None = None,
    loss: Loss | None = None,
    on_undetermined: Literal["error", "warn"] | None = None,
    learn: bool = False,
    times: TimesTable | None = None,
    prior: Prior | None = None,
    cycles: str = PORTS,
    weights: Weights = "rows",
) -> Calibration:
    """Measure the kernels on a device and fit the model to them (paper Sections 7.1 to 7.2).

    Parameters
    ----------
    model
        A model whose output is a wall time; or the name or file of a ready one, of which ``"general"`` is that for any
        kernel on the device's kind.
    kernels
        Measurement kernels, or pairs ``(loopy kernel, sizes)``; by default a ready model's own.
    device
        A device, or parts of its name; by default the one that the model's output feature names, or the default device.
    timing
        How kernels are timed; by default as a ready model's file says.
    relative
        Minimise relative errors (the paper's scaling by the output) rather than absolute ones.
    nonnegative
        Keep cost parameters at or above zero.
    sub_group_size
        Work-items per sub-group; by default the device's.
    executor, store, machine
        Where kernels are counted, in which file counts are remembered and samples are kept, and the machine of features
        that need one, as for `gather_feature_values`: a calibration that was cut short goes on where it was, unless it
        has a budget.
    progress
        True for a progress bar; or called with (done, total, what) as work proceeds.
    budget_s
        Seconds that timing kernels, warm-ups included, and choosing them may take; counting and building come on top.
        Where building and timing all kernels fits in, that is done, as without a budget. Else only those are measured
        that tell most about the parameters for their device time (D-optimal on the scaled Jacobian), in batches, each
        kernel three times or more often where that tells more than another kernel. Of a device that is no `Device`
        only the device time counts. By default all kernels are measured.
    guess
        Parameter values to choose the first kernels with, such as those of a similar device's calibration; by
        default rough ones. Only used with a budget.
    recorder
        What keeps samples, as for `gather_feature_values`.
    measure_executor
        Where kernels are timed, as for `gather_feature_values`; not with a budget, which decides while it measures.
    loss
        What the fit minimises, as for `fit_model`: ``"squared"``, or ``"soft_l1"``, which a few wrong timings do not
        move; by default what a ready model's file says, else ``"squared"``.
    on_undetermined
        What to do where the kernels do not determine a parameter, as for `fit_model`; by default what a ready model's
        file says, else ``"error"``. What no kernel contains is refused before anything is timed.
    learn
        Learn what the model leaves out of the measurement kernels' times, from what predicted times are made of; used
        in predictions where that lowers the error of left-out generators (`Calibration.learned`). Needs scikit-learn:
        ``pip install 'perflex[learn]'``.
    times
        Kernels with times that others measured, as of `load_times`, instead of kernels, device and all that says how
        to measure: no device is opened. ``"general"`` is then the model for the kind of the machine.
    prior
        What other devices say of each parameter (`prior_of`), as for `fit_model`; errors are then relative. Few kernels
        do. `transfer` makes more of other devices' calibrations.
    cycles
        Where ``f_code_cycles`` and ``f_code_chain_cycles`` come from: ``"ports"``, perflex's own model, or
        ``"llvm-mca"``, a program of LLVM. The calibration keeps the program's version and the core, and predicts with
        them. Kernels with instructions that the program does not know are left out.
    weights
        What counts alike in the fit: ``"rows"``; or ``"generators"``, each of them as much as any other, however many
        rows it has (`weigh_generators_alike`). For all rows at once: neither a budget nor a prior goes with it.

    Returns
    -------
    Calibration
        Parameters with units and uncertainties, the device's facts, and how they were obtained. Where the times repeat
        so badly that ``perflex calibrate`` would not write its file, a `PerflexWarning` says so; ``save`` writes it.
        Another one says so where a quarter of the samples or more were disturbed, or of the kernels rest on such, and
        where nothing can be learned because there are fewer than twenty generators.

    Raises
    ------
    CalibrationError
        The output is no wall time, the model cannot be fitted, or the kernels do not determine the parameters,
        at least not within the budget.
    DeviceError, MachineError, NoMatchError, MissingSizeError, StoreError
        As `gather_feature_values`.
    MissingExtraError
        With `learn`: scikit-learn is not installed. With `cycles`: the tool is not, or does not know the core.
    ValueError
        There is no such source of cycles, and nothing else counts alike.
    """
    _require_choices(weights, budget_s, prior, learn=learn)
    source = cycle_source(cycles)
    fitting = {"nonnegative": nonnegative, "loss": loss, "on_undetermined": on_undetermined, "prior": prior}
    if times is not None:
        require_no_device(
            kernels=kernels, device=device, timing=timing, budget_s=budget_s, guess=guess, recorder=recorder,
            measure_executor=measure_executor, cycles=source,
        )  # fmt: skip
        with using_store(store), progress_shown(progress, "calibrate:") as report:
            counting = partial(Measuring, None, TimingOptions(), executor=executor, progress=report)
            chosen = (sub_group_size, machine)
            found = _of_times(model, times, counting, chosen, fitting, relative=relative, weights=weights)
            return found.with_learning() if learn else found
    usual = FitSettings()
    options = timing or TimingOptions()
    if isinstance(model, str):
        ready = ready_model(model, device)
        model, device, options = ready.model, ready.device, timing or ready.timing(options)
        usual = ready.description.fit
        kernels = ready.kernels() if kernels is None else kernels
    _require_measurable(model)
    require_cycles(source, model.input_features())
    if kernels is None:
        msg = "there are no measurement kernels; pass some, or the name of a ready model, which has its own"
        raise CalibrationError(msg)
    _require_here(budget_s, measure_executor)
    where: TimedDevice = chosen_device(device, model.output_feature)
    # Workers elsewhere time on CPUs of their own.
    needs_own = machine is None and measure_executor is None
    cpu = own_cpu(where, model.input_features()) if needs_own else None
    target = target_on(where, model.input_features(), sub_group_size, machine if cpu is None else host_machine(cpu))
    target = replace(target, cycles=source)
    with using_store(store), progress_shown(progress, "calibrate:") as report:
        strict = prior is None and (on_undetermined or usual.on_undetermined) == "error"
        check = partial(require_informed, model) if strict else None
        measuring = Measuring(where, options, target, executor, measure_executor, recorder, report, check, not strict)
        if budget_s is None:
            table = gather(tuple(model.all_features()), kernels, measuring)
            spent: dict[str, Any] = {}
        else:
            from perflex.calibration.budget.sequential import measure_within_budget

            table, bought = measure_within_budget(
                model,
                kernels,
                budget_s,
                measuring,
                guess=guess,
                relative=relative,
                nonnegative=nonnegative,
                loss=loss or usual.loss,
            )
            spent = bought.facts()
    table = _weighed(table, weights)
    fit = _fitted(model, table, usual, fitting, relative=relative)
    found = _made(model, table, fit, device=where, timing=options)
    asked = {} if source is None else source.facts()
    found = replace(found, options={**found.options, **spent, **asked}, cpu=cpu)
    warn_of_doubts(found)
    return found.with_learning() if learn else found


def _of_times(
    model: Model | str,
    times: TimesTable,
    counting: Callable[..., Measuring],
    chosen: tuple[int | None, str | Path | Machine | None],
    fitting: Mapping[str, Any],
    *,
    relative: bool,
    weights: Weights,
) -> Calibration:
    """Fit a model to times that others measured; `chosen` are sub-group size and machine as they were given."""
    facts = machine_for_times(times, chosen[1])
    usual = FitSettings()
    if isinstance(model, str):
        description = described_model(model, None if facts is None else facts.kind)
        model, usual = description.model(), description.fit
    _require_measurable(model)
    features = tuple(model.all_features())
    strict = fitting["prior"] is None and (fitting["on_undetermined"] or usual.on_undetermined) == "error"
    measuring = counting(
        target_for_times(times, features, *chosen),
        check=partial(require_informed, model) if strict else None,
        may_lack=not strict,
        times=KnownTimes(times),
    )
    table = _weighed(gather(features, (), measuring), weights)
    fit = _fitted(model, table, usual, fitting, relative=relative)
    found = _made(model, table, fit, device=None, timing=None)
    device = {"name": times.device, "kind": "" if facts is None else facts.kind, TIMES_FACT: times.source}
    found = replace(
        found,
        device={name: value for name, value in device.items() if value},
        options={"times": times.source, "times_rows": len(times), "times_sha256": times.sha256},
    )
    warn_of_doubts(found)
    return found


def _require_here(budget_s: float | None, measure_executor: Executor | None) -> None:
    if budget_s is not None and measure_executor is not None:
        msg = "a budget chooses kernels while it measures on this machine; leave out budget_s or measure_executor"
        raise CalibrationError(msg)


def _require_choices(weights: Weights, budget_s: float | None, prior: Prior | None, *, learn: bool) -> None:
    if learn:
        require_learners()
    if weights not in get_args(Weights):
        msg = f"weights must be one of {', '.join(get_args(Weights))}, not {weights!r}"
        raise ValueError(msg)
    if weights != "rows" and (budget_s is not None or prior is not None):
        other = "a budget, which chooses rows that count alike" if prior is None else "a prior, whose noise weighs rows"
        msg = f"weights={weights!r} does not go with {other}; leave out one of them"
        raise CalibrationError(msg)


def _weighed(table: FeatureTable, weights: Weights) -> FeatureTable:
    return weigh_generators_alike(table) if weights == "generators" else table


def _fitted(
    model: Model, table: FeatureTable, usual: FitSettings, given: Mapping[str, Any], *, relative: bool
) -> FitResult:
    """Fit a model as was asked for, or as is usual for it; `given` are keywords of `fit_model`."""
    chosen = {**given, "loss": given["loss"] or usual.loss}
    chosen["on_undetermined"] = given["on_undetermined"] or usual.on_undetermined
    return fit_model(model, scale_features_by_output(table) if relative else table, **chosen)


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
    *,
    device: TimedDevice | None = None,
    timing: TimingOptions | None = None,
    relative: bool = True,
    nonnegative: bool = True,
    fit: FitResult | None = None,
    loss: Loss = "squared",
) -> Calibration:
    """Fit the model to values gathered before, unless that was done; arguments, warnings, errors as `calibrate`."""
    if fit is None:
        scaled = scale_features_by_output(table) if relative else table
        fit = fit_model(model, scaled, nonnegative=nonnegative, loss=loss)
    found = _made(model, table, fit, device=device, timing=timing)
    warn_of_doubts(found)
    return found


def _made(
    model: Model, table: FeatureTable, fit: FitResult, *, device: Any, timing: TimingOptions | None
) -> Calibration:
    rows = fitted_rows(model, table, scaled=fit.scaled)
    return Calibration(
        model=model,
        fit=fit,
        device=_facts(device),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=software_versions(),
        options={
            name: value for part in (timing, table.timing) if part is not None for name, value in asdict(part).items()
        },
        noise_floor=_noise_floor(table),
        dropped=table.dropped,
        machine=table.machine,
        table=rows,
        # Without the prior a refit to the other generators would be another fit.
        left_out=left_out_errors(model, fit, rows) if fit.prior is None else None,
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
        "max_work_group_size", "compute_capability",
    )  # fmt: skip
    # OpenCL and CUDA know different facts of a device; those that it lacks are left out.
    return {name: value for name in names if (value := getattr(device, name, "")) != ""}


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
