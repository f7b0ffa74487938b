"""What a report says of a calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.calibration.calibration_html import carried_facts, formula, times_notices
from perflex.calibration.diagnosis.diagnosis_html import (
    accuracy_table,
    correlations_table,
    finding_notices,
    generators_table,
    informants_table,
    kernels_table,
)
from perflex.calibration.diagnosis.judge import diagnose
from perflex.calibration.diagnosis.pictures import errors_figure, parameters_figure
from perflex.fit.fit_html import parameter_table
from perflex.html import Column, Html, element, facts, folded, joined, table
from perflex.reports.page import Part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.diagnosis.result import Diagnosis
    from perflex.progress import Progress
    from perflex.reports.pictures import Pictures

_LONGEST_FORMULA = 1000


def calibration_part(
    calibration: Calibration, path: Path, pictures: Pictures, progress: Progress | None = None
) -> Part:
    """Return what a report says of a calibration: its diagnosis, with pictures and all kernels.

    Raises
    ------
    CalibrationError
        As `diagnose`.
    """
    diagnosis = diagnose(calibration, progress=progress)
    return Part(
        f"Calibration of {calibration.device.get('name') or 'an unknown device'}",
        [*finding_notices(diagnosis, "problem"), *times_notices(calibration), *finding_notices(diagnosis, "warning")],
        joined(
            _summary(calibration, diagnosis),
            accuracy_table(diagnosis),
            element(
                "p",
                '"One time for all" is the trivial baseline that has seen the same timings: the geometric mean of the '
                "measured times of the kernels that the model was fitted to. The kernels are not variants of one "
                "computation, so that there is no best one to choose, and no loss.",
            ),
            pictures.show(
                errors_figure(diagnosis),
                "Predicted over measured time of each measurement kernel, by generator; the numbers stand in the table "
                "of measurement kernels",
            ),
            parameter_table(calibration.fit),
            pictures.show(
                parameters_figure(diagnosis),
                "95 % confidence interval of each parameter, in multiples of its value",
            ),
            informants_table(diagnosis),
            correlations_table(diagnosis),
            generators_table(diagnosis),
            folded(f"All {len(diagnosis.kernels)} measurement kernels", kernels_table(diagnosis)),
            _left_out(calibration),
            finding_notices(diagnosis, "remark"),
        ),
        calibration_provenance(calibration, str(path)),
    )


def _summary(calibration: Calibration, diagnosis: Diagnosis) -> Html:
    floor = calibration.noise_floor
    more = None if floor is None else f"{100 * floor:.2g} % (smaller errors are not significant)"
    lines = facts(
        {
            "model": _formula(calibration),
            "measurement kernels": len(calibration.fit.kernels),
            "more kernels than parameters": diagnosis.degrees_of_freedom,
            "condition number": f"{diagnosis.condition_number:.3g}",
            "noise floor": more,
            "learned": None if calibration.learned is None else str(calibration.learned),
        }
    )
    carried = None if calibration.transferred is None else carried_facts(calibration.transferred)
    return joined(element("h3", "Summary"), lines, carried)


def _formula(calibration: Calibration) -> Html:
    """Return the model's text; that of a general model, a page of dozens of costs, after a click."""
    text = formula(calibration)
    if len(text) <= _LONGEST_FORMULA:
        return element("code", text)
    return folded(
        f"{calibration.model.output_feature}, {len(calibration.fit.parameters)} parameters", element("code", text)
    )


def _left_out(calibration: Calibration) -> Html | None:
    if not calibration.dropped:
        return None
    rows = table([Column("kernel"), Column("reason")], calibration.dropped)
    return folded(f"{len(calibration.dropped)} kernels that were left out", rows)


def calibration_provenance(calibration: Calibration, path: str) -> Html:
    """Return where a calibration's numbers come from: device, driver, software, date and options."""
    cpu = None if calibration.cpu is None else "as the operating system reports it"
    return joined(
        facts(
            {
                "file": path,
                "made on": calibration.date,
                **{f"device: {_words(key)}": str(value) for key, value in calibration.device.items()},
                "machine": calibration.machine or cpu,
                "sub-group size": calibration.sub_group_size,
                "versions": ", ".join(f"{name} {number}" for name, number in calibration.versions.items()),
            }
        ),
        folded("How kernels were timed", facts(_options(calibration.options))) if calibration.options else None,
    )


def _options(options: Mapping[str, Any]) -> dict[str, str]:
    return {_words(key): str(value) for key, value in options.items() if value is not None}


def _words(name: str) -> str:
    return str(name).replace("_", " ")
