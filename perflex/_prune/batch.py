"""Measuring some of many variants: a batch drawn by chance, or those that were kept."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from perflex._gather import kernel_of
from perflex._warnings import PerflexWarning
from perflex.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex._calibration import Calibration
    from perflex._devices import Device
    from perflex._prune.candidates import Candidates
    from perflex._timing import Progress, TimingOptions
    from perflex._timing_backend import TimedDevice

__all__ = ["drawn", "timed"]


def drawn(candidates: Candidates, count: int, seed: int = 0) -> list[int]:
    """Return the numbers of variants drawn by chance, each as likely as any other."""
    order = np.random.default_rng(seed).permutation(len(candidates.names))
    return [int(number) for number in order[:count]]


def timed(
    candidates: Candidates,
    numbers: Sequence[int],
    calibration: Calibration,
    device: str | Device | TimedDevice | None = None,
    progress: Progress | None = None,
    timing: TimingOptions | None = None,
) -> dict[str, float]:
    """Time variants; return the seconds of each by name. Those that fail are left out with a warning.

    Parameters
    ----------
    candidates, numbers
        The variants, and which of them.
    calibration
        Whose model's output says on which device, if `device` does not.
    device, progress, timing
        As for `gather_feature_values`.

    Raises
    ------
    MeasurementError
        All fail.
    DeviceError
        There is no such device.
    """
    from perflex._devices import find_device
    from perflex._timing import MeasurementFailure, measure
    from perflex._wall_time import device_of

    if not numbers:
        return {}
    chosen = device_of(calibration.model.output_feature) if device is None else device
    found = find_device(chosen) if isinstance(chosen, str) else chosen
    jobs = [(kernel_of(candidates.kernel(n)), candidates.sizes(n), candidates.names[n]) for n in numbers]
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
