"""What a page says of a calibration's predictions of what it has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.html import render
from perflex.reports.page import Part, calibrated_by

if TYPE_CHECKING:
    from perflex.calibration.calibration import Calibration
    from perflex.studies.judged import Judgement


def judgement_part(calibration: Calibration, judged: Judgement) -> Part:
    """Return what a page says of a judgement: the conclusion, accuracy beside baselines, programs and rows."""
    notices = [("warning", text) for text in judged.doubts]
    body = render("judgement_report.html", it=judged)
    times = {"times of": judged.predictions[0].measured_on}
    return Part("Predictions of what the calibration has not seen", notices, body, times | calibrated_by(calibration))
