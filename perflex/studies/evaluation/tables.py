"""The tables of evaluations, which all begin with the device and, where there is one, the study."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.studies.evaluation.baselines import IN_WORDS
from perflex.tables import Table, fixed, percent, seconds, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from perflex.studies.evaluation.result import DeviceEvaluation, StudyResult
    from perflex.tables import Column

_JUDGED = {True: "yes", False: "no"}


def evaluation_tables(evaluations: Sequence[DeviceEvaluation]) -> dict[str, Table]:
    """Return all tables of evaluations, one per device, by the names of their files."""
    return {
        "summary": summary_table(evaluations),
        "points": point_table(evaluations),
        "parameters": parameter_table(evaluations),
        "choices": _choice_table(evaluations),
        "skipped": skipped_table(evaluations),
        "devices": device_table(evaluations),
    }


def _table(
    caption: str,
    columns: Sequence[Column],
    evaluations: Iterable[DeviceEvaluation],
    rows: Callable[[StudyResult], Iterable[Sequence[Any]]],
) -> Table:
    """Return a table of the rows of each study of each device."""
    found = [
        (one.device, result.study.name, *row) for one in evaluations for result in one.studies for row in rows(result)
    ]
    return Table(caption, [text("device", place="files"), text("study", place="files"), *columns], found)


def summary_table(evaluations: Iterable[DeviceEvaluation], *, variants: bool | None = None) -> Table:
    """Return how good models and baselines are: over each variant, over all, or (None) both."""
    columns = [
        text("variant", place="files" if variants is False else "everywhere"),
        text("model", "predicted by"),
        text("used"),
        text("knowledge", "known of a variant", words=IN_WORDS),
        percent("median_error", "median"),
        percent("rms_error", "rms"),
        percent("max_error", "maximum"),
        percent("geomean_error", "geometric mean", place="pages"),
        fixed("typical_factor", digits=2, place="pages", meaning="between predicted and measured time"),
        percent("pairs_right", digits=0, meaning="share of the pairs whose order is predicted"),
        fixed("pairs", place="pages", meaning="variants at one size whose times differ by more than 7 %"),
        fixed("spearman", "rank correlation", 2, place="pages"),
        percent("loss_mean", "loss", meaning="of the predicted fastest, mean over sizes"),
        percent("loss_worst", "worst loss", place="pages"),
        text("beats_baselines", words=_JUDGED, meaning="is better than each baseline that knows no more"),
        *(percent(name, place="files") for name in ("loss_median", "loss_p90", "best_found", "first_tenth")),
        percent("noise_floor", place="pages", meaning="smaller errors are not significant"),
    ]

    def rows(result: StudyResult) -> Iterator[Sequence[Any]]:
        each = dict.fromkeys(point.variant for point in result.points)
        over_all = () if variants is True else (None,)
        for variant in (*(() if variants is False else each), *over_all):
            for name in result.methods:
                used, knowledge = name == result.model, result.knowledge.get(name)
                # What the used model's choice has seen counts; of one variant there is nothing to choose.
                knowledge = result.chosen_with if used else knowledge
                judged = variant is None and name in result.calibrations
                a = result.accuracy(name, variant)
                yield (
                    variant or "all", name, used, knowledge, a.median, a.rms, a.maximum, a.geometric_mean, a.factor,
                    a.pairs_right, a.pairs or None, a.spearman, a.loss_mean,
                    a.loss_worst, result.beats_baselines(name, knowledge) if judged else None, a.loss_median,
                    a.loss_p90, a.best_found, a.first_tenth, result.noise_floor,
                )  # fmt: skip

    return _table("Errors by variant" if variants else "Models and baselines", columns, evaluations, rows)


def point_table(evaluations: Iterable[DeviceEvaluation], *, used: bool = False) -> Table:
    """Return predicted and measured times, of the used model alone or of all models and baselines."""
    columns = [
        text("variant"),
        fixed("size"),
        text("model", place="files"),
        text("knowledge", place="files"),
        text("used", place="files"),
        seconds("predicted_s"),
        seconds("measured_s"),
        percent("relative_error", "error", sign=True),
        percent("spread", meaning="relative spread of repeated timings"),
        percent("repeatability", meaning="by how much the time differs from one such measurement to the next"),
        text("disturbed", meaning="rests on samples that other work disturbed"),
    ]

    def rows(result: StudyResult) -> Iterator[Sequence[Any]]:
        for point in result.points:
            for model in [result.model] if used else point.predicted_s:
                own = model == result.model
                yield (
                    point.variant, point.size, model, result.chosen_with if own else result.knowledge.get(model), own,
                    point.predicted_s[model], point.measured_s, point.error(model), point.spread, point.repeatability,
                    point.disturbed,
                )  # fmt: skip

    return _table("Predicted and measured times", columns, evaluations, rows)


def parameter_table(evaluations: Iterable[DeviceEvaluation]) -> Table:
    """Return the parameters of all models, without their confidence intervals."""
    fits = {
        (one.device, result.study.name, model, model == result.model): made.fit.parameter_table(intervals=False)
        for one in evaluations for result in one.studies for model, made in result.calibrations.items()
    }  # fmt: skip
    first = [text("device"), text("study"), text("model"), text("used")]
    columns = next(iter(fits.values())).columns if fits else []
    return Table("Parameters", [*first, *columns], [(*of, *row) for of, table in fits.items() for row in table.rows])


def _choice_table(evaluations: Iterable[DeviceEvaluation]) -> Table:
    """Return the model of each study: chosen, best in hindsight, and how the used one compares."""
    names = ("chosen", "best_in_hindsight", "used", "best_baseline", "beats_baselines", "reason", "judgement")

    def rows(result: StudyResult) -> Iterator[Sequence[Any]]:
        if result.points:
            yield (
                result.choice.name, result.best_in_hindsight, result.model, result.best_baseline(result.chosen_with),
                result.beats_baselines(result.model, result.chosen_with), result.choice.reason, result.judgement,
            )  # fmt: skip

    return _table("Choice of the model", [text(name) for name in names], evaluations, rows)


def skipped_table(evaluations: Iterable[DeviceEvaluation]) -> Table:
    """Return what did not run, and why."""
    rows = [(one.device, label, reason) for one in evaluations for label, reason in one.skipped]
    return Table("Skipped", [text("device"), text("kernel"), text("reason")], rows)


def device_table(evaluations: Iterable[DeviceEvaluation]) -> Table:
    """Return each device, by which fraction its times drifted, and how long its evaluation took."""
    columns = [
        text("device"), text("platform"), text("driver"), percent("drift", sign=True), seconds("seconds"),
        text("date"), text("versions"),
    ]  # fmt: skip
    rows = []
    for one in evaluations:
        # All of a device's models are of one run.
        made = next((found for result in one.studies for found in result.calibrations.values()), None)
        facts, versions = ({}, {}) if made is None else (made.device, made.versions)
        shown = "; ".join(f"{name} {number}" for name, number in versions.items())
        date = made and made.date
        rows.append((one.device, facts.get("platform"), facts.get("driver"), one.drift, one.seconds, date, shown))
    return Table("Devices", columns, rows)
