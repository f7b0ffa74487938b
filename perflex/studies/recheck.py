"""Whether a device is still as fast as when it was calibrated: shared machines are not.

A calibration and the check of its predictions lie seconds to months apart. A device that has become slower
meanwhile shows as an error of every prediction, which no model can help. So some measurement kernels are timed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.timing.results import Timing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.fit.table import FeatureTable
    from perflex.timing.results import MeasurementFailure
    from uipick import MeasurementKernel

# Enough for a median; each is timed as long as a kernel of the studies.
_REFERENCES = 8


def reference_times(
    table: FeatureTable, kernels: Mapping[str, MeasurementKernel], count: int = _REFERENCES
) -> dict[MeasurementKernel, float]:
    """Return the kernels that took longest when the device was calibrated, and their times then in seconds.

    Parameters
    ----------
    table
        What was measured for the calibration.
    kernels
        Measurement kernels by name; those that are not in the table are passed over.
    count
        How many to return; long ones, for their times vary least.
    """
    times = zip(table.kernels, map(float, table.column(str(table.output))), strict=True)
    known = {kernels[name]: seconds for name, seconds in times if name in kernels}
    # Short kernels vary by more than machines drift.
    longest = sorted(known, key=lambda kernel: -known[kernel])[:count]
    return {kernel: known[kernel] for kernel in longest}


def drift(before: Sequence[float], outcomes: Sequence[Timing | MeasurementFailure]) -> float | None:
    """Return how much longer kernels take now than before: the median ratio of their times, less 1.

    Parameters
    ----------
    before
        Times in seconds.
    outcomes
        Of the same kernels, timed now; failures are passed over.

    Returns
    -------
    float or None
        A fraction, e.g. 0.25 where they take 25 % longer; None where nothing could be timed.
    """
    ratios = [
        outcome.seconds / then
        for then, outcome in zip(before, outcomes, strict=True)
        if isinstance(outcome, Timing) and then > 0
    ]
    # The median: one kernel that was disturbed says nothing of the device.
    return float(np.median(ratios)) - 1 if ratios else None
