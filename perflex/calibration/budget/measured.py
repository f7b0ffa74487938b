"""The pool of measurement kernels in the course of being measured."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.budget.spending import device_time
from perflex.errors import PerflexWarning
from perflex.fit.table import FeatureInfo
from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.sized_kernel import SizedKernel
    from perflex.fit.table import FeatureTable
    from perflex.progress import Progress
    from perflex.store.resume import RecordOnly
    from perflex.timing.options import TimingOptions
    from perflex.timing.results import Timing

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

    def __post_init__(self) -> None:
        self.seconds = np.full(len(self.jobs), np.nan)
        self.spread = np.full(len(self.jobs), np.nan)
        self.trials = np.zeros(len(self.jobs))

    @property
    def done(self) -> list[int]:
        """Numbers of the rows that have been measured."""
        return [int(index) for index in np.flatnonzero(self.trials)]

    def measure(self, rows: Sequence[int], timing: TimingOptions, progress: Progress | None) -> None:
        """Time kernels, once more where they have been timed before, and keep what comes out."""
        outcomes = measure([self.jobs[row] for row in rows], self.device, timing, progress, self.recorder)
        self.affinity = outcomes.affinity
        for row, outcome in zip(rows, outcomes, strict=True):
            self.spent_s += device_time(outcome, timing)
            if isinstance(outcome, MeasurementFailure):
                # What was measured before the failure stays.
                reason = outcome.reason.removeprefix(f"{outcome.label}: ")
                self.failed[row] = reason
                warnings.warn(f"{outcome.label} is left out: {reason}", PerflexWarning, stacklevel=2)
            else:
                self._keep(row, outcome)

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
