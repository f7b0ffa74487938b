"""What an evaluation leaves behind: tables as CSV and Markdown, pictures, calibrations."""

from __future__ import annotations

import csv
import math
import re
from typing import TYPE_CHECKING, Any

from perflex.calibration.acceptance import save_if_repeatable
from perflex.errors import FileFormatError
from perflex.studies.evaluation.pictures import draw_overlap, draw_steps, draw_study
from perflex.studies.evaluation.report import report_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from perflex.studies.accuracy import Accuracy
    from perflex.studies.evaluation.result import DeviceEvaluation, StudyResult

SUMMARY = (
    "device", "study", "variant", "model", "knowledge", "used", "beats_baselines", "geomean_error", "median_error",
    "rms_error", "max_error", "typical_factor", "spearman", "pairs", "pairs_ranked_right", "loss_median", "loss_mean",
    "loss_p90", "loss_worst", "best_found", "first_tenth", "noise_floor",
)  # fmt: skip
POINTS = (
    "device", "study", "variant", "size", "model", "knowledge", "used", "predicted_s", "measured_s", "relative_error",
    "spread", "repeatability", "disturbed",
)  # fmt: skip
PARAMETERS = (
    "device", "study", "model", "used", "parameter", "value", "unit", "standard_error", "rate", "rate_unit", "remarks",
)  # fmt: skip
CHOICES = (
    "device", "study", "chosen", "best_in_hindsight", "loss_chosen", "loss_best", "rms_chosen", "rms_best",
    "error_chosen", "error_best", "used", "used_knowledge", "best_baseline", "loss_used", "loss_baseline", "rms_used",
    "rms_baseline", "beats_baselines", "reason",
)  # fmt: skip

SKIPPED = ("device", "kernel", "reason")
DEVICES = ("device", "platform", "driver", "drift", "seconds", "date", "versions")


def write_evaluation(
    evaluations: Sequence[DeviceEvaluation], folder: Path, *, accept_noise: bool = False
) -> list[Path]:
    """Write tables, pictures, calibrations and ``report.md`` into a folder.

    Parameters
    ----------
    evaluations
        One per device.
    folder
        It exists.
    accept_noise
        Whether calibrations are written whose times do not repeat (`perflex.calibration.acceptance`); else a
        `PerflexWarning` tells which are not.

    Returns
    -------
    list of Path
        The files, ``report.md`` first.

    Raises
    ------
    FileFormatError
        The folder cannot be written.
    """
    try:
        written = [
            _table(folder / "summary.csv", SUMMARY, _summary(evaluations)),
            _table(folder / "points.csv", POINTS, _points(evaluations)),
            _table(folder / "parameters.csv", PARAMETERS, _parameters(evaluations)),
            _table(folder / "choices.csv", CHOICES, _choices(evaluations)),
            _table(folder / "skipped.csv", SKIPPED, _skipped(evaluations)),
            _table(folder / "devices.csv", DEVICES, _devices(evaluations)),
        ]
        pictures = _pictures(evaluations, folder)
        written += pictures
        report = folder / "report.md"
        report.write_text(report_text(evaluations, [path.name for path in pictures]), encoding="utf-8")
        for evaluation in evaluations:
            for result in evaluation.studies:
                written += _calibrations(evaluation.device, result, folder, accept_noise=accept_noise)
    except OSError as error:
        msg = f"cannot write the results to {folder}: {error.strerror or error}"
        raise FileFormatError(msg, path=folder) from error
    return [report, *written]


def _table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row] for row in rows)
    return path


def _cell(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value


def _summary(evaluations: Sequence[DeviceEvaluation]) -> Iterable[Sequence[Any]]:
    for evaluation in evaluations:
        for result in evaluation.studies:
            for variant in (*dict.fromkeys(point.variant for point in result.points), None) if result.points else ():
                for name in result.methods:
                    used, knowledge = name == result.model, result.knowledge.get(name)
                    # What the used model's choice has seen counts; of one variant there is nothing to choose.
                    knowledge = result.chosen_with if used else knowledge
                    judged = variant is None and name in result.calibrations
                    yield (
                        evaluation.device, result.study.name, variant or "all", name, knowledge, used,
                        result.beats_baselines(name, knowledge) if judged else None,
                        *_measures(result.accuracy(name, variant)), result.noise_floor,
                    )  # fmt: skip


def _measures(a: Accuracy) -> tuple[float, ...]:
    right = a.pairs_right * a.pairs if a.pairs else 0.0
    return (
        a.geometric_mean, a.median, a.rms, a.maximum, a.factor, a.spearman, a.pairs, right, a.loss_median, a.loss_mean,
        a.loss_p90, a.loss_worst, a.best_found, a.first_tenth,
    )  # fmt: skip


def _points(evaluations: Sequence[DeviceEvaluation]) -> Iterable[Sequence[Any]]:
    for evaluation in evaluations:
        for result in evaluation.studies:
            for point in result.points:
                for model, predicted in point.predicted_s.items():
                    used = model == result.model
                    yield (
                        evaluation.device, result.study.name, point.variant, point.size, model,
                        result.chosen_with if used else result.knowledge.get(model), used, predicted, point.measured_s,
                        point.error(model), point.spread, point.repeatability, point.disturbed,
                    )  # fmt: skip


def _parameters(evaluations: Sequence[DeviceEvaluation]) -> Iterable[Sequence[Any]]:
    for evaluation in evaluations:
        for result in evaluation.studies:
            for model, calibration in result.calibrations.items():
                for p in calibration.fit.parameters:
                    yield (
                        evaluation.device, result.study.name, model, model == result.model, p.name, p.value, p.unit,
                        p.standard_error, p.rate, p.rate_unit, p.flags,
                    )  # fmt: skip


def _choices(evaluations: Sequence[DeviceEvaluation]) -> Iterable[Sequence[Any]]:
    for evaluation in evaluations:
        for result in evaluation.studies:
            if not result.points:
                continue
            baseline = result.best_baseline(result.chosen_with)
            names = result.choice.name, result.best_in_hindsight
            chosen, best, used = map(result.accuracy, (*names, result.model))
            trivial = None if baseline is None else result.accuracy(baseline)
            yield (
                evaluation.device, result.study.name, *names, chosen.loss_mean, best.loss_mean, chosen.rms, best.rms,
                chosen.geometric_mean, best.geometric_mean, result.model, result.chosen_with, baseline, used.loss_mean,
                trivial and trivial.loss_mean, used.rms, trivial and trivial.rms,
                result.beats_baselines(result.model, result.chosen_with), result.choice.reason,
            )  # fmt: skip


def _skipped(evaluations: Sequence[DeviceEvaluation]) -> Iterable[Sequence[Any]]:
    for evaluation in evaluations:
        for label, reason in evaluation.skipped:
            yield evaluation.device, label, reason


def _devices(evaluations: Sequence[DeviceEvaluation]) -> Iterable[Sequence[Any]]:
    for evaluation in evaluations:
        # All of a device's models are of one run.
        made = next((c for result in evaluation.studies for c in result.calibrations.values()), None)
        facts, versions = ({}, {}) if made is None else (made.device, made.versions)
        yield (
            evaluation.device, facts.get("platform"), facts.get("driver"), evaluation.drift, evaluation.seconds,
            None if made is None else made.date, "; ".join(f"{name} {number}" for name, number in versions.items()),
        )  # fmt: skip


def _pictures(evaluations: Sequence[DeviceEvaluation], folder: Path) -> list[Path]:
    paths = [draw_steps(folder / "step_function.png")]
    for evaluation in evaluations:
        slug = _slug(evaluation.device)
        paths += [
            draw_study(evaluation.device, result, folder / f"{result.study.name}_{slug}.png")
            for result in evaluation.studies
            if result.points
        ]
    if any(evaluation.overlap for evaluation in evaluations):
        paths.append(draw_overlap(evaluations, folder / "overlap.png"))
    return paths


def _calibrations(device: str, result: StudyResult, folder: Path, *, accept_noise: bool) -> list[Path]:
    paths = []
    for model, calibration in result.calibrations.items():
        path = folder / f"calibration_{result.study.name}_{model}_{_slug(device)}.yaml"
        if save_if_repeatable(calibration, path, accept_noise=accept_noise):
            paths.append(path)
    return paths


def _slug(device: str) -> str:
    """Return a device's name as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "_", device.lower()).strip("_")
