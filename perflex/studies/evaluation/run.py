"""Running studies on a device: one calibration run for all of them, then predictions, then measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.sized_kernel import SizedKernel
from perflex.calibration.calibrating import calibration_from_table
from perflex.models.sizes import REFERENCE_RATE, multiply_add_rate
from perflex.studies.recheck import drift
from perflex.studies.evaluation.overlap import choose_overlap
from perflex.studies.evaluation.studies import OVERLAPS
from perflex.fit.result import geometric_mean_error
from perflex.calibration.gathering import gather_feature_values
from perflex.models.kernel_sets import measurement_kernels
from perflex.store.resume import RecordOnly, recorder_for
from perflex.timing.measuring import MeasurementFailure, TimingOptions, measure
from perflex.devices.wall_time import wall_time_identifier
from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from perflex.calibration.calibration import Calibration
    from perflex.devices.device import Device
    from perflex.studies.evaluation.overlap import OverlapChoice
    from perflex.studies.evaluation.studies import Study
    from perflex.expression.model import Model
    from perflex.fit.table import FeatureTable
    from perflex.progress import Progress
    from perflex.models import ModelDescription
    from uipick import MeasurementKernel

__all__ = ["DeviceEvaluation", "Point", "StudyResult", "evaluate_device"]

# Variants count as different when their times are further apart than this fraction (paper Section 8.4).
DIFFERENT = 0.07
_REFERENCES = 8


@dataclass(frozen=True)
class Point:
    """One variant at one size.

    Attributes
    ----------
    variant, size
        Which.
    measured_s, spread
        Time in seconds and its relative spread over repeated timings.
    predicted_s
        Time in seconds by each model.
    """

    variant: str
    size: int
    measured_s: float
    spread: float
    predicted_s: Mapping[str, float]

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
        """Median relative spread of the study's timings, a fraction: errors below it mean nothing."""
        spreads = [point.spread for point in self.points if math.isfinite(point.spread)]
        return float(np.median(spreads)) if spreads else math.nan


@dataclass(frozen=True)
class DeviceEvaluation:
    """All studies on one device.

    Attributes
    ----------
    device
        Where.
    studies
        Their results.
    skipped
        Label and reason of what did not run.
    drift
        By which fraction some measurement kernels took longer beside the studies' kernels than for the
        calibration; None if not known.
    overlap
        Kernels with m local accesses per global one, for Figure 5.
    """

    device: str
    studies: tuple[StudyResult, ...]
    skipped: tuple[tuple[str, str], ...]
    drift: float | None
    overlap: tuple[RatioPoint, ...] = ()


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
    options = timing or TimingOptions(trials=15, min_trials=5, budget_s=0.3)
    recorder = recorder_for(str(device), [study.name for study in studies])
    scale = multiply_add_rate(device, recorder) / REFERENCE_RATE
    output = wall_time_identifier(device)
    described = {study.name: _descriptions(study) for study in studies}
    kernels = {
        name: {overlap: measurement_kernels(description, scale) for overlap, description in found.items()}
        for name, found in described.items()
    }
    trials = {study.name: _variants(study, study.trial_sizes_for(scale)) for study in studies}
    models = {
        name: {overlap: description.model(output) for overlap, description in found.items()}
        for name, found in described.items()
    }
    every = {kernel.name: kernel for own in kernels.values() for sets in own.values() for kernel in sets}
    features = {f: None for own in models.values() for each in own.values() for f in each.all_features()}
    table = gather_feature_values(
        tuple(features),
        [*every.values(), *(kernel for own in trials.values() for kernel in own.values())],
        device=device,
        timing=options,
        progress=progress,
        recorder=recorder,
        executor=executor,
    )
    skipped = list(table.dropped)
    calibrated = {}
    for study in studies:
        try:
            trial = _rows_of(table, trials[study.name].values())
            parts = {overlap: _rows_of(table, own) for overlap, own in kernels[study.name].items()}
            choice = _choice(models[study.name], parts, trial, model)
        except CalibrationError as error:
            skipped.append((f"study {study.name}", error.message))
            continue
        calibrated[study.name] = (
            choice,
            {
                c.name: calibration_from_table(c.model, parts[c.name], device=device, timing=options, fit=c.fit)
                for c in choice.candidates
                if c.fit is not None
            },
        )
    if not calibrated:
        msg = f"no study can be evaluated on {device}: {'; '.join(f'{what}: {why}' for what, why in skipped[-3:])}"
        raise CalibrationError(msg)
    studies = [study for study in studies if study.name in calibrated]

    targets = {
        (study.name, *key): kernel
        for study in studies
        for key, kernel in _variants(study, study.sizes_for(scale)).items()
    }
    predicted = {
        key: {overlap: float(c.predict(kernel.kernel, kernel.sizes)) for overlap, c in calibrated[key[0]][1].items()}
        for key, kernel in targets.items()
    }
    references = _references(every, table, output)
    jobs = [SizedKernel(kernel.kernel, kernel.sizes, kernel.name) for kernel in (*targets.values(), *references)]
    # Reference kernels are to be timed again, whatever was kept of them.
    outcomes = measure(jobs, device, options, progress, None if recorder is None else RecordOnly(recorder))
    if recorder is not None:
        recorder.finish()
    points: dict[str, list[Point]] = {study.name: [] for study in studies}
    for (name, variant, size), outcome in zip(targets, outcomes, strict=False):
        if isinstance(outcome, MeasurementFailure):
            skipped.append((outcome.label, outcome.reason))
        else:
            points[name].append(Point(variant, size, outcome.seconds, outcome.spread, predicted[name, variant, size]))
    return DeviceEvaluation(
        device=str(device),
        studies=tuple(
            StudyResult(
                study=study,
                choice=calibrated[study.name][0],
                model=model or calibrated[study.name][0].name,
                calibrations=calibrated[study.name][1],
                points=tuple(points[study.name]),
            )
            for study in studies
        ),
        skipped=tuple(skipped),
        drift=drift(list(references.values()), outcomes[len(targets) :]),
        overlap=_ratio_points(table, every, calibrated[studies[-1].name][1]),
    )


def _descriptions(study: Study) -> dict[str, ModelDescription]:
    from perflex.models import load_model

    return {overlap: load_model(study.models[overlap]) for overlap in OVERLAPS}


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


def _references(kernels: Mapping[str, Any], table: FeatureTable, output: str) -> dict[Any, float]:
    """Return the measurement kernels that took longest, with their times: they are timed again."""
    times = {n: t for n, t in zip(table.kernels, map(float, table.column(output)), strict=True) if n in kernels}
    longest = sorted(times, key=lambda name: -times[name])[:_REFERENCES]
    return {kernels[name]: times[name] for name in longest}
