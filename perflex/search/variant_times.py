"""Timing variants on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.device_match import timing_device
from perflex.errors import MeasurementError, warn
from perflex.features.sized_kernel import SizedKernel, kernel_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import Machine
    from perflex.progress import Progress
    from perflex.search.variants import Variants
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.options import TimingOptions


def random_batch(variants: Variants, count: int, seed: int = 0) -> list[int]:
    """Return the numbers of variants drawn by chance, each as likely as any other."""
    order = np.random.default_rng(seed).permutation(len(variants))
    return [int(number) for number in order[:count]]


def measure_variants(
    variants: Variants,
    numbers: Sequence[int],
    calibration: Calibration,
    device: str | TimedDevice | None = None,
    progress: Progress | None = None,
    timing: TimingOptions | None = None,
    *,
    machine: str | Path | Machine | None = None,
) -> dict[str, float]:
    """Time some of the variants on a device, by default as `timing_device` says; return the seconds of each by name.

    Those that fail are not in it, with a warning; it is a MeasurementError if all do.
    """
    from perflex.timing.measuring import measure
    from perflex.timing.results import MeasurementFailure

    if not numbers:
        return {}
    names = variants.names
    jobs = [SizedKernel(kernel_of(variants.kernel(n)), variants.sizes[n], names[n]) for n in numbers]
    found = timing_device(calibration, device, machine=machine, kernels=[job.kernel for job in jobs])
    times: dict[str, float] = {}
    reason = ""
    for outcome in measure(jobs, found, timing, progress):
        if isinstance(outcome, MeasurementFailure):
            reason = outcome.reason
            warn(f"{reason}; the variant is not timed")
        else:
            times[outcome.label] = outcome.seconds
    if not times:
        msg = f"none of the {len(numbers)} variants could be timed; the last: {reason}"
        raise MeasurementError(msg, device=str(found))
    return times
