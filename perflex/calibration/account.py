"""What there is to say of a calibration that was just made: its fit, its budget, its times, what it left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.calibration.acceptance import how_disturbed, median_repeatability
from perflex.fit.result import describe_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.calibration.record import CalibrationRecord
    from perflex.calibration.transfer_prior import TransferPrior


def account(calibration: CalibrationRecord) -> Iterator[str]:
    """Yield lines on how a calibration was made; of a transferred one, on what."""
    if calibration.transferred is not None:
        yield from _of_others(calibration.transferred)
        return
    fit, timed, disturbed = calibration.fit, calibration.timing, how_disturbed(calibration)
    overall = f"relative error in the fit: {describe_errors(fit.relative_errors)}"
    yield f"{len(fit.kernels)} measurement kernels, {overall}; residual {fit.residual_norm:.3g}"
    if fit.no_overlap:
        yield f"no overlap was found: all costs are added ({', '.join(fit.no_overlap)} = 0)"
    if calibration.options.get("device_time_budget_s") is not None:
        yield _spending(calibration)
    if timed is not None:
        if timed.samples_resumed:
            yield f"{timed.samples_resumed} samples are from a run of this calibration that was cut short"
        precision = 100 * calibration.options["precision"]
        yield f"median known to {precision:g} % for {timed.kernels_precise} of {len(fit.kernels)} kernels"
    if disturbed:
        yield disturbed
    yield from noise_floor_lines(calibration)
    for label, reason in calibration.dropped:
        yield f"left out: {label}: {reason}"


def noise_floor_lines(calibration: CalibrationRecord) -> list[str]:
    """Return the line that tells the noise floor and what it is; none where it is not known."""
    if calibration.noise_floor is None:
        return []
    meaning = "by how much a kernel's time differs between measurements"
    if median_repeatability(calibration.table) is None:
        meaning = "median spread of single timings; there are too few to know the repeatability"
    return [f"noise floor: {100 * calibration.noise_floor:.1f} % ({meaning})"]


def _spending(calibration: CalibrationRecord) -> str:
    """Return how a budget was spent."""
    facts = calibration.options
    budget = f"{facts['device_time_budget_s']:.3g} s"
    spent = f"{facts['device_time_spent_s']:.3g} s of device time spent"
    if facts["choice"] == "everything":
        return (
            f"everything fits into the budget of {budget}: {facts['pool_kernels']} kernels timed in the ordinary way "
            f"(estimated {facts['everything_estimate_s']:.3g} s with building; {spent})"
        )
    return (
        f"chosen: {facts['chosen_kernels']} of {facts['pool_kernels']} kernels, in {facts['batches']} batches; "
        f"{spent} of {budget}; {facts['ended']}"
    )


def _of_others(carried: TransferPrior) -> Iterator[str]:
    yield f"transferred from {len(carried.sources)} devices: {', '.join(carried.sources)}"
    timed = f"{len(carried.kernels)} kernels of {len(carried.programs)} programs have been timed on them"
    yield f"{carried.samples} samples of this device; {timed}"
    if carried.weight < 1 and any(term.log_time is not None for term in carried.kernels.values()):
        share = f"{100 * (1 - carried.weight):.0f} %"
        yield f"for kernels timed there, {share} of the prediction is that time, scaled by one factor per device"
