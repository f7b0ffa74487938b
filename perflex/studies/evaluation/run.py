"""Running studies on a device: one calibration run for all of them, then predictions, then measurements."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.sized_kernel import SizedKernel
from perflex.calibration.calibrating import calibration_from_table
from perflex.calibration.device_speed import REFERENCE_RATE, multiply_add_rate
from perflex.studies.recheck import drift, reference_times
from perflex.studies.evaluation.overlap import Candidate, OverlapChoice, choose_overlap
from perflex.fit.result import geometric_mean_error
from perflex.calibration.gathering import gather_feature_values
from perflex.models.kernel_sets import measurement_kernels
from perflex.store.resume import RecordOnly, recording
from perflex.timing.results import MeasurementFailure, Timing
from perflex.timing.options import TimingOptions
from perflex.timing.measuring import measure
from perflex.devices.wall_time import wall_time_identifier
from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from perflex.calibration.calibration import Calibration
    from perflex.devices.device import Device
    from perflex.studies.evaluation.studies import Study
    from perflex.expression.model import Model
    from perflex.fit.table import FeatureTable
    from perflex.progress import Progress
    from perflex.store.records import Recorder
    from uipick import MeasurementKernel

# Variants count as different when their times are further apart than this fraction (paper Section 8.4).
DIFFERENT = 0.07


@dataclass(frozen=True)
class Point:
    """One variant at one size.

    Attributes
    ----------
    variant, size
        Name of the variant, and the value of the study's size argument.
    measured_s, spread, repeatability
        Time in seconds, the relative spread of repeated timings, and by which fraction the time differs from one such
        measurement to the next.
    disturbed
        Whether the time rests on samples that others disturbed, for lack of others.
    predicted_s
        Time in seconds by each model.
    """

    variant: str
    size: int
    measured_s: float
    spread: float
    predicted_s: Mapping[str, float]
    repeatability: float = math.nan
    disturbed: bool = False

    def error(self, model: str) -> float:
        """Return predicted/measured - 1 of a model."""
        return self.predicted_s[model] / self.measured_s - 1


@dataclass(frozen=True)
class RatioPoint:
    """A kernel with `ratio` local load-store sequences per global access: times in seconds, modeled by name."""

    ratio: int
    measured_s: float
    predicted_s: Mapping[str, float]


@dataclass(frozen=True)
class StudyResult:
    """A study on one device.

    Attributes
    ----------
    study
        The study.
    choice
        Which model was chosen from calibration data, and why.
    model
        The model that was used: the chosen one, or the one the user wanted.
    calibrations
        Of each model that could be fitted.
    points
        Predictions and measurements.
    """

    study: Study
    choice: OverlapChoice
    model: str
    calibrations: Mapping[str, Calibration]
    points: tuple[Point, ...]

    def geomean_error(self, model: str, variant: str | None = None) -> float:
        """Return the geometric mean of a model's relative errors, over one variant or all; a fraction."""
        return geometric_mean_error([p.error(model) for p in self.points if variant in {None, p.variant}])

    def pairs(self, model: str, variant: str | None = None) -> tuple[int, int]:
        """Return pairs of variants of one size whose times differ by more than 7 %, and those ranked right."""
        total = right = 0
        for size in dict.fromkeys(point.size for point in self.points):
            own = [point for point in self.points if point.size == size]
            for one, two in combinations(own, 2):
                if variant not in {None, one.variant, two.variant}:
                    continue
                fast, slow = sorted((one, two), key=lambda point: point.measured_s)
                if slow.measured_s > (1 + DIFFERENT) * fast.measured_s:
                    total += 1
                    right += fast.predicted_s[model] < slow.predicted_s[model]
        return total, right

    @property
    def best_in_hindsight(self) -> str:
        """The model with the lowest error over the study's own kernels."""
        return min(self.calibrations, key=self.geomean_error)

    @property
    def noise_floor(self) -> float:
        """Median repeatability of the study's measured times, a fraction: errors below it mean nothing."""
        repeated = [point.repeatability for point in self.points if math.isfinite(point.repeatability)]
        return float(np.median(repeated)) if repeated else math.nan


@dataclass(frozen=True)
class DeviceEvaluation:
    """All studies on one device.

    Attributes
    ----------
    device
        The device's name.
    studies
        Results of those that could be calibrated, in the order asked for.
    skipped
        Label and reason of what did not run.
    drift
        By which fraction some measurement kernels took longer beside the studies' kernels than for the
        calibration; None if not known.
    overlap
        Kernels with m local accesses per global one, for Figure 5.
    seconds
        Wall time of the whole evaluation.
    """

    device: str
    studies: tuple[StudyResult, ...]
    skipped: tuple[tuple[str, str], ...]
    drift: float | None
    overlap: tuple[RatioPoint, ...] = ()
    seconds: float = math.nan


def study_timing(trials: int = 15) -> TimingOptions:
    """Return how studies time kernels: briefly, for they are many and some run for a second."""
    return TimingOptions(trials=trials, min_trials=min(5, trials), budget_s=0.3)


def evaluate_device(
    device: Device,
    studies: Sequence[Study],
    *,
    timing: TimingOptions | None = None,
    model: str | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> DeviceEvaluation:
    """Calibrate the models of some studies on a device, predict their kernels, and only then measure them.

    Parameters
    ----------
    device
        Where to run.
    studies
        From `STUDIES`.
    timing
        How kernels are timed.
    model
        One of `perflex.studies.evaluation.studies.OVERLAPS`; by default chosen for each study.
    progress
        Called with (done, total, what) as work proceeds.
    executor
        Where measurement kernels are counted, as for `gather_feature_values`.

    Raises
    ------
    CalibrationError
        No study can be evaluated: the device runs none of the kernels, or they do not determine a model.
    PerflexError
        The device cannot be used.
    """
    options = timing or study_timing()
    with recording(str(device), [study.name for study in studies]) as recorder:
        return _evaluated(device, studies, options, model, progress, executor, recorder)


def _evaluated(
    device: Device,
    studies: Sequence[Study],
    options: TimingOptions,
    model: str | None,
    progress: Progress | None,
    executor: Executor | None,
    recorder: Recorder | None,
) -> DeviceEvaluation:
    start = time.perf_counter()
    scale = multiply_add_rate(device, recorder) / REFERENCE_RATE
    plans = [_plan(study, wall_time_identifier(device), scale) for study in studies]
    # By name: what several models are fitted to is timed once.
    kernels = {kernel.name: kernel for plan in plans for own in plan.kernels.values() for kernel in own}
    table = gather_feature_values(
        tuple(dict.fromkeys(f for plan in plans for each in plan.models.values() for f in each.all_features())),
        [*kernels.values(), *(kernel for plan in plans for kernel in plan.trials.values())],
        device=device,
        timing=options,
        progress=progress,
        recorder=recorder,
        executor=executor,
    )
    # What a device cannot run costs its own study at most, not the others.
    skipped = list(table.dropped)
    calibrated = []
    for plan in plans:
        try:
            calibrated.append(_calibrate(plan, table, device, options, model))
        except CalibrationError as error:
            skipped.append((f"study {plan.study.name}", error.message))
    if not calibrated:
        msg = f"no study can be evaluated on {device}: {'; '.join(f'{what}: {why}' for what, why in skipped[-3:])}"
        raise CalibrationError(msg)
    # All predictions are made before the first target runs.
    predicted = [each.predicted() for each in calibrated]
    targets = [kernel for each in calibrated for kernel in each.plan.targets.values()]
    references = reference_times(table, kernels)
    jobs = [SizedKernel(kernel.kernel, kernel.sizes, kernel.name) for kernel in (*targets, *references)]
    # Reference kernels are to be timed again, whatever was kept of them.
    outcomes = measure(jobs, device, options, progress, None if recorder is None else RecordOnly(recorder))
    # Not strict: behind the targets' outcomes come those of the reference kernels.
    measured = dict(zip((kernel.name for kernel in targets), outcomes, strict=False))
    failures = [outcome for outcome in measured.values() if isinstance(outcome, MeasurementFailure)]
    return DeviceEvaluation(
        device=str(device),
        studies=tuple(
            each.result(times, measured, model) for each, times in zip(calibrated, predicted, strict=True)
        ),
        skipped=(*skipped, *((failure.label, failure.reason) for failure in failures)),
        drift=drift(list(references.values()), outcomes[len(targets) :]),
        overlap=_ratio_points(table, kernels, calibrated[-1].calibrations),
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True)
class _Plan:
    """What a study runs on a device: models and their measurement kernels by the models' names in the study, and the
    variants' kernels by variant and size, small ones to choose a model and those to predict.
    """

    study: Study
    models: Mapping[str, Model]
    kernels: Mapping[str, Sequence[MeasurementKernel]]
    trials: Mapping[tuple[str, int], MeasurementKernel]
    targets: Mapping[tuple[str, int], MeasurementKernel]


def _plan(study: Study, output: str, scale: float) -> _Plan:
    from perflex.models import load_model

    described = {name: load_model(shipped) for name, shipped in study.models.items()}
    return _Plan(
        study,
        models={name: description.model(output) for name, description in described.items()},
        kernels={name: measurement_kernels(description, scale) for name, description in described.items()},
        trials=_variants(study, study.trial_sizes_for(scale)),
        targets=_variants(study, study.sizes_for(scale)),
    )


@dataclass(frozen=True)
class _Calibrated:
    """A study whose models are fitted."""

    plan: _Plan
    choice: OverlapChoice
    calibrations: Mapping[str, Calibration]

    def predicted(self) -> dict[tuple[str, int], dict[str, float]]:
        """Return the times in seconds that each model predicts, by variant and size."""
        return {
            key: {name: float(c.predict(kernel.kernel, kernel.sizes)) for name, c in self.calibrations.items()}
            for key, kernel in self.plan.targets.items()
        }

    def result(
        self,
        predicted: Mapping[tuple[str, int], Mapping[str, float]],
        measured: Mapping[str, Timing | MeasurementFailure],
        wanted: str | None,
    ) -> StudyResult:
        """Return the result, of the kernels that could be timed."""
        points = []
        for key, kernel in self.plan.targets.items():
            outcome = measured[kernel.name]
            if isinstance(outcome, Timing):
                noise = outcome.repeatability, outcome.disturbed
                points.append(Point(*key, outcome.seconds, outcome.spread, predicted[key], *noise))
        used = wanted or self.choice.name
        return StudyResult(self.plan.study, self.choice, used, self.calibrations, tuple(points))


def _calibrate(
    plan: _Plan, table: FeatureTable, device: Device, timing: TimingOptions, wanted: str | None
) -> _Calibrated:
    """Fit the models of a study to what was measured, and choose among them.

    Raises
    ------
    CalibrationError
        No variant runs on the device, or no model can be fitted.
    """
    parts = {name: _rows_of(table, own) for name, own in plan.kernels.items()}
    if len(plan.models) == 1:
        # There is nothing to choose: one fit, whose warnings are the user's to see.
        ((name, model),) = plan.models.items()
        calibration = calibration_from_table(model, parts[name], device=device, timing=timing)
        only = OverlapChoice(name, "there is no other", (Candidate(name, model, calibration.fit),))
        return _Calibrated(plan, only, {name: calibration})
    choice = _choice(plan.models, parts, _rows_of(table, plan.trials.values()), wanted)
    calibrations = {
        c.name: calibration_from_table(c.model, parts[c.name], device=device, timing=timing, fit=c.fit)
        for c in choice.candidates
        if c.fit is not None
    }
    return _Calibrated(plan, choice, calibrations)


def _choice(
    models: Mapping[str, Model], parts: Mapping[str, FeatureTable], trial: FeatureTable, wanted: str | None
) -> OverlapChoice:
    if not len(trial):
        msg = "none of its variants runs on this device"
        raise CalibrationError(msg)
    choice = choose_overlap(models, parts, trial)
    if wanted is not None and choice.candidate(wanted).fit is None:
        msg = f"the model {wanted} was asked for, but not fitted: {choice.candidate(wanted).reason}"
        raise CalibrationError(msg)
    return choice


def _rows_of(table: FeatureTable, kernels: Iterable[MeasurementKernel]) -> FeatureTable:
    names = {kernel.name for kernel in kernels}
    return table.take([row for row, name in enumerate(table.kernels) if name in names])


def _variants(study: Study, sizes: Iterable[int]) -> dict[tuple[str, int], MeasurementKernel]:
    return {(variant, size): study.kernel(variant, size) for size in sizes for variant in study.variants}


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
