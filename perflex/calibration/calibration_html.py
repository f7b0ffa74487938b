"""A calibration, and what it holds of other devices, in HTML, for notebooks and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.calibration.acceptance import doubts
from perflex.fit.fit_html import fit_body
from perflex.html import Html, element, facts, joined, notebook, notice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.calibration.carried_over import CarriedOver
    from perflex.calibration.record import CalibrationRecord


def calibration_html(calibration: CalibrationRecord) -> str:
    """Return a calibration for a notebook: device, model, notices, parameters, errors."""
    device = calibration.device
    named = [str(device[key]) for key in ("name", "platform", "driver") if device.get(key)]
    floor = calibration.noise_floor
    return notebook(
        element(
            "p", element("strong", "Calibration"), f" on {', '.join(named) or 'an unknown device'}; ", calibration.date
        ),
        times_notices(calibration),
        element("p", element("code", formula(calibration))),
        fit_body(calibration.fit),
        notice("remark", f"{len(calibration.dropped)} measurement kernels were left out")
        if calibration.dropped
        else None,
        None if floor is None else element("p", f"noise floor {100 * floor:.2g} %: smaller errors are not significant"),
        None if calibration.learned is None else element("p", str(calibration.learned)),
        None if calibration.transferred is None else carried_facts(calibration.transferred),
    )


def formula(calibration: CalibrationRecord) -> str:
    """Return output and expression of the model in one line."""
    return f"{calibration.model.output_feature} = {' '.join(calibration.model.expression.split())}"


def times_notices(calibration: CalibrationRecord) -> Iterator[Html]:
    """Yield warnings: reasons to doubt the times behind a calibration, and what all its predictions lack."""
    remarks = () if calibration.transferred is None else calibration.transferred.remarks
    for text in (*doubts(calibration), *remarks):
        yield notice("warning", text)


def carried_facts(carried: CarriedOver) -> Html:
    """Return what is carried over from other devices, in two columns."""
    conflict = None if carried.conflict is None else f"{carried.conflict:.2g}"
    return facts(
        {
            "transferred from": ", ".join(carried.sources),
            "samples of this device": carried.samples,
            "kernels timed elsewhere": len(carried.kernels),
            "programs timed elsewhere": len(carried.programs),
            "weight of the model": f"{carried.weight:.3g}",
            "probability of the samples, were the device like the sources": conflict,
        }
    )


def carried_html(carried: CarriedOver) -> str:
    """Return what is carried over from other devices, for a notebook."""
    return notebook(joined(notice("warning", text) for text in carried.remarks), carried_facts(carried))
