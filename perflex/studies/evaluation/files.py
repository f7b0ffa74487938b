"""What an evaluation leaves behind: tables as CSV and Markdown, pictures, calibrations."""

from __future__ import annotations

import csv
import math
import re
from typing import TYPE_CHECKING, Any

from perflex.studies.evaluation.pictures import draw_overlap, draw_steps, draw_study
from perflex.studies.evaluation.report import report_text
from perflex.calibration.acceptance import save_if_repeatable
from perflex.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from perflex.studies.evaluation.run import DeviceEvaluation, StudyResult

SUMMARY = ("device", "study", "variant", "model", "geomean_error", "noise_floor", "pairs", "pairs_ranked_right")
POINTS = (
    "device", "study", "variant", "size", "model", "used", "predicted_s", "measured_s", "relative_error", "spread",
    "repeatability", "disturbed",
)  # fmt: skip
PARAMETERS = (
    "device", "study", "model", "used", "parameter", "value", "unit", "standard_error", "rate", "rate_unit", "remarks",
)  # fmt: skip
CHOICES = ("device", "study", "chosen", "best_in_hindsight", "error_chosen", "error_best", "reason")


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
            _table(folder / "skipped.csv", ("device", "kernel", "reason"), _skipped(evaluations)),
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
            for variant in (*dict.fromkeys(point.variant for point in result.points), None):
                error = result.geomean_error(result.model, variant)
                counted = result.pairs(result.model, variant)
                name = variant or "all"
                yield evaluation.device, result.study.name, name, result.model, error, result.noise_floor, *counted


def _points(evaluations: Sequence[DeviceEvaluation]) -> Iterable[Sequence[Any]]:
    for evaluation in evaluations:
        for result in evaluation.studies:
            for point in result.points:
                for model, predicted in point.predicted_s.items():
                    yield (
                        evaluation.device, result.study.name, point.variant, point.size, model, model == result.model,
                        predicted, point.measured_s, point.error(model), point.spread, point.repeatability, point.disturbed,
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
            chosen, best = result.choice.name, result.best_in_hindsight
            errors = result.geomean_error(chosen), result.geomean_error(best)
            yield evaluation.device, result.study.name, chosen, best, *errors, result.choice.reason


def _skipped(evaluations: Sequence[DeviceEvaluation]) -> Iterable[Sequence[Any]]:
    for evaluation in evaluations:
        for label, reason in evaluation.skipped:
            yield evaluation.device, label, reason


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
