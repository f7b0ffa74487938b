"""Whether the times behind a calibration are good enough for it to be used: the rule and its limits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError, warn

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.record import CalibrationRecord
    from perflex.fit.table import FeatureTable

REPEATABILITY_LIMIT = 0.15
"""Fraction by which kernels' reported times may differ from one half of the samples to the other, the median, or the
device's speed from one time to another."""
DISTURBED_LIMIT = 0.5
"""Share of disturbed samples, or of kernels that rest on some, from which on times mean nothing."""
MANY_DISTURBED = 0.25
"""Share of them from which on there is something to say."""
_WHAT_TO_DO = "end other work or wait, 'perflex doctor' says what disturbs this machine"


def faults(calibration: CalibrationRecord) -> list[str]:
    """Return one line for each reason not to use a calibration, by its times; what is not known is none."""
    found = []
    limit = f"the limit is {100 * REPEATABILITY_LIMIT:.0f} %"
    repeatability = repeatability_of(calibration)
    if repeatability is not None and repeatability > REPEATABILITY_LIMIT:
        found.append(f"the measured times repeat only to {100 * repeatability:.1f} %, {limit}")
    if _disturbed_share(calibration) >= DISTURBED_LIMIT:
        found.append(f"{how_disturbed(calibration)}, the limit is {100 * DISTURBED_LIMIT:.0f} %")
    return found


def repeatability_of(calibration: CalibrationRecord) -> float | None:
    """Return by which fraction the reported times differ when they are taken again; None where it is not known."""
    known = median_repeatability(calibration.table)
    if known is not None:
        return known
    # Of all kernels that were measured together, where the rows of the fit do not say it.
    value = calibration.options.get("repeatability")
    return None if value is None or math.isnan(value) else float(value)


def median_repeatability(table: FeatureTable) -> float | None:
    """Return the median repeatability of a table's rows; None where less than half of them know theirs.

    Kernels that were disturbed most have most samples: where few are asked for, they alone would speak for all.
    """
    column = table.repeatability
    if column is None or 2 * np.isfinite(column).sum() < len(column) or not len(column):
        return None
    return float(np.nanmedian(column))


def doubts(calibration: CalibrationRecord) -> list[str]:
    """Return one line for each reason to doubt the times behind a calibration."""
    found = faults(calibration)
    if MANY_DISTURBED <= _disturbed_share(calibration) < DISTURBED_LIMIT:
        found.append(how_disturbed(calibration))
    return [f"{reason}; {_WHAT_TO_DO}" for reason in found]


def times_warnings(calibration: CalibrationRecord) -> list[str]:
    """Return reasons to doubt the times behind a calibration, and what all its predictions lack."""
    remarks = () if calibration.transferred is None else calibration.transferred.remarks
    return [*doubts(calibration), *remarks]


def _disturbance_of(calibration: CalibrationRecord) -> tuple[int, int, int]:
    """Return how many samples were disturbed, of how many, and how many kernels rest on such; 0 where not known."""
    names = ("disturbed_samples", "samples", "kernels_disturbed")
    disturbed, samples, kernels = (int(calibration.options.get(name) or 0) for name in names)
    return disturbed, samples, kernels


def _disturbed_share(calibration: CalibrationRecord) -> float:
    disturbed, samples, kernels = _disturbance_of(calibration)
    # Kernels of which no launch is undisturbed are long ones, and have few samples.
    return max(disturbed / samples, kernels / _kernels_timed(calibration)) if samples else 0.0


def how_disturbed(calibration: CalibrationRecord) -> str:
    """Return how many samples were disturbed, and whether they are used; nothing where none was, or none is known."""
    disturbed, samples, kernels = _disturbance_of(calibration)
    if not disturbed:
        return ""
    rest = "they are not used"
    if kernels:
        rest = f"used for {kernels} of {_kernels_timed(calibration)} kernels for lack of others"
    return (
        f"{disturbed} of {samples} samples ({100 * disturbed / samples:.0f} %) were disturbed "
        f"(by other work on the machine, or a lowered clock), {rest}"
    )


def _kernels_timed(calibration: CalibrationRecord) -> int:
    """Return how many kernels were timed together, at least one: more than were fitted where models share them."""
    known = calibration.options.get("kernels") or calibration.options.get("chosen_kernels")
    return int(known or max(len(calibration.fit.kernels), 1))


def warn_of_doubts(calibration: CalibrationRecord) -> None:
    """Give a `PerflexWarning` for each reason to doubt the times behind a calibration."""
    for text in doubts(calibration):
        warn(text)


def require_acceptable(calibration: CalibrationRecord, what: str = "the calibration") -> None:
    """Refuse a calibration that is not to be used; `what` is what is then not written."""
    if faults(calibration):
        raise CalibrationError(refusal(calibration, what))


def save_if_acceptable(calibration: Calibration, path: Path, *, accept_noise: bool = False) -> bool:
    """Write a calibration that is one of several results, unless it has `faults`; return whether it did.

    Where it is not, a `PerflexWarning` says so. A file of an earlier run stays, and the warning names it.
    """
    if accept_noise or not faults(calibration):
        calibration.save(path)
        return True
    there = "; the file that is there is of an earlier run" if path.exists() else ""
    warn(f"{refusal(calibration, str(path))}{there}")
    return False


def refusal(calibration: CalibrationRecord, what: str) -> str:
    """Return why a calibration is not written, and what to do, in one line."""
    reasons = "; ".join(faults(calibration))
    return f"{what} is not written: {reasons}; {_WHAT_TO_DO}; --accept-noise writes it all the same"
