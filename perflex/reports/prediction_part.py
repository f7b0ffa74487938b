"""What a page says of a kernel's predicted times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.calibration.prediction import doubt_lines, prediction_table
from perflex.html import render
from perflex.reports.page import Part, calibrated_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.analysis.source_lines import SourceLines
    from perflex.calibration.prediction import Prediction


def prediction_part(predictions: Sequence[Prediction], lines: Sequence[SourceLines] = ()) -> Part:
    """Return what a page says of predictions of a kernel: times, what they are made of, and lines of the source."""
    first = predictions[0]
    body = render(
        "prediction_report.html", times=prediction_table(predictions), predictions=predictions, lines=list(lines)
    )
    where = first.calibration.device.get("name") or "an unknown device"
    notices = [("warning", line) for line in doubt_lines(predictions)]
    return Part(f"Predicted times of {first.kernel} on {where}", notices, body, calibrated_by(first.calibration))
