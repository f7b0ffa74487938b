"""What a report says of an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.html import render
from perflex.reports.part import Part
from perflex.studies.evaluation.baselines import BASELINES, MEANINGS
from perflex.studies.evaluation.files import read_tables, study_figure
from perflex.studies.evaluation.studies import STUDIES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perflex.reports.part import Picture
    from perflex.studies.evaluation.files import ChoiceRow, DeviceRow, EvaluationTables


def evaluation_part(folder: Path, picture: Picture) -> Part:
    """Return what a report says of the evaluation in a folder: models beside baselines, times over sizes, parameters.

    Raises
    ------
    FileFormatError
        As `read_tables`.
    """
    tables = read_tables(folder)
    devices = list(dict.fromkeys(choice.device for choice in tables.choices))
    names = ", ".join(dict.fromkeys(choice.study for choice in tables.choices)) or "nothing"
    body = render(
        "evaluation_report.html",
        studies=[_study(tables, choice) for choice in tables.choices],
        several=len(devices) > 1,
        baselines=[(name, BASELINES[name], MEANINGS[name]) for name in MEANINGS],
        picture=picture,
    )
    return Part(
        f"Evaluation of {names} on {devices[0] if len(devices) == 1 else f'{len(devices)} devices'}",
        list(_notices(tables)),
        body,
        [("", {"folder": str(folder)}), *(("", _device(row)) for row in tables.devices)],
    )


def _study(tables: EvaluationTables, choice: ChoiceRow) -> dict[str, Any]:
    """Return what the template shows of a study: its rows, and its picture."""
    name = choice.device, choice.study
    summary = [row for row in tables.summary if (row.device, row.study) == name]
    points = [row for row in tables.points if (row.device, row.study, row.model) == (*name, choice.used)]
    known = STUDIES.get(choice.study)
    title, axis = (choice.study, "size") if known is None else (known.title, known.axis)
    times = [(row.variant, row.size, row.predicted_s, row.measured_s) for row in points]
    return {
        "title": title,
        "choice": choice,
        "methods": [row for row in summary if row.variant == "all"],
        "variants": [row for row in summary if row.variant != "all"],
        "points": points,
        "parameters": [row for row in tables.parameters if (row.device, row.study, row.used) == (*name, True)],
        "figure": study_figure(times, f"{title}, model {choice.used}", axis),
    }


def _notices(tables: EvaluationTables) -> Iterator[tuple[str, str]]:
    if not tables.choices:
        yield "problem", "no study has measured times"
    for choice in tables.choices:
        if choice.beats_baselines is False:
            yield "warning", f"{choice.study} on {choice.device}: {choice.judgement}"
    for device in tables.devices:
        # As far as kernels of a device repeat, drift means nothing.
        floor = max((row.noise_floor or 0.0 for row in tables.summary if row.device == device.device), default=0.0)
        if abs(device.drift or 0.0) > floor:
            changed = f"changed by {100 * (device.drift or 0.0):+.1f} % from the calibration to the studies"
            text = f"times of measurement kernels {changed}; this drift is part of every error"
            yield "warning", f"{device.device}: {text}"
    timed = {(row.device, row.study, row.variant, row.size): row.disturbed for row in tables.points}
    if disturbed := sum(timed.values()):
        yield "warning", f"{disturbed} of {len(timed)} measured times rest on samples that others disturbed"
    for row in tables.skipped:
        yield "remark", f"skipped on {row.device}: {row.kernel}: {row.reason}"


def _device(row: DeviceRow) -> dict[str, object]:
    return {
        "device": row.device,
        "platform": row.platform,
        "driver": row.driver,
        "made on": row.date,
        "versions": row.versions,
        "duration": None if row.seconds is None else f"{row.seconds:.0f} s",
        "drift": None if row.drift is None else f"{100 * row.drift:+.1f} %",
    }
