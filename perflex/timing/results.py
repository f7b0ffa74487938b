"""What timing gives: a time or a failure per kernel, and whether the device's speed drifted meanwhile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perflex.errors import PerflexError

# What went wrong decides what is tried again: a hang or crash costs a process each time, other failures little.
FailureKind: TypeAlias = Literal["prepare", "run", "limit", "hang", "crash", "memory"]


@dataclass(frozen=True)
class Timing:
    """The measured time of one kernel.

    Attributes
    ----------
    label
        Which kernel and sizes.
    seconds
        Time of one launch: the chosen statistic of the samples without outliers, in seconds.
    spread
        Interquartile range of the samples without outliers, divided by their median.
    samples
        Every timing in seconds per launch, in the order taken, outliers included, without correction of drift.
    statistic
        ``"median"`` or ``"minimum"``.
    launches
        Launches averaged in one sample: 1 unless the kernel is too short for the device's timer.
    interval
        95 % bootstrap interval of `seconds`, in seconds.
    outliers
        How many samples were excluded.
    second_mode
        Whether so many samples lie above the others that they are a way the kernel runs and not strays; they are
        kept.
    precise
        Whether the interval is as narrow as was asked for.
    """

    label: str
    seconds: float
    spread: float
    samples: tuple[float, ...]
    statistic: str
    launches: int = 1
    interval: tuple[float, float] = (math.nan, math.nan)
    outliers: int = 0
    second_mode: bool = False
    precise: bool = False


@dataclass(frozen=True)
class MeasurementFailure:
    """A kernel that could not be timed.

    Attributes
    ----------
    label
        Which kernel and sizes.
    reason
        Cause in one line, the compiler's or driver's message included.
    kind
        ``"prepare"`` (code generation, build, limits, missing sizes), ``"run"``, ``"limit"`` (too slow), ``"hang"``
        (no end), ``"crash"`` (of the driver) or ``"memory"`` (the device has too little).
    error
        The error itself.
    """

    label: str
    reason: str
    kind: FailureKind
    error: PerflexError


@dataclass(frozen=True)
class Drift:
    """Whether the device became slower or faster while kernels were timed.

    Attributes
    ----------
    found
        Whether the reference kernels' times change from round to round in a way that noise does not.
    size
        Their longest time over their shortest, smoothed over rounds; 1 where too few rounds were needed to tell.
    corrected
        Whether all samples were divided by the reference kernels' relative time in their round. That is done
        where it narrows the other kernels' spread.
    rounds
        How many rounds the reference kernels took part in.
    references
        Labels of the reference kernels.
    held_out
        The other kernels' spread after the correction over that before, the median of them; not a number where
        nothing was tried.
    """

    found: bool = False
    size: float = 1.0
    corrected: bool = False
    rounds: int = 0
    references: tuple[str, ...] = ()
    held_out: float = math.nan


@dataclass(frozen=True)
class TimingSummary:
    """How timing many kernels went, all of them together.

    Attributes
    ----------
    drift_ratio
        The reference kernels' longest time over their shortest, smoothed over rounds; 1 where no drift was found.
    drift_corrected
        Whether the times are corrected for it.
    outliers_excluded
        How many samples of all kernels were excluded.
    kernels_precise
        How many kernels' times are known as precisely as was asked for.
    samples_resumed
        How many samples are of an earlier run that was cut short.
    affinity
        What decided on the processors of a CPU device's workers, or why nothing did (`Affinity.said`).
    """

    drift_ratio: float = 1.0
    drift_corrected: bool = False
    outliers_excluded: int = 0
    kernels_precise: int = 0
    samples_resumed: int = 0
    affinity: str = ""


class Measured(list["Timing | MeasurementFailure"]):
    """The outcomes of measuring, in the order of the kernels asked for.

    Parameters
    ----------
    outcomes
        One per kernel.
    drift
        Whether the device's speed drifted meanwhile.
    samples_resumed
        How many of the samples are of an earlier run that was cut short.
    affinity
        What decided on the processors of the device's workers, as `TimingSummary` says it.
    """

    def __init__(
        self,
        outcomes: Iterable[Timing | MeasurementFailure] = (),
        drift: Drift | None = None,
        samples_resumed: int = 0,
        affinity: str = "",
    ) -> None:
        super().__init__(outcomes)
        self.drift = drift or Drift()
        self.samples_resumed = samples_resumed
        self.affinity = affinity

    @property
    def timings(self) -> list[Timing]:
        """What was measured of the kernels that did not fail."""
        return [outcome for outcome in self if isinstance(outcome, Timing)]

    def summary(self) -> TimingSummary:
        """Return how measuring went, all kernels together."""
        timings = self.timings
        return TimingSummary(
            drift_ratio=self.drift.size if self.drift.found else 1.0,
            drift_corrected=self.drift.corrected,
            outliers_excluded=sum(timing.outliers for timing in timings),
            kernels_precise=sum(timing.precise for timing in timings),
            samples_resumed=self.samples_resumed,
            affinity=self.affinity,
        )
