"""Whether a device is still as fast as when it was calibrated: shared machines are not.

A calibration and the check of its predictions lie seconds to months apart. A device that has become slower
meanwhile shows as an error of every prediction, which no model can help. So some measurement kernels are timed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.features.values import feature_values
from perflex.timing.measuring import Timing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perflex.calibration.calibration import Calibration
    from perflex.timing.measuring import MeasurementFailure
    from uipick import MeasurementKernel

__all__ = ["drift", "reference_times"]


def reference_times(
    calibration: Calibration, kernels: Iterable[MeasurementKernel], count: int
) -> dict[MeasurementKernel, float]:
    """Return the kernels that took longest when the device was calibrated, and their times then in seconds.

    Parameters
    ----------
    calibration
        Made with the kernels.
    kernels
        Measurement kernels; those that were left out of the fit are passed over.
    count
        How many to return; long ones, for their times vary least.
    """
    errors = dict(zip(calibration.fit.kernels, calibration.fit.relative_errors, strict=True))
    model, features = calibration.model, calibration.model.input_features()
    target = calibration.target()
    times = {}
    for kernel in kernels:
        error = errors.get(kernel.name, -1.0)
        if error > -1:
            values = feature_values(features, kernel, kernel.sizes, target)
            # The fit keeps predicted/measured - 1 of each kernel, which gives the measured time back.
            times[kernel] = float(model.evaluate(calibration.params, values)) / (1 + error)
    longest = sorted(times, key=lambda kernel: -times[kernel])[:count]
    return {kernel: times[kernel] for kernel in longest}


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
    return float(np.median(ratios)) - 1 if ratios else None
