"""The pool of measurement kernels in the course of being measured."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.budget.spending import device_time
from perflex.devices.device import Device
from perflex.errors import PerflexWarning
from perflex.fit.table import FeatureInfo
from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from perflex.features.sized_kernel import SizedKernel
    from perflex.fit.table import FeatureTable
    from perflex.progress import Progress
    from perflex.store.resume import RecordOnly
    from perflex.timing.options import TimingOptions
    from perflex.timing.results import Measured, Timing


def clock_of(device: Any) -> Callable[[], float]:
    """Return the clock that says how long work for a device takes, in seconds.

    For a `Device` that is the host's. A device of the user's own may simulate, and the host's time then says nothing:
    its clock is its method `clock` if it has one, and else stands still.
    """
    clock: Callable[[], float] = getattr(device, "clock", _stopped)
    return time.perf_counter if isinstance(device, Device) else clock


def _stopped() -> float:
    return 0.0


@dataclass
class _Watch:
    """Tells from reports of progress when kernels began to be built, and when timing began."""

    clock: Callable[[], float]
    kernels: int
    report: Progress | None
    building: float | None = None
    timing: float | None = None

    def __call__(self, done: int, total: int, what: str) -> None:
        if self.building is None:
            self.building = self.clock()
        # The first half of the steps are kernels that are started.
        if self.timing is None and done >= self.kernels:
            self.timing = self.clock()
        if self.report is not None:
            self.report(done, total, what)


# Of a normal distribution: a median's standard error is 1.2533 deviations over the square root of the number of
# samples, and the interquartile range 1.349 deviations; the median difference of two such medians without its sign is
# 0.6745 times the square root of 2 standard errors.
_REPEATS = 1.2533 / 1.349 * 0.6745 * 2**0.5


@dataclass
class KernelPool:
    """Kernels with their counted features, and what has been measured of them.

    Attributes
    ----------
    counted
        A row per kernel that can be counted.
    jobs
        The kernel of each row, with its sizes.
    device
        Where they are timed.
    recorder
        What keeps the samples.
    seconds, spread, trials
        Per row: time of one launch in s, relative interquartile range, and number of timings; nan, nan and 0
        for a row that has not been measured. Shape ``(m,)`` each.
    failed
        Reason by row number.
    spent_s
        Device time so far.
    samples, disturbed_samples
        How many were taken of all kernels, and how many of them were disturbed.
    rest_on_disturbed
        Rows whose times rest on disturbed samples.
    affinity
        What decided on the processors of the device's workers, as `TimingSummary` says it.
    clock, executor
        The host's time in seconds; and where code is generated, None for here.
    waited_s
        Time beyond `spent_s` that rounds of timings took, in seconds.
    opening_s, building_s, timing_s, built
        The host's time in seconds until kernels could be built, for building, and for timing; and how many were built,
        some more than once.
    """

    counted: FeatureTable
    jobs: Sequence[SizedKernel]
    device: Any
    recorder: RecordOnly | None = None
    failed: dict[int, str] = field(default_factory=dict)
    spent_s: float = 0.0
    samples: int = 0
    disturbed_samples: int = 0
    rest_on_disturbed: set[int] = field(default_factory=set)
    affinity: str = ""
    clock: Callable[[], float] = _stopped
    executor: Executor | None = None
    waited_s: float = 0.0
    opening_s: float = 0.0
    building_s: float = 0.0
    timing_s: float = 0.0
    built: int = 0

    def __post_init__(self) -> None:
        self.seconds = np.full(len(self.jobs), np.nan)
        self.spread = np.full(len(self.jobs), np.nan)
        self.trials = np.zeros(len(self.jobs))

    @property
    def done(self) -> list[int]:
        """Numbers of the rows that have been measured."""
        return [int(index) for index in np.flatnonzero(self.trials)]

    @property
    def pace(self) -> float:
        """How long timing takes, in terms of its device time."""
        return 1.0 + self.waited_s / self.spent_s if self.spent_s > 0 else 1.0

    def timed(self, rows: Sequence[int], timing: TimingOptions, progress: Progress | None) -> Measured:
        """Time kernels and count what that takes; nothing else is kept."""
        watch = _Watch(self.clock, len(rows), progress)
        began, before = self.clock(), self.spent_s
        jobs = [self.jobs[row] for row in rows]
        outcomes = measure(jobs, self.device, timing, watch, self.recorder, self.executor)
        ended = self.clock()
        self.affinity = outcomes.affinity
        self.spent_s += math.fsum(device_time(outcome, timing) for outcome in outcomes)
        building = began if watch.building is None else watch.building
        rounds = ended if watch.timing is None else watch.timing
        self.opening_s += building - began
        self.building_s += rounds - building
        self.built += len(rows)
        self.timing_s += ended - rounds
        # Starting launches takes time, too, and so does whoever else is at work.
        self.waited_s += max(0.0, ended - rounds - (self.spent_s - before))
        return outcomes

    def measure(self, rows: Sequence[int], timing: TimingOptions, progress: Progress | None) -> bool:
        """Time kernels, once more where they have been timed before; return whether none was given up as too slow."""
        fast = True
        for row, outcome in zip(rows, self.timed(rows, timing, progress), strict=True):
            if isinstance(outcome, MeasurementFailure):
                # What was measured before the failure stays.
                reason = outcome.reason.removeprefix(f"{outcome.label}: ")
                self.failed[row] = reason
                fast = fast and outcome.kind not in {"limit", "hang"}
                warnings.warn(f"{outcome.label} is left out: {reason}", PerflexWarning, stacklevel=2)
            else:
                self._keep(row, outcome)
        return fast

    def _keep(self, row: int, timing: Timing) -> None:
        before = self.trials[row]
        self.samples += len(timing.samples)
        self.disturbed_samples += timing.disturbed_samples
        self.rest_on_disturbed |= {row} if timing.disturbed else set()
        # Disturbed samples tell nothing, unless there are no others.
        now = len(timing.samples) - (0 if timing.disturbed else timing.disturbed_samples)
        if not before:
            self.seconds[row], self.spread[row] = timing.seconds, timing.spread
        else:
            # Samples of earlier batches are gone by now; their median and the new one are weighted by number.
            merged = (before * self.seconds[row] + now * timing.seconds) / (before + now)
            # The minimum of all samples needs only the two minima; a median cannot be had from two medians.
            minimum = timing.statistic == "minimum"
            self.seconds[row] = min(self.seconds[row], timing.seconds) if minimum else merged
            # One timing has no spread.
            widths, counts = np.array([self.spread[row], timing.spread]), np.array([before, now])
            known = np.isfinite(widths)
            self.spread[row] = np.average(widths[known], weights=counts[known]) if known.any() else np.nan
        self.trials[row] = before + now

    def table(self, output: str) -> FeatureTable:
        """Return the measured rows as a table to fit a model to; see `gather_feature_values`."""
        rows = self.done
        chosen = self.counted.take(rows)
        labels = self.counted.kernels
        never = [(labels[row], reason) for row, reason in self.failed.items() if not self.trials[row]]
        return replace(
            chosen,
            output=output,
            features=(output, *chosen.features),
            values=np.column_stack([self.seconds[rows], chosen.values]),
            spread=self.spread[rows],
            repeatability=_REPEATS * self.spread[rows] / np.sqrt(self.trials[rows]),
            info={**chosen.info, output: FeatureInfo("s")},
            device=str(self.device),
            dropped=(*self.counted.dropped, *never),
        )
