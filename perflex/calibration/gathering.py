"""Feature values of kernels: counted from their Scops, wall times measured on a device."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.times.table import KnownTimes, RowTimes
from perflex.calibration.times.target import refuse_unknown_builds, require_no_device, target_for_times, warn_of_another
from perflex.devices.device import identity
from perflex.devices.listing import is_wall_time
from perflex.errors import CalibrationError, NoMatchError, warn
from perflex.features.sized_kernel import SizedKernel, sized_kernels
from perflex.features.target import DEFAULT_SUB_GROUP_SIZE
from perflex.features.values import count_rows, target_of
from perflex.fit.table import FeatureInfo, FeatureTable
from perflex.progress import RunOptions, progress_shown
from perflex.store.resume import resumable
from perflex.timing.measuring import chosen_device
from perflex.timing.options import TimingOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from perflex.calibration.times.table import TimesTable
    from perflex.compiled.program import CompiledProgram
    from perflex.expression.model import Model
    from perflex.features import Feature
    from perflex.features.target import Target
    from perflex.machines.machine import Machine
    from perflex.machines.residency import Resources
    from perflex.progress import Progress
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.results import TimingSummary

_LISTED = 12


@dataclass(frozen=True)
class Measuring:
    """How kernels are counted and timed: made once, where a user says so."""

    # Where wall times are measured; None where nothing is, as with times that others measured.
    device: TimedDevice | None
    timing: TimingOptions
    target: Target
    # Where kernels are counted and their code is generated; None for here.
    executor: Executor | None = None
    progress: Progress | None = None
    # Called with the columns of all counted features before anything is timed; may raise.
    check: Callable[[Mapping[str, NDArray[np.float64]]], None] | None = None
    # Whether features may match nothing in any kernel: they are zero then, and else an error.
    may_lack: bool = False
    times: KnownTimes | None = None


@dataclass(frozen=True)
class _Built:
    """Kernels that build, what they take and their machine code where that is asked for; the others with reasons."""

    rows: list[SizedKernel]
    resources: list[Resources | None] | None
    code: list[tuple[CompiledProgram, ...]] | None
    failed: list[tuple[str, str]]


def target_on(
    device: TimedDevice | None,
    features: Iterable[str],
    machine: Machine | None = None,
    sub_group_size: int | None = None,
) -> Target:
    """Return what features are counted for where a device is timed.

    Sub-groups are the device's, without one the machine's, and features about a machine are about the one given or in
    use, else the one that the device's name stands for.
    """
    from perflex.features import parse_feature

    if sub_group_size is None and device is not None:
        sub_group_size = int(getattr(device, "sub_group_size", DEFAULT_SUB_GROUP_SIZE))
    # Wall times are measured, not counted: they have no target.
    counted = [name for name in features if not is_wall_time(name)]
    name, platform = (str(getattr(device, each, "")) for each in ("name", "platform"))
    found = target_of(counted, sub_group_size, machine, otherwise=name, platform=platform)
    if found.machine is not None and any(parse_feature(one).family.needs == "machine" for one in counted):
        warn_of_another(name, found.machine)
    return found


def gather_feature_values(
    features: Iterable[str],
    kernels: Sequence[Any] | None = None,
    *,
    device: str | TimedDevice | None = None,
    times: TimesTable | None = None,
    timing: TimingOptions | None = None,
    sub_group_size: int | None = None,
    run: RunOptions | None = None,
) -> FeatureTable:
    """Count and measure features of many kernels (paper Section 2.2, step 3).

    Descriptions and counts are remembered and samples kept in the store (`using_store`): measuring that was cut short
    goes on from there when it is begun again; once it came to its end it is measured anew. Features that need a machine
    (``f_vol_...``, ``f_waves``) are about that of `using_machine`, else the one that the device's name stands for.

    Parameters
    ----------
    features
        Feature identifiers, e.g. ``model.all_features()``. A wall time among them is the table's output.
    kernels
        Measurement kernels, or pairs ``(kernel, sizes)``.
    device
        Where wall times are measured: a device, one of workers too (`DaskExecutor.device`), or parts of its name. By
        default the one that the wall-time feature names.
    times
        Kernels with times that others measured, instead of kernels and a device. No device is opened then; features
        that need a machine are about the one in use or that the table's device is called, and sub-groups are that
        machine's, or have 32 work-items.
    timing
        How kernels are timed.
    sub_group_size
        Work-items per sub-group; by default the device's; where nothing is measured, those of the machine of
        `using_machine`, else 32.
    run
        Where kernels are counted and their code is generated, and who is told of progress.

    Returns
    -------
    FeatureTable
        A row per kernel that could be counted and measured. Kernels that could not are listed in
        ``dropped`` with the reason, and a `PerflexWarning` is issued for each.

    Raises
    ------
    NoMatchError
        A feature matches nothing in any kernel; the message lists what there is.
    DeviceError
        The wall-time feature fits no working device, or several.
    MissingSizeError
        A size parameter has no value.
    CalibrationError
        There are no kernels, or none of them could be used.
    ExecutorError
        The executor failed.
    MachineError
        A feature needs a machine and there is none, or it lacks a fact.
    StoreError
        Samples cannot be kept: the file cannot be written. What was kept before stays.
    """
    names, run = tuple(dict.fromkeys(features)), run or RunOptions()
    output = _wall_time_among(names)
    if times is not None:
        require_no_device(kernels=kernels, device=device, timing=timing)
    timed_on = None if output is None or times is not None else chosen_device(device, output)
    target = (
        target_on(timed_on, names, sub_group_size=sub_group_size)
        if times is None
        else target_for_times(times, names, sub_group_size)
    )
    with progress_shown(run.progress, "gather:") as report:
        measuring = Measuring(
            timed_on,
            timing or TimingOptions(),
            target,
            run.executor,
            report,
            times=None if times is None else KnownTimes(times),
        )
        return gather(names, kernels or (), measuring)


def gather(names: tuple[str, ...], kernels: Sequence[Any], measuring: Measuring) -> FeatureTable:
    """Count and measure features; arguments, result and errors as `gather_feature_values`.

    The store is that of the block around the call.
    """
    from perflex.features import parse_feature

    output = _wall_time_among(names)
    counted = [name for name in names if name != output]
    # What does not build need not be counted, and registers are known only of what was built.
    known = measuring.times
    built = _built(counted, sized_kernels(kernels) if known is None else known.kernels, measuring)
    if not built.rows:
        msg = f"none of the kernels can be built; the first: {built.failed[0][1]}"
        raise CalibrationError(msg, kernel=built.failed[0][0])
    # Before timing: what cannot be counted is not worth device time.
    rows, table, info, uncounted = _count(counted, built, measuring)
    needed_by = next((name for name in counted if parse_feature(name).family.needs == "machine"), None)
    dropped = [*built.failed, *uncounted]
    columns = {name: table[:, i] for i, name in enumerate(counted)}
    if measuring.check is not None:
        measuring.check(columns)
    measured, summary = None, None
    kept = np.arange(len(rows))
    if output is not None and known is not None:
        measured = known.times(rows)
    elif output is not None and measuring.device is not None:
        measured, failures, summary = measured_times(
            rows, measuring.device, measuring.timing, executor=measuring.executor, progress=measuring.progress
        )
        dropped += failures
    if output is not None and measured is not None:
        columns[output] = measured.seconds
        info[output] = FeatureInfo("s")
        kept = np.flatnonzero(np.isfinite(measured.seconds))
    _warn_dropped(dropped)
    if not len(kept):
        reasons = "; ".join(f"{label}: {reason}" for label, reason in dropped[:3])
        msg = f"none of the {len(dropped)} kernels could be used ({reasons})"
        raise CalibrationError(msg, dropped=tuple(label for label, _ in dropped))
    # np.stack refuses an empty list.
    values = np.stack([columns[name] for name in names], axis=1) if names else np.zeros((len(rows), 0))
    return FeatureTable(
        output=output,
        features=names,
        kernels=tuple(rows[i].label for i in kept),
        values=values[kept],
        groups=tuple(rows[i].group for i in kept),
        spread=None if measured is None else measured.spread[kept],
        repeatability=None if measured is None else measured.repeatability[kept],
        info=info,
        sub_group_size=measuring.target.sub_group_size,
        device="" if measured is None else str(measuring.device if known is None else known),
        dropped=tuple(dropped),
        machine="" if needed_by is None else measuring.target.need_machine(needed_by).name,
        timing=summary,
    )


def _wall_time_among(names: Sequence[str]) -> str | None:
    measured = [name for name in names if is_wall_time(name)]
    if len(measured) > 1:
        msg = f"a feature table has one wall time, not {len(measured)}: {', '.join(measured)}"
        raise CalibrationError(msg, feature=measured[1])
    return measured[0] if measured else None


def _built(names: Sequence[str], rows: list[SizedKernel], measuring: Measuring) -> _Built:
    """Build the kernels where a feature asks for that."""
    from perflex.features import parse_feature

    needs = {parse_feature(name).family.needs for name in names}
    found = _Built(rows, None, None, [])
    if measuring.times is not None:
        refuse_unknown_builds(map(parse_feature, names), measuring.times.table)
        return _Built(rows, measuring.times.resources(), None, [])
    if measuring.device is None:
        return found
    if "build" in needs:
        outcomes = _outcomes(rows, measuring.device, measuring, code=False)
        kept, built, failed = _without_failures(rows, outcomes)
        found = _Built(kept, built, None, failed)
    if "code" in needs:
        outcomes = _outcomes(found.rows, measuring.device, measuring, code=True)
        kept, code, failed = _without_failures(found.rows, outcomes)
        labels = {row.label for row in kept}
        taken = (
            None
            if found.resources is None
            else [one for row, one in zip(found.rows, found.resources, strict=True) if row.label in labels]
        )
        found = _Built(kept, taken, code, [*found.failed, *failed])
    return found


def _outcomes(rows: list[SizedKernel], device: TimedDevice, measuring: Measuring, *, code: bool) -> list[Any]:
    """Build kernels where they are to be timed; return their machine code or what they take, and failures."""
    from perflex.timing.compiled_code import compiled_code, resource_use
    from perflex.timing.executors.on_workers import built_on
    from perflex.timing.executors.worker_device import WorkerDevice

    if isinstance(device, WorkerDevice):
        return built_on(device, rows, measuring.timing, measuring.progress, code=code)
    return list((compiled_code if code else resource_use)(rows, device, measuring.timing, measuring.progress))


def _without_failures(
    rows: Sequence[SizedKernel], outcomes: Sequence[Any]
) -> tuple[list[SizedKernel], list[Any], list[tuple[str, str]]]:
    """Return the kernels that could be built, what came of them, and label and reason of the others."""
    from perflex.timing.results import MeasurementFailure

    kept, built, failed = [], [], []
    for row, outcome in zip(rows, outcomes, strict=True):
        if isinstance(outcome, MeasurementFailure):
            failed.append((row.label, outcome.reason.removeprefix(f"{row.label}: ")))
        else:
            kept.append(row)
            built.append(outcome)
    return kept, built, failed


def _count(
    names: Sequence[str], built: _Built, measuring: Measuring
) -> tuple[list[SizedKernel], NDArray[np.float64], dict[str, FeatureInfo], list[tuple[str, str]]]:
    """Return the rows that can be counted with their values, facts about the features, and the other rows."""
    from perflex.features import parse_feature

    rows = built.rows
    features = [parse_feature(name) for name in names]
    counted = count_rows(
        features, rows, measuring.target, measuring.executor, measuring.progress, built.resources, built.code
    )
    dropped = [(row.label, entry.refusal) for row, entry in zip(rows, counted, strict=True) if entry.refusal]
    kept = [row for row, entry in zip(rows, counted, strict=True) if entry.refusal is None]
    entries = [entry for entry in counted if entry.refusal is None]
    if not kept:
        msg = f"none of the kernels can be counted; the first: {dropped[0][1]}"
        raise CalibrationError(msg, kernel=dropped[0][0])
    info: dict[str, FeatureInfo] = {}
    for column, feature in enumerate(features):
        # Kernels that lack the feature say nothing about what it counts.
        amounts = {entry.amounts[column] for entry in entries if entry.matched[column]}
        if not amounts and not measuring.may_lack:
            raise _no_match(feature, kept)
        amount = amounts.pop() if len(amounts) == 1 else None
        info[names[column]] = (
            FeatureInfo(feature.unit) if amount is None else FeatureInfo(feature.unit, amount.value, amount.unit)
        )
    table = np.array([entry.values for entry in entries], dtype=np.float64).reshape(len(kept), len(names))
    return kept, table, info, dropped


def _no_match(feature: Feature, rows: Sequence[SizedKernel]) -> NoMatchError:
    from perflex.features import extract_scop

    # Rows of one kernel at several sizes share it; its inventory is taken once.
    kernels = {id(row.kernel): row.kernel for row in rows}.values()
    there = list(dict.fromkeys(item for kernel in kernels for item in feature.inventory(extract_scop(kernel))))
    shown = "; ".join(there[:_LISTED]) or "nothing of the kind"
    more = f"; and {len(there) - _LISTED} more" if len(there) > _LISTED else ""
    near = difflib.get_close_matches(feature.identifier, there, n=2, cutoff=0.8)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    msg = f"feature {feature.identifier} matches nothing in any of the kernels; {hint}they contain: {shown}{more}"
    return NoMatchError(msg, feature=feature.identifier, present=tuple(there))


def _warn_dropped(dropped: Sequence[tuple[str, str]]) -> None:
    for label, reason in dropped:
        # The line of who called `calibrate` or `gather_feature_values`.
        warn(f"{label} is left out: {reason}")


def measured_times(
    rows: Sequence[SizedKernel],
    device: TimedDevice,
    timing: TimingOptions,
    *,
    executor: Executor | None,
    progress: Progress | None,
) -> tuple[RowTimes, list[tuple[str, str]], TimingSummary]:
    """Return the times of kernels, label and reason of those that failed, and how measuring went.

    Arguments and errors as of `perflex.gather_feature_values`.
    """
    from perflex.timing.measuring import measure
    from perflex.timing.results import MeasurementFailure

    with resumable(identity(device), [row.label for row in rows]) as used:
        outcomes = measure(rows, device, timing, progress, used, executor)
    found = RowTimes(*(np.full(len(rows), np.nan) for _ in range(3)))
    failures = []
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, MeasurementFailure):
            # Reasons begin with the label, for they are errors of their own elsewhere.
            failures.append((outcome.label, outcome.reason.removeprefix(f"{outcome.label}: ")))
        else:
            found.seconds[index], found.spread[index] = outcome.seconds, outcome.spread
            found.repeatability[index] = outcome.repeatability
    return found, failures, outcomes.summary()


def info_of(features: Iterable[str]) -> dict[str, FeatureInfo]:
    """Return the units of features of which nothing was counted."""
    from perflex.features import parse_feature

    return {name: FeatureInfo(parse_feature(name).unit) for name in features}


def table_of_times(
    model: Model, times: TimesTable, *, sub_group_size: int | None = None, run: RunOptions | None = None
) -> FeatureTable:
    """Return a model's features and the times of a table's kernels, a row each."""
    features = tuple(model.all_features())
    run = run or RunOptions()
    target = target_for_times(times, features, sub_group_size)
    with progress_shown(run.progress, "count:") as report:
        measuring = Measuring(
            None, TimingOptions(), target, run.executor, progress=report, may_lack=True, times=KnownTimes(times)
        )
        return gather(features, (), measuring)
