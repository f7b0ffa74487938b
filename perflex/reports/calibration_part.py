"""What a page says of a calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.calibration.acceptance import times_warnings
from perflex.calibration.diagnosis.pictures import errors_figure, parameters_figure
from perflex.html import render
from perflex.reports.page import Part, calibrated_by
from perflex.tables import Table, text

if TYPE_CHECKING:
    from perflex.calibration.diagnosis.result import Diagnosis
    from perflex.calibration.record import CalibrationRecord


def calibration_part(calibration: CalibrationRecord, diagnosis: Diagnosis) -> Part:
    """Return what a page says of a calibration: its diagnosis, with pictures and all kernels."""
    found: dict[str, list[tuple[str, str]]] = {"problem": [], "warning": [], "remark": []}
    for severity, what in diagnosis.notices():
        found[severity].append((severity, what))
    body = render(
        "calibration_report.html",
        it=calibration,
        diagnosis=diagnosis,
        dropped=Table("", [text("kernel"), text("reason")], calibration.dropped),
        options={name.replace("_", " "): value for name, value in calibration.options.items()},
        remarks=found["remark"],
        errors_figure=errors_figure(diagnosis),
        parameters_figure=parameters_figure(diagnosis),
    )
    warned = [("warning", what) for what in times_warnings(calibration)]
    title = f"Calibration of {calibration.device.get('name') or 'an unknown device'}"
    return Part(title, [*found["problem"], *warned, *found["warning"]], body, calibrated_by(calibration))
