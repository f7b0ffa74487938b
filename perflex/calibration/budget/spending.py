"""Device time: what timing a kernel will take, and what it has taken."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.timing.options import TimingOptions
    from perflex.timing.results import Timing

    Array = NDArray[np.float64]

# Timings of one kernel at a time: further kernels tell more than further timings, up to a point that the design finds.
_AT_A_TIME = 3
# Launches that are not timed when a kernel is started.
_FIRST = 2
# A launch counts for as long at least: shorter ones are repeated within a timing, and starting them costs as well.
_LEAST_S = 5e-5


def one_block(timing: TimingOptions, seconds_left: float, number: int) -> TimingOptions:
    """Return options for the fewest trials of each kernel, none of which may cost more than is left."""
    # The seed shuffles the order of timings: each batch gets another order.
    few = min(timing.min_trials, _AT_A_TIME)
    block = replace(timing, trials=few, min_trials=few, seed=timing.seed + number)
    # No launch may take longer than lets all of a kernel's timings fit.
    return replace(block, limit_s=min(timing.limit_s, seconds_left / _launches(block)))


def expected_device_time(launch_s: Array, timing: TimingOptions, sample_s: float = 0.0) -> Array:
    """Return the device time of timing kernels in seconds, from that of one launch; shape ``(m,)`` both.

    A sample takes `sample_s` seconds at least (`perflex.timing.rounds.shortest_sample_s`).
    """
    launch = np.maximum(launch_s, _LEAST_S)
    expected: Array = launch * (_FIRST + timing.trials * timing.warmups) + timing.trials * np.maximum(launch, sample_s)
    return expected


def ordinary_device_time(launch_s: Array, timing: TimingOptions, sample_s: float = 0.0) -> Array:
    """Return the device time in seconds where there is no budget for all; arguments as `expected_device_time`.

    Each gets its trials unless its own budget ends them; that its time may be known earlier is not relied on.
    """
    launch = np.maximum(launch_s, _LEAST_S)
    each = launch * timing.warmups + np.maximum(launch, sample_s)
    trials = np.clip(np.floor(timing.budget_s / each), timing.min_trials, timing.trials)
    expected: Array = _FIRST * launch + trials * each
    return expected


def _launches(timing: TimingOptions) -> int:
    return _FIRST + timing.trials * (1 + timing.warmups)


def device_time(outcome: Timing | MeasurementFailure, timing: TimingOptions) -> float:
    """Return the device time that a measurement has taken in seconds, warm-ups and first launches included.

    Only timed launches are known exactly; each warm-up is taken to last as long as the timing that follows it, and
    the launches that start a kernel as long as its time. Of a kernel that was given up as too slow or that did not
    end, the limit counts.
    """
    if isinstance(outcome, MeasurementFailure):
        return timing.limit_s if outcome.kind in {"limit", "hang"} else 0.0
    return math.fsum(outcome.samples) * (outcome.launches + timing.warmups) + _FIRST * outcome.seconds
