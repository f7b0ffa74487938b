"""Measuring some of many variants: a batch drawn by chance, or those that were kept."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import MeasurementError, PerflexWarning
from perflex.features.sized_kernel import SizedKernel
from perflex.features.values import kernel_of
from perflex.search.spaces.candidates import sizes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.calibration.calibration import Calibration
    from perflex.progress import Progress
    from perflex.search.spaces.candidates import Candidates
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.options import TimingOptions


def random_batch(candidates: Candidates, count: int, seed: int = 0) -> list[int]:
    """Return the numbers of variants drawn by chance, each as likely as any other."""
    order = np.random.default_rng(seed).permutation(len(candidates))
    return [int(number) for number in order[:count]]


def measure_variants(
    candidates: Candidates,
    numbers: Sequence[int],
    calibration: Calibration,
    device: str | TimedDevice | None = None,
    progress: Progress | None = None,
    timing: TimingOptions | None = None,
) -> dict[str, float]:
    """Time variants; return the seconds of each by name. Those that fail are left out with a warning.

    Parameters
    ----------
    candidates, numbers
        The variants, and which of them.
    calibration
        On whose device, if `device` does not say.
    device, progress, timing
        As for `gather_feature_values`.

    Raises
    ------
    MeasurementError
        All fail.
    DeviceError
        There is no such device, or the calibration's is not here.
    """
    from perflex.calibration.its_device import device_of_calibration
    from perflex.timing.measuring import chosen_device, measure
    from perflex.timing.results import MeasurementFailure

    if not numbers:
        return {}
    output = calibration.model.output_feature
    found = device_of_calibration(output, calibration.device) if device is None else chosen_device(device)
    names = candidates.names
    jobs = [SizedKernel(kernel_of(candidates.kernel(n)), sizes_of(candidates, n), names[n]) for n in numbers]
    times: dict[str, float] = {}
    reason = ""
    for outcome in measure(jobs, found, timing, progress):
        if isinstance(outcome, MeasurementFailure):
            reason = outcome.reason
            warnings.warn(f"{reason}; the variant is left out", PerflexWarning, stacklevel=2)
        else:
            times[outcome.label] = outcome.seconds
    if not times:
        msg = f"none of the {len(numbers)} variants could be timed; the last: {reason}"
        raise MeasurementError(msg, device=str(found))
    return times
