"""Running studies on a device: one calibration run for all of them, then predictions, then measurements."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.acceptance import warn_of_doubts
from perflex.calibration.calibrating import calibration_from_table, fitted
from perflex.calibration.gathering import gather_feature_values
from perflex.calibration.ready import cpu_here, found_device, multiply_add_rate, scale_of
from perflex.devices.device import identity
from perflex.errors import CalibrationError, MachineError, PerflexWarning, warn
from perflex.features.sized_kernel import SizedKernel
from perflex.progress import RunOptions
from perflex.store.resume import RecordOnly, resumable
from perflex.studies.evaluation.baselines import (
    BASELINES,
    Peaks,
    baseline_times,
    copy_bandwidth,
    copy_kernel,
    knowledge_of,
)
from perflex.studies.evaluation.overlap import Candidate, OverlapChoice, choose_overlap
from perflex.studies.evaluation.result import DeviceEvaluation, Point, RatioPoint, StudyResult
from perflex.studies.evaluation.studies import plan_of
from perflex.timing.measuring import measure
from perflex.timing.options import TimingOptions
from perflex.timing.results import MeasurementFailure, Timing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from perflex.calibration.calibration import Calibration
    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable
    from perflex.progress import Progress
    from perflex.store.records import Recorder
    from perflex.studies.evaluation.baselines import Knowledge
    from perflex.studies.evaluation.studies import Plan, Study
    from perflex.timing.launch.backend import TimedDevice
    from uipick import MeasurementKernel

# Enough for a median; each is timed as long as a kernel of the studies.
_REFERENCES = 8


def study_timing(trials: int = 15) -> TimingOptions:
    """Return how studies time kernels: briefly, for they are many and some run for a second."""
    return TimingOptions(trials=trials, min_trials=min(5, trials), budget_s=0.3)


def evaluate_device(
    device: TimedDevice,
    studies: Sequence[Study],
    *,
    timing: TimingOptions | None = None,
    model: str | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> DeviceEvaluation:
    """Calibrate the models of some studies on a device, predict their kernels, and only then measure them.

    The model is one of `perflex.studies.evaluation.studies.OVERLAPS`; by default it is chosen for each study.
    """
    options = timing or study_timing()
    with resumable(identity(device), [study.name for study in studies]) as recorder:
        return _evaluated(device, studies, options, model, progress, executor, recorder)


def _evaluated(
    device: TimedDevice,
    studies: Sequence[Study],
    options: TimingOptions,
    model: str | None,
    progress: Progress | None,
    executor: Executor | None,
    recorder: Recorder | None,
) -> DeviceEvaluation:
    start = time.perf_counter()
    rate = multiply_add_rate(device)
    _, output = found_device(device, None)
    plans = [plan_of(study, output, scale_of(rate)) for study in studies]
    # By name: what several models are fitted to is timed once.
    kernels = {kernel.name: kernel for plan in plans for own in plan.kernels.values() for kernel in own}
    table = gather_feature_values(
        tuple(dict.fromkeys(f for plan in plans for each in plan.models.values() for f in each.all_features())),
        [*kernels.values(), *(kernel for plan in plans for kernel in plan.trials.values())],
        device=device,
        timing=options,
        run=RunOptions(executor=executor, progress=progress),
    )
    # What a device cannot run costs its own study at most, not the others.
    skipped = list(table.dropped)
    calibrated = []
    for plan in plans:
        try:
            # All predictions are made before the first target runs.
            calibrated.append(_calibrate(plan, table, device, options, model))
        except CalibrationError as error:
            skipped.append((f"study {plan.study.name}", error.message))
    if not calibrated:
        msg = f"no study can be evaluated on {device}: {'; '.join(f'{what}: {why}' for what, why in skipped[-3:])}"
        raise CalibrationError(msg)
    skipped += [entry for each in calibrated for entry in each.unusable]
    references = reference_times(table, kernels)
    known = dict(zip(table.kernels, map(float, table.column(str(table.output))), strict=True))
    targets = [kernel for each in calibrated for kernel in each.plan.targets.values()]
    # What only baselines need runs with the targets, for it is no part of a calibration.
    beside = [copy_kernel(), *(kernel for each in calibrated for kernel in each.plan.small.values())]
    tried = {*known, *(label for label, _ in table.dropped)}
    beside = [kernel for kernel in beside if kernel.name not in tried]
    jobs = [SizedKernel(kernel.kernel, kernel.sizes, kernel.name) for kernel in (*beside, *targets, *references)]
    # Reference kernels are to be timed again, whatever was kept of them.
    outcomes = measure(jobs, device, options, progress, None if recorder is None else RecordOnly(recorder))
    # Not strict: behind the targets' outcomes come those of the reference kernels.
    measured = dict(zip((kernel.name for kernel in (*beside, *targets)), outcomes, strict=False))
    failures = [outcome for outcome in measured.values() if isinstance(outcome, MeasurementFailure)]
    known |= {kernel.name: each.seconds for kernel in beside if isinstance(each := measured[kernel.name], Timing)}
    copied = known.get(copy_kernel().name)
    peaks = None if copied is None or rate is None else Peaks(rate, copy_bandwidth(copied))
    trivial = [baseline_times(each.plan, known, peaks) for each in calibrated]
    for one, made in zip(calibrated, trivial, strict=True):
        skipped += [(f"baseline {name} of {one.plan.study.name}", why) for name, why in made.left_out.items()]
    return DeviceEvaluation(
        device=str(device),
        studies=tuple(
            each.result(measured, made.seconds, model) for each, made in zip(calibrated, trivial, strict=True)
        ),
        skipped=(*skipped, *((failure.label, failure.reason) for failure in failures)),
        drift=drift(list(references.values()), outcomes[len(beside) + len(targets) :]),
        overlap=_ratio_points(table, kernels, calibrated[-1].calibrations),
        seconds=time.perf_counter() - start,
        peaks=peaks,
    )


@dataclass(frozen=True)
class _Calibrated:
    """A study whose models are fitted, and the times in seconds that each predicts, by variant and size.

    `unusable` has label and reason of models that do not predict all of them.
    """

    plan: Plan
    choice: OverlapChoice
    calibrations: Mapping[str, Calibration]
    predicted: Mapping[tuple[str, int], Mapping[str, float]]
    unusable: tuple[tuple[str, str], ...] = ()

    def result(
        self,
        measured: Mapping[str, Timing | MeasurementFailure],
        baselines: Mapping[tuple[str, int], Mapping[str, float]],
        wanted: str | None,
    ) -> StudyResult:
        """Return the result, of the kernels that could be timed."""
        points = []
        for key, kernel in self.plan.targets.items():
            outcome = measured[kernel.name]
            if isinstance(outcome, Timing):
                noise = outcome.repeatability, outcome.disturbed
                predicted = {**self.predicted[key], **baselines[key]}
                points.append(Point(*key, outcome.seconds, outcome.spread, predicted, *noise))
        targets = list(self.plan.targets.values())
        knowledge: dict[str, Knowledge] = {
            name: knowledge_of(self.plan.kernels[name], targets) for name in self.calibrations
        }
        used = wanted or self.choice.name
        return StudyResult(
            self.plan.study,
            self.choice,
            used,
            self.calibrations,
            tuple(points),
            knowledge={**knowledge, **BASELINES},
            # The choice has seen timings of the variants, whatever the models have.
            chosen_with="timing" if wanted is None and len(self.plan.models) > 1 else knowledge[used],
        )


def _warn_of_doubts(plan: Plan, used: str, calibration: Calibration) -> None:
    """Say in one line how many predictions are doubtful, for all of them are measured next."""
    found = [calibration.doubts(kernel.kernel, kernel.sizes) for kernel in plan.targets.values()]
    doubtful = [doubts for doubts in found if doubts]
    if doubtful:
        share = f"{len(doubtful)} of {len(found)} predictions of {used} are doubtful"
        warn(f"{plan.study.name}: {share}, the first because {doubtful[0][0]}")


def _with_predictions(
    plan: Plan, choice: OverlapChoice, calibrations: Mapping[str, Calibration], wanted: str | None
) -> _Calibrated:
    """Predict all variants at all sizes; a model with a time that is no time is left out, unless it is to be used."""
    with warnings.catch_warnings():
        # Doubts are told in one line below.
        warnings.simplefilter("ignore", PerflexWarning)
        times = {
            name: {key: float(c.predict(kernel.kernel, kernel.sizes)) for key, kernel in plan.targets.items()}
            for name, c in calibrations.items()
        }
    wrong = {
        name: f"it predicts {value:.3g} s for {plan.targets[key].name}"
        for name, own in times.items()
        for key, value in own.items()
        if not 0 < value < math.inf
    }
    used = wanted or choice.name
    if used in wrong:
        # The demo has one model, and no option to choose another.
        advice = "; choose another one with --model" if len(calibrations) > 1 else ""
        msg = f"the model {used} cannot be used: {wrong[used]}{advice}"
        raise CalibrationError(msg)
    _warn_of_doubts(plan, used, calibrations[used])
    usable = {name: calibration for name, calibration in calibrations.items() if name not in wrong}
    predicted = {key: {name: times[name][key] for name in usable} for key in plan.targets}
    unusable = tuple((f"model {name} of {plan.study.name}", reason) for name, reason in wrong.items())
    return _Calibrated(plan, choice, usable, predicted, unusable)


def _calibrate(
    plan: Plan, table: FeatureTable, device: TimedDevice, timing: TimingOptions, wanted: str | None
) -> _Calibrated:
    """Fit the models of a study to what was measured, and choose among them."""
    parts = {name: _rows_of(table, own) for name, own in plan.kernels.items()}
    if len(plan.models) == 1:
        # There is nothing to choose: one fit, whose warnings are the user's to see.
        ((name, model),) = plan.models.items()
        fit = fitted(model, parts[name])
        calibration = _calibration(model, parts[name], fit, device, timing)
        warn_of_doubts(calibration)
        only = OverlapChoice(name, "there is no other", (Candidate(name, model, calibration.fit),))
        return _with_predictions(plan, only, {name: calibration}, wanted)
    choice = _choice(plan, parts, _rows_of(table, plan.trials.values()), wanted)
    calibrations = {
        c.name: _calibration(c.model, parts[c.name], c.fit, device, timing)
        for c in choice.candidates
        if c.fit is not None
    }
    return _with_predictions(plan, choice, calibrations, wanted)


def _calibration(
    model: Model, table: FeatureTable, fit: FitResult, device: TimedDevice, timing: TimingOptions
) -> Calibration:
    """Return a calibration that knows the CPU's caches, so that doubts of conflict misses do not rest on usual ones."""
    found = calibration_from_table(model, table, fit, device=device, timing=timing)
    try:
        return replace(found, cpu=cpu_here(device))
    except MachineError:  # the operating system does not report them
        return found


def _choice(plan: Plan, parts: Mapping[str, FeatureTable], trial: FeatureTable, wanted: str | None) -> OverlapChoice:
    if not len(trial):
        msg = "none of its variants runs on this device"
        raise CalibrationError(msg)
    sizes = {kernel.name: size for (_, size), kernel in plan.trials.items()}
    choice = choose_overlap(plan.models, parts, trial, [sizes[name] for name in trial.kernels])
    if wanted is not None and choice.candidate(wanted).fit is None:
        msg = f"the model {wanted} was asked for, but not fitted: {choice.candidate(wanted).reason}"
        raise CalibrationError(msg)
    return choice


def _rows_of(table: FeatureTable, kernels: Iterable[MeasurementKernel]) -> FeatureTable:
    names = {kernel.name for kernel in kernels}
    return table.take([row for row, name in enumerate(table.kernels) if name in names])


def _ratio_points(
    table: FeatureTable, kernels: Mapping[str, MeasurementKernel], calibrations: Mapping[str, Calibration]
) -> tuple[RatioPoint, ...]:
    """Return the kernels of `overlap_ratio` with the most elements, in the order of m."""
    rows = [
        row for row, name in enumerate(table.kernels) if name in kernels and kernels[name].generator == "overlap_ratio"
    ]
    # An in-core model knows the variants of its study only.
    calibrations = {name: c for name, c in calibrations.items() if name != "incore"}
    if not rows or not calibrations:
        return ()
    most = max(kernels[table.kernels[row]].sizes["nelements"] for row in rows)
    points = []
    for row in rows:
        kernel = kernels[table.kernels[row]]
        if kernel.sizes["nelements"] == most:
            predicted = {
                name: float(
                    c.model.evaluate(c.params, {f: float(table.column(f)[row]) for f in c.model.input_features()})
                )
                for name, c in calibrations.items()
            }
            measured = float(table.column(str(table.output))[row])
            points.append(RatioPoint(int(str(kernel.arguments["m"])), measured, predicted))
    return tuple(sorted(points, key=lambda point: point.ratio))


def reference_times(
    table: FeatureTable, kernels: Mapping[str, MeasurementKernel], count: int = _REFERENCES
) -> dict[MeasurementKernel, float]:
    """Return the kernels of the table that took longest, and their times in seconds.

    A device that has become slower since the calibration shows as an error of every prediction: these are timed again.
    """
    times = zip(table.kernels, map(float, table.column(str(table.output))), strict=True)
    known = {kernels[name]: seconds for name, seconds in times if name in kernels}
    # Short kernels vary by more than machines drift.
    longest = sorted(known, key=lambda kernel: -known[kernel])[:count]
    return {kernel: known[kernel] for kernel in longest}


def drift(before: Sequence[float], outcomes: Sequence[Timing | MeasurementFailure]) -> float | None:
    """Return the median ratio of times now to those before (seconds), less 1; None where nothing could be timed."""
    ratios = [
        outcome.seconds / then
        for then, outcome in zip(before, outcomes, strict=True)
        if isinstance(outcome, Timing) and then > 0
    ]
    # The median: one kernel that was disturbed says nothing of the device.
    return float(np.median(ratios)) - 1 if ratios else None
