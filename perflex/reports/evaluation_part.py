"""What a report says of an evaluation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perflex.html import (
    Column,
    Html,
    bullets,
    element,
    facts,
    fixed,
    folded,
    joined,
    notice,
    percent,
    significant,
    times,
    whole,
)
from perflex.html import table as html_table
from perflex.reports.page import Part
from perflex.studies.evaluation.pictures import Series, study_figure
from perflex.studies.evaluation.studies import STUDIES
from perflex.studies.evaluation.trivial import BASELINES, MEANINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from perflex.html import Cell
    from perflex.reports.evaluation_file import EvaluationFile, Row
    from perflex.reports.pictures import Pictures

_WHAT = (
    "All predictions were made before the kernels of the studies ran at the sizes shown. A loss is by how much the "
    "variant predicted to be the fastest is slower than the fastest one, at one size. Pairs are two variants at one "
    'size whose measured times differ by more than 7 %. "Knows" is what a method has seen of a variant. A model is '
    "recommended where its loss, and at the same loss its rms, is lower than that of each baseline that knows no more."
)


def evaluation_part(file: EvaluationFile, pictures: Pictures) -> Part:
    """Return what a report says of an evaluation: models beside baselines, times over sizes, parameters."""
    studies = [(row.text("device"), row.text("study")) for row in file.choices]
    devices = list(dict.fromkeys(device for device, _ in studies))
    names = ", ".join(dict.fromkeys(study for _, study in studies)) or "nothing"
    return Part(
        f"Evaluation of {names} on {devices[0] if len(devices) == 1 else f'{len(devices)} devices'}",
        list(_notices(file)),
        joined(
            element("h3", "Summary"),
            _summary(file),
            element("p", _WHAT),
            folded("Baselines", bullets(f"{name} (knows: {BASELINES[name]}): {MEANINGS[name]}" for name in MEANINGS)),
            (_study(file, choice, pictures) for choice in file.choices),
        ),
        _provenance(file),
    )


def _notices(file: EvaluationFile) -> Iterator[Html]:
    if not file.choices:
        yield notice("problem", "no study has measured times")
    for row in file.choices:
        if row.holds("beats_baselines") is False:
            yield notice("warning", f"{_place(row)}: not recommended, for a baseline is better: {_judged(row)}")
    for row in file.devices:
        # As far as kernels of a device repeat, drift means nothing.
        floors = [s.number("noise_floor") for s in file.summary if s.text("device") == row.text("device")]
        floor = max((f for f in floors if not math.isnan(f)), default=0.0)
        drift = row.number("drift")
        if abs(drift) > floor:
            yield notice(
                "warning",
                f"{row.text('device')}: times of measurement kernels changed by {100 * drift:+.1f} % from the "
                "calibration to the studies; this drift is part of every error",
            )
    points = {
        (row.text("device"), row.text("study"), row.text("variant"), row.text("size")): row for row in file.points
    }
    disturbed = sum(bool(row.holds("disturbed")) for row in points.values())
    if disturbed:
        yield notice("warning", f"{disturbed} of {len(points)} measured times rest on samples that others disturbed")
    for row in file.skipped:
        yield notice("remark", f"skipped on {row.text('device')}: {row.text('kernel')}: {row.text('reason')}")


def _place(row: Row) -> str:
    return f"{row.text('study')} on {row.text('device')}"


def _judged(row: Row) -> str:
    baseline = _figures(row.text("best_baseline"), row.number("loss_baseline"), row.number("rms_baseline"))
    return f"{_figures(row.text('used'), row.number('loss_used'), row.number('rms_used'))}; {baseline}"


def _figures(name: str, loss: float, rms: float) -> str:
    mean = "" if math.isnan(loss) else f"mean loss {100 * loss:.1f} %, "
    return f"{name} has {mean}rms {100 * rms:.1f} %"


def _summary(file: EvaluationFile) -> Html:
    """Return the used model of each study beside the best baseline that knows no more."""
    rows = []
    for choice in file.choices:
        wanted = (choice.text("used"), choice.text("best_baseline"))
        rows += [
            row for row in _of(file.summary, choice) if row.text("variant") == "all" and row.text("model") in wanted
        ]
    return _short(rows)


def _of(rows: Iterable[Row], choice: Row) -> list[Row]:
    return [row for row in rows if all(row.text(name) == choice.text(name) for name in ("device", "study"))]


def _short(rows: Sequence[Row]) -> Html:
    columns = [
        Column("predicted by"),
        Column("study"),
        Column("device"),
        *_ERRORS,
        Column("noise floor", fixed(1), "%", 100.0, "smaller errors are not significant"),
    ]
    cells = [
        [_method(row), row.text("study"), row.text("device"), *_errors(row), row.number("noise_floor")] for row in rows
    ]
    # One device needs no column.
    if len({row.text("device") for row in rows}) < 2:
        columns, cells = columns[:2] + columns[3:], [cell[:2] + cell[3:] for cell in cells]
    return html_table(columns, cells, caption="The used models, and the best baseline that knows no more")


def _methods(rows: Sequence[Row]) -> Html:
    columns = [
        Column("predicted by"),
        *_ERRORS,
        percent("worst loss"),
        Column("beats baselines", meaning="is better than each baseline that knows no more"),
        percent("geometric mean"),
        Column("factor", fixed(2), meaning="typical factor between predicted and measured time"),
        Column("pairs right"),
        Column("rank correlation", fixed(2)),
    ]
    cells: list[list[Cell]] = []
    for row in rows:
        beats, pairs = row.holds("beats_baselines"), row.number("pairs")
        cells.append(
            [
                _method(row),
                *_errors(row),
                row.number("loss_worst"),
                "" if beats is None else "yes" if beats else "no",
                *(row.number(name) for name in ("geomean_error", "typical_factor")),
                f"{row.number('pairs_ranked_right'):g} of {pairs:g}".replace(" ", _NO_BREAK) if pairs else "",
                row.number("spearman"),
            ]
        )
    return html_table(columns, cells, caption="Models and baselines, all variants")


_NO_BREAK = "\N{NO-BREAK SPACE}"
_ERRORS = (
    Column("knows", meaning="what the method has seen of a variant"),
    *(percent(name) for name in ("median", "rms", "maximum")),
    percent("loss", meaning="of the predicted fastest, mean over sizes"),
)


def _errors(row: Row) -> list[Cell]:
    numbers = ("median_error", "rms_error", "max_error", "loss_mean")
    return [row.text("knowledge").replace(" ", _NO_BREAK), *map(row.number, numbers)]


def _method(row: Row) -> str:
    return f"{row.text('model')} (used)" if row.holds("used") else row.text("model")


def _study(file: EvaluationFile, choice: Row, pictures: Pictures) -> Html:
    device, study = choice.text("device"), choice.text("study")
    known = STUDIES.get(study)
    summary = _of(file.summary, choice)
    used = choice.text("used")
    points = [row for row in _of(file.points, choice) if row.text("model") == used]
    title = study if known is None else known.title
    sentence = f"Chosen: {choice.text('chosen')} ({choice.text('reason')}); best in hindsight: "
    figure = study_figure(_series(points, summary), f"{title}, model {used}", "size" if known is None else known.axis)
    return joined(
        element("h3", f"{title} on {device}"),
        element("p", f"Better than every baseline that knows no more: {_judged(choice)}.")
        if choice.holds("beats_baselines")
        else None,
        _methods([row for row in summary if row.text("variant") == "all"]),
        element("p", f"{sentence}{choice.text('best_in_hindsight')}."),
        pictures.show(figure, f"{title}: modeled and measured times over size; the numbers stand in the tables"),
        _variants(summary),
        folded(f"Times of the model {used}", _points(points)),
        folded(
            f"Parameters of the model {used}", _parameters([r for r in _of(file.parameters, choice) if r.holds("used")])
        ),
    )


def _series(points: Sequence[Row], summary: Sequence[Row]) -> list[Series]:
    found = []
    for variant in dict.fromkeys(row.text("variant") for row in points):
        own = sorted((row for row in points if row.text("variant") == variant), key=lambda row: row.number("size"))
        errors = next(r for r in summary if r.text("variant") == variant and r.text("model") == own[0].text("model"))
        found.append(
            Series(
                variant,
                [int(row.number("size")) for row in own],
                [row.number("predicted_s") for row in own],
                [row.number("measured_s") for row in own],
                errors.number("rms_error"),
                errors.number("max_error"),
            )
        )
    return found


def _variants(summary: Sequence[Row]) -> Html:
    own = [row for row in summary if row.text("variant") != "all"]
    columns = [
        Column("variant"),
        Column("predicted by"),
        *(percent(name) for name in ("median", "rms", "maximum", "geometric mean")),
    ]
    rows: list[tuple[Cell, ...]] = [
        (
            row.text("variant").replace("_", " "),
            _method(row),
            *(row.number(name) for name in ("median_error", "rms_error", "max_error", "geomean_error")),
        )
        for row in own
    ]
    return folded("Errors by variant", html_table(columns, rows, caption="Relative errors by variant"))


def _points(points: Sequence[Row]) -> Html:
    seconds = [row.number("measured_s") for row in points]
    columns = [
        Column("variant"),
        Column("size", whole),
        times("predicted", seconds),
        times("measured", seconds),
        percent("error", sign=True),
        percent("spread", meaning="relative spread of repeated timings"),
        percent("repeatability", meaning="by how much the time differs from one such measurement to the next"),
        Column("disturbed", meaning="rests on samples that other work disturbed"),
    ]
    names = ("size", "predicted_s", "measured_s", "relative_error", "spread", "repeatability")
    rows: list[tuple[Cell, ...]] = [
        (row.text("variant").replace("_", " "), *map(row.number, names), "yes" if row.holds("disturbed") else "")
        for row in points
    ]
    return html_table(columns, rows, caption="Predicted and measured times")


def _parameters(rows: Sequence[Row]) -> Html:
    columns = [
        Column("parameter"),
        Column("value", significant),
        Column("standard error", lambda value: significant(value, 2)),
        Column("unit"),
        Column("rate", lambda value: significant(value, 3)),
        Column("rate's unit"),
        Column("remarks"),
    ]
    cells: list[tuple[Cell, ...]] = [
        (
            row.text("parameter"),
            *map(row.number, ("value", "standard_error")),
            row.text("unit"),
            row.number("rate"),
            row.text("rate_unit"),
            row.text("remarks"),
        )
        for row in rows
    ]
    return html_table(columns, cells, caption="Parameters")


def _provenance(file: EvaluationFile) -> Html:
    parts = [facts({"folder": str(file.folder)})]
    for row in file.devices:
        drift, seconds = row.number("drift"), row.number("seconds")
        parts.append(
            facts(
                {
                    "device": row.text("device"),
                    "platform": row.text("platform"),
                    "driver": row.text("driver"),
                    "made on": row.text("date"),
                    "versions": row.text("versions"),
                    "duration": None if math.isnan(seconds) else f"{seconds:.0f} s",
                    "drift": None if math.isnan(drift) else f"{100 * drift:+.1f} %",
                }
            )
        )
    return joined(parts)
