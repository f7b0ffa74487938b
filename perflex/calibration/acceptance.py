"""Whether the times behind a calibration repeat well enough for it to be used: the rule and its limit."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError, PerflexWarning

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.record import CalibrationRecord
    from perflex.fit.table import FeatureTable

REPEATABILITY_LIMIT = 0.15
"""Fraction by which kernels' reported times may differ from one half of the samples to the other, the median."""
MANY_DISTURBED = 0.25
"""Share of disturbed samples, or of kernels that rest on some, from which on there is something to say."""
_WHAT_TO_DO = "'perflex doctor' says what disturbs this machine"


def is_repeatable(calibration: CalibrationRecord) -> bool:
    """Return whether the times repeat to within `REPEATABILITY_LIMIT`; where it is not known, they are taken to."""
    known = repeatability_of(calibration)
    return known is None or known <= REPEATABILITY_LIMIT


def repeatability_of(calibration: CalibrationRecord) -> float | None:
    """Return by which fraction the reported times differ when they are taken again; None where it is not known."""
    known = None if calibration.table is None else median_repeatability(calibration.table)
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
    found = []
    if not is_repeatable(calibration):
        found.append(f"{_how_bad(calibration)}; {_WHAT_TO_DO}")
    disturbed, samples, kernels = (
        calibration.options.get(name) or 0 for name in ("disturbed_samples", "samples", "kernels_disturbed")
    )
    # Kernels of which no launch is undisturbed are long ones, and have few samples.
    if samples and (disturbed >= MANY_DISTURBED * samples or kernels >= MANY_DISTURBED * kernels_timed(calibration)):
        rest = f"used for {kernels} of the kernels for lack of others" if kernels else "they are not used"
        found.append(
            f"{disturbed} of {samples} samples were disturbed (by other work on the machine, or a lowered clock), "
            f"{rest}; {_WHAT_TO_DO}"
        )
    return found


def kernels_timed(calibration: CalibrationRecord) -> int:
    """Return how many kernels were timed together, at least one: more than were fitted where models share them."""
    known = calibration.options.get("kernels") or calibration.options.get("chosen_kernels")
    return int(known or max(len(calibration.fit.kernels), 1))


def warn_of_doubts(calibration: CalibrationRecord) -> None:
    """Give a `PerflexWarning` for each reason to doubt the times behind a calibration."""
    for text in doubts(calibration):
        warnings.warn(text, PerflexWarning, stacklevel=3)


def require_repeatable(calibration: CalibrationRecord, what: str = "the calibration") -> None:
    """Refuse a calibration whose times do not repeat; `what` is what is then not written.

    Raises
    ------
    CalibrationError
        They repeat to worse than `REPEATABILITY_LIMIT`.
    """
    if not is_repeatable(calibration):
        raise CalibrationError(refusal(calibration, what))


def save_if_repeatable(calibration: Calibration, path: Path, *, accept_noise: bool = False) -> bool:
    """Write a calibration that is one of several results, unless its times do not repeat; return whether it did.

    Where it is not, a `PerflexWarning` says so. A file of an earlier run stays, and the warning names it.

    Parameters
    ----------
    calibration
        The calibration.
    path
        Its file.
    accept_noise
        Whether to write it in any case.

    Raises
    ------
    FileFormatError
        The file cannot be written.
    """
    if accept_noise or is_repeatable(calibration):
        calibration.save(path)
        return True
    there = "; the file that is there is of an earlier run" if path.exists() else ""
    warnings.warn(f"{refusal(calibration, str(path))}{there}", PerflexWarning, stacklevel=2)
    return False


def refusal(calibration: CalibrationRecord, what: str) -> str:
    """Return why a calibration is not written, and what to do, in one line."""
    return f"{what} is not written: {_how_bad(calibration)}; {_WHAT_TO_DO}; --accept-noise writes it all the same"


def _how_bad(calibration: CalibrationRecord) -> str:
    value, limit = repeatability_of(calibration) or 0.0, 100 * REPEATABILITY_LIMIT
    return f"the measured times repeat only to {100 * value:.1f} %, the limit is {limit:.0f} %"
