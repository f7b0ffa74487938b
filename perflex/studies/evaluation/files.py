"""What an evaluation leaves behind: tables, which a report reads, the paper's figures, calibrations."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import numpy as np

from perflex.calibration.acceptance import save_if_acceptable
from perflex.errors import FileFormatError
from perflex.file_io import csv_rows, read_text
from perflex.pictures import COLOURS, new_figure, save_figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perflex.studies.evaluation.result import DeviceEvaluation, StudyResult

_Seconds = Annotated[float, msgspec.Meta(gt=0, lt=1e12)]
_RowT = TypeVar("_RowT", bound=msgspec.Struct)


class SummaryRow(msgspec.Struct, frozen=True):
    """Measures of one method, over one variant or ``"all"``; errors, losses and shares are fractions."""

    device: str
    study: str
    variant: str
    model: str
    knowledge: str | None
    used: bool
    beats_baselines: bool | None
    geomean_error: float
    median_error: float
    rms_error: float
    max_error: float
    typical_factor: float
    spearman: float | None
    pairs: int
    pairs_ranked_right: float
    loss_median: float | None
    loss_mean: float | None
    loss_p90: float | None
    loss_worst: float | None
    best_found: float | None
    first_tenth: float | None
    noise_floor: float | None


class PointRow(msgspec.Struct, frozen=True):
    """One method's prediction of one variant at one size; `spread` and `repeatability` as of `Point`."""

    device: str
    study: str
    variant: str
    size: int
    model: str
    knowledge: str | None
    used: bool
    predicted_s: _Seconds
    measured_s: _Seconds
    relative_error: float
    spread: float | None
    repeatability: float | None
    disturbed: bool


class ParameterRow(msgspec.Struct, frozen=True):
    """A parameter of one model."""

    device: str
    study: str
    model: str
    used: bool
    parameter: str
    value: float
    unit: str | None
    standard_error: float | None
    rate: float | None
    rate_unit: str | None
    remarks: str | None


class ChoiceRow(msgspec.Struct, frozen=True):
    """The model of one study: which was chosen, which would have been the best, and how the used one compares."""

    device: str
    study: str
    chosen: str
    best_in_hindsight: str
    used: str
    best_baseline: str | None
    beats_baselines: bool | None
    reason: str
    judgement: str | None


class SkippedRow(msgspec.Struct, frozen=True):
    """What did not run on a device, and why."""

    device: str
    kernel: str
    reason: str


class DeviceRow(msgspec.Struct, frozen=True):
    """A device, by which fraction its times drifted, and how long its evaluation took."""

    device: str
    platform: str | None
    driver: str | None
    drift: float | None
    seconds: float | None
    date: str | None
    versions: str | None


@dataclass(frozen=True)
class EvaluationTables:
    """All tables; their files are named like them."""

    summary: tuple[SummaryRow, ...]
    points: tuple[PointRow, ...]
    parameters: tuple[ParameterRow, ...]
    choices: tuple[ChoiceRow, ...]
    skipped: tuple[SkippedRow, ...]
    devices: tuple[DeviceRow, ...]


_KINDS: dict[str, type[msgspec.Struct]] = {
    "summary": SummaryRow, "points": PointRow, "parameters": ParameterRow, "choices": ChoiceRow, "skipped": SkippedRow,
    "devices": DeviceRow,
}  # fmt: skip
FILES = tuple(f"{name}.csv" for name in _KINDS)


def tables_of(evaluations: Sequence[DeviceEvaluation]) -> EvaluationTables:
    """Return the tables of evaluations, one per device."""
    studies = [(one.device, result) for one in evaluations for result in one.studies]
    return EvaluationTables(
        tuple(row for device, result in studies for row in summary_rows(device, result)),
        tuple(row for device, result in studies for row in _points(device, result)),
        tuple(
            _row(
                ParameterRow, device, result.study.name, model, model == result.model, p.name, p.value, p.unit,
                p.standard_error, p.rate, p.rate_unit, p.flags,
            )
            for device, result in studies for model, made in result.calibrations.items() for p in made.fit.parameters
        ),
        tuple(_choice(device, result) for device, result in studies if result.points),
        tuple(SkippedRow(one.device, label, reason) for one in evaluations for label, reason in one.skipped),
        tuple(map(_device, evaluations)),
    )  # fmt: skip


def _row(kind: type[_RowT], *values: Any) -> _RowT:
    """Return a row; what is not a number is not known."""
    return kind(*(None if isinstance(value, float) and math.isnan(value) else value for value in values))


def summary_rows(device: str, result: StudyResult) -> Iterator[SummaryRow]:
    """Yield a row for each variant and method of a study, then one over all variants; none without measured times."""
    variants = dict.fromkeys(point.variant for point in result.points)
    for variant in (*variants, None) if variants else ():
        for name in result.methods:
            used, knowledge = name == result.model, result.knowledge.get(name)
            # What the used model's choice has seen counts; of one variant there is nothing to choose.
            knowledge = result.chosen_with if used else knowledge
            judged = variant is None and name in result.calibrations
            a = result.accuracy(name, variant)
            yield _row(
                SummaryRow, device, result.study.name, variant or "all", name, knowledge, used,
                result.beats_baselines(name, knowledge) if judged else None, a.geometric_mean, a.median, a.rms,
                a.maximum, a.factor, a.spearman, a.pairs, a.pairs_right * a.pairs if a.pairs else 0.0, a.loss_median,
                a.loss_mean, a.loss_p90, a.loss_worst, a.best_found, a.first_tenth, result.noise_floor,
            )  # fmt: skip


def _points(device: str, result: StudyResult) -> Iterator[PointRow]:
    for point in result.points:
        for model, predicted in point.predicted_s.items():
            used = model == result.model
            knowledge = result.chosen_with if used else result.knowledge.get(model)
            yield _row(
                PointRow, device, result.study.name, point.variant, point.size, model, knowledge, used, predicted,
                point.measured_s, point.error(model), point.spread, point.repeatability, point.disturbed,
            )  # fmt: skip


def _choice(device: str, result: StudyResult) -> ChoiceRow:
    return ChoiceRow(
        device, result.study.name, result.choice.name, result.best_in_hindsight, result.model,
        result.best_baseline(result.chosen_with), result.beats_baselines(result.model, result.chosen_with),
        result.choice.reason, result.judgement,
    )  # fmt: skip


def _device(evaluation: DeviceEvaluation) -> DeviceRow:
    # All of a device's models are of one run.
    made = next((one for result in evaluation.studies for one in result.calibrations.values()), None)
    facts, versions = ({}, {}) if made is None else (made.device, made.versions)
    return _row(
        DeviceRow, evaluation.device, facts.get("platform"), facts.get("driver"), evaluation.drift, evaluation.seconds,
        made and made.date, "; ".join(f"{name} {number}" for name, number in versions.items()),
    )  # fmt: skip


def write_tables(tables: EvaluationTables, folder: Path) -> list[Path]:
    """Write the tables as CSV files; return their paths."""
    paths = []
    for name, kind in _KINDS.items():
        paths.append(folder / f"{name}.csv")
        with paths[-1].open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(kind.__struct_fields__)
            writer.writerows(map(msgspec.structs.astuple, getattr(tables, name)))
    return paths


def read_tables(folder: Path) -> EvaluationTables:
    """Return the tables in a folder."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        known = "it is no folder of perflex evaluate" if len(missing) == len(FILES) else "make it again"
        msg = f"{folder} has no {missing[0]}, which perflex evaluate writes; {known}"
        raise FileFormatError(msg, path=folder)
    tables = EvaluationTables(**{name: _read(folder / f"{name}.csv", kind) for name, kind in _KINDS.items()})
    _require_whole(tables, folder)
    return tables


def _read(path: Path, kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    text = read_text(path)
    heading = next(csv.reader(io.StringIO(text)), [])
    columns = kind.__struct_fields__
    if missing := [name for name in columns if name not in heading]:
        msg = f"{path} has no column {missing[0]!r}; it is damaged or of an earlier version, evaluate again"
        raise FileFormatError(msg, path=path, field=missing[0])
    if unknown := [name for name in heading if name not in columns]:
        msg = f"{path} has an unknown column {unknown[0]!r}; it is of a newer version, update perflex to read it"
        raise FileFormatError(msg, path=path, field=unknown[0])
    rows = []
    # A heading alone: nothing was skipped, say.
    for line, cells in csv_rows(text, path) if text.partition("\n")[2].strip() else ():
        try:
            # Texts of numbers become numbers.
            rows.append(msgspec.convert({name: cell or None for name, cell in cells.items()}, kind, strict=False))
        except msgspec.ValidationError as error:
            msg = f"{path}, line {line}: {str(error).replace('`$.', '`')}; the file is damaged"
            raise FileFormatError(msg, path=path, line=line) from error
    return tuple(rows)


def _require_whole(tables: EvaluationTables, folder: Path) -> None:
    """Make sure that each study has one choice, and that choice, summary and points are of the same models."""
    seen = set()
    summary = {(row.device, row.study, row.variant, row.model) for row in tables.summary}
    points = {(row.device, row.study, row.variant, row.model) for row in tables.points}
    for choice in tables.choices:
        study = choice.device, choice.study
        used = {key for key in points if key[:2] == study and key[3] == choice.used}
        if study in seen or not used or not used <= summary:
            msg = f"{folder / 'choices.csv'}: {study[1]} does not fit the other tables; the folder is damaged"
            raise FileFormatError(msg, path=folder / "choices.csv", field="study")
        seen.add(study)


_MARKERS = ("o", "s", "^", "D")
# With more variants than this the legend stands beside the picture.
_FEW = 2


def draw_study(device: str, result: StudyResult, path: Path) -> Path:
    """Draw modeled and measured time over size for each variant (paper Figures 7 to 9)."""
    points = [(point.variant, point.size, point.predicted_s[result.model], point.measured_s) for point in result.points]
    title = f"{result.study.title}, model {result.model}\n{device}"
    save_figure(study_figure(points, title, result.study.axis), path)
    return path


def study_figure(points: Sequence[tuple[str, int, float, float]], title: str, axis: str) -> Any:
    """Return the picture of modeled and measured times over size; points are variant, size and both in seconds."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    variants = dict.fromkeys(variant for variant, *_ in points)
    many = len(variants) > _FEW
    figure = new_figure(10.5 if many else 7.5, 4.6)
    axes = figure.add_subplot()
    for variant, colour, marker in zip(variants, COLOURS, _MARKERS, strict=False):
        sizes, modeled, measured = np.array(sorted(numbers for name, *numbers in points if name == variant)).T
        errors = np.abs(modeled / measured - 1)
        error = f"rms {100 * np.sqrt(np.mean(errors**2)):.1f} %, at most {100 * errors.max():.1f} %"
        label = variant.replace("_", " ")
        axes.plot(sizes, 1e3 * modeled, color=colour, label=f"{label}, modeled ({error})")
        axes.plot(
            sizes, 1e3 * measured, linestyle="none", marker=marker, markersize=7, markerfacecolor="none",
            markeredgewidth=1.6, color=colour, label=f"{label}, measured",
        )  # fmt: skip
    # A power law is a straight line, and a constant relative error a constant distance.
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({size for _, size, *_ in points})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel(axis)
    axes.set_ylabel("time (ms)")
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, which="both", linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False, **({"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if many else {}))
    return figure


def draw_overlap(evaluations: Sequence[DeviceEvaluation], path: Path) -> Path:
    """Draw time over the ratio m of local to global accesses, modeled and measured (paper Figure 5)."""
    shown = [evaluation for evaluation in evaluations if evaluation.overlap]
    figure = new_figure(4.6 * len(shown) + 0.6, 4.2)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, evaluation in zip(panels, shown, strict=True):
        ratios = [entry.ratio for entry in evaluation.overlap]
        axes.plot(
            ratios, [1e3 * entry.measured_s for entry in evaluation.overlap], linestyle="none", marker="o",
            markerfacecolor="none", markeredgewidth=1.6, color=COLOURS[0], label="measured",
        )  # fmt: skip
        for (name, colour), style in zip(
            zip(evaluation.overlap[0].predicted_s, COLOURS[1:], strict=False), ("-", "--", ":"), strict=False
        ):
            modeled = [1e3 * entry.predicted_s[name] for entry in evaluation.overlap]
            axes.plot(ratios, modeled, style, color=colour, label=f"{name}, modeled")
        axes.set_xlabel("m, local load-store sequences per global access")
        axes.set_ylabel("time (ms)")
        axes.set_title(evaluation.device, fontsize=9)
        axes.grid(visible=True, linewidth=0.4, alpha=0.6)
        axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)
    return path


def write_evaluation(
    evaluations: Sequence[DeviceEvaluation], folder: Path, *, accept_noise: bool = False
) -> list[Path]:
    """Write the tables, pictures and calibrations of evaluations, one per device, into a folder; return their paths.

    A calibration with bad times (`perflex.calibration.acceptance`) is not written unless `accept_noise` says so; a
    `PerflexWarning` tells.
    """
    try:
        written = write_tables(tables_of(evaluations), folder)
        for evaluation in evaluations:
            device = re.sub(r"[^a-z0-9]+", "_", evaluation.device.lower()).strip("_")
            for result in evaluation.studies:
                name = result.study.name
                if result.points:
                    written.append(draw_study(evaluation.device, result, folder / f"{name}_{device}.png"))
                for model, calibration in result.calibrations.items():
                    path = folder / f"calibration_{name}_{model}_{device}.yaml"
                    if save_if_acceptable(calibration, path, accept_noise=accept_noise):
                        written.append(path)
        if any(evaluation.overlap for evaluation in evaluations):
            written.append(draw_overlap(evaluations, folder / "overlap.png"))
    except OSError as error:
        msg = f"cannot write the results to {folder}: {error.strerror or error}"
        raise FileFormatError(msg, path=folder) from error
    return written
