"""What a page says of an evaluation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perflex.html import render
from perflex.reports.page import Part, calibrated_by
from perflex.studies.evaluation.baselines import BASELINES, IN_WORDS, MEANINGS
from perflex.studies.evaluation.files import study_figure
from perflex.studies.evaluation.tables import point_table, summary_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.studies.evaluation.result import DeviceEvaluation


def evaluation_part(evaluation: DeviceEvaluation) -> Part:
    """Return what a page says of an evaluation: models beside baselines, times over sizes, parameters."""
    shown = [result for result in evaluation.studies if result.points]
    body = render(
        "evaluation_report.html",
        studies=[_study(replace(evaluation, studies=(result,))) for result in shown],
        baselines=[(name, IN_WORDS[BASELINES[name]], MEANINGS[name]) for name in MEANINGS],
    )
    made = next((one for result in evaluation.studies for one in result.calibrations.values()), None)
    provenance = {
        "device": evaluation.device,
        "duration": None if math.isnan(evaluation.seconds) else f"{evaluation.seconds:.0f} s",
        "drift": None if evaluation.drift is None else f"{100 * evaluation.drift:+.1f} %",
        **({} if made is None else calibrated_by(made)),
    }
    names = ", ".join(result.study.name for result in shown) or "nothing"
    return Part(f"Evaluation of {names} on {evaluation.device}", list(_notices(evaluation)), body, provenance)


def _study(evaluation: DeviceEvaluation) -> dict[str, Any]:
    """Return what the template shows of an evaluation of one study."""
    (result,) = evaluation.studies
    return {
        "result": result,
        "methods": summary_table([evaluation], variants=False),
        "variants": summary_table([evaluation], variants=True),
        "points": point_table([evaluation], used=True),
        "parameters": result.calibrations[result.model].fit.parameter_table(),
        "figure": study_figure(evaluation.device, result),
    }


def _notices(evaluation: DeviceEvaluation) -> Iterator[tuple[str, str]]:
    points = [point for result in evaluation.studies for point in result.points]
    if not points:
        yield "problem", "no study has measured times"
    for result in evaluation.studies:
        if result.beats_baselines(result.model, result.chosen_with) is False:
            yield "warning", f"{result.study.name}: {result.judgement}"
    # As far as kernels of a device repeat, drift means nothing.
    floors = [result.noise_floor for result in evaluation.studies if not math.isnan(result.noise_floor)]
    drift = evaluation.drift or 0.0
    if abs(drift) > max(floors, default=0.0):
        text = f"changed by {100 * drift:+.1f} % from the calibration to the studies; this drift is part of every error"
        yield "warning", f"times of measurement kernels {text}"
    if disturbed := sum(point.disturbed for point in points):
        yield "warning", f"{disturbed} of {len(points)} measured times rest on samples that others disturbed"
    for label, reason in evaluation.skipped:
        yield "remark", f"skipped: {label}: {reason}"
