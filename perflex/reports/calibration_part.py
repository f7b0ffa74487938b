"""What a report says of a calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.calibration.acceptance import times_warnings
from perflex.calibration.calibration import Calibration
from perflex.calibration.diagnosis.judge import diagnose
from perflex.calibration.diagnosis.pictures import errors_figure, parameters_figure
from perflex.calibration.diagnosis.result import error_cases, worst_first
from perflex.fit.result import error_rows
from perflex.html import render
from perflex.reports.part import Part

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.progress import Progress
    from perflex.reports.part import Picture


def calibration_part(path: Path, picture: Picture, progress: Progress | None = None) -> Part:
    """Return what a report says of a calibration in a file: its diagnosis, with pictures and all kernels.

    Raises
    ------
    FileFormatError, CalibrationError
        As `Calibration.load` and `diagnose`.
    """
    calibration = Calibration.load(path)
    diagnosis = diagnose(calibration, progress=progress)
    found = {
        severity: [(severity, one.text) for one in diagnosis.findings if one.severity == severity]
        for severity in ("problem", "warning", "remark")
    }
    body = render(
        "calibration_report.html",
        it=calibration,
        diagnosis=diagnosis,
        errors=error_rows(error_cases(diagnosis)),
        kernels=worst_first(diagnosis),
        remarks=found["remark"],
        picture=picture,
        errors_figure=errors_figure(diagnosis),
        parameters_figure=parameters_figure(diagnosis),
    )
    return Part(
        f"Calibration of {calibration.device.get('name') or 'an unknown device'}",
        [*found["problem"], *(("warning", text) for text in times_warnings(calibration)), *found["warning"]],
        body,
        _provenance(calibration, path),
    )


def _provenance(calibration: Calibration, path: Path) -> list[tuple[str, dict[str, object]]]:
    made: dict[str, object] = {
        "file": str(path),
        "made on": calibration.date,
        **{f"device: {key.replace('_', ' ')}": str(value) for key, value in calibration.device.items()},
        "machine": calibration.machine or (None if calibration.cpu is None else "as the operating system reports it"),
        "sub-group size": calibration.sub_group_size,
        "versions": ", ".join(f"{name} {number}" for name, number in calibration.versions.items()),
    }
    options: dict[str, object] = {
        key.replace("_", " "): str(value) for key, value in calibration.options.items() if value is not None
    }
    return [("", made), *([("How kernels were timed", options)] if options else [])]
