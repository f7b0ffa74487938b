"""What timing gives: a time or a failure per kernel, and how measuring went."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perflex.errors import PerflexError

# What went wrong decides what is tried again: a hang or crash costs a process each time, other failures little.
FailureKind: TypeAlias = Literal["prepare", "run", "limit", "hang", "crash", "memory", "wrong result"]


@dataclass(frozen=True)
class Timing:
    """The measured time of one kernel.

    Attributes
    ----------
    label
        Which kernel and sizes.
    seconds
        Time of one launch: the median of the samples that are used, in seconds.
    spread
        Interquartile range of the samples that are used, without outliers, divided by their median; nan for one sample.
    samples
        Every timing in seconds per launch, in the order taken, outliers and disturbed ones included.
    launches
        Launches averaged in one sample (the middle half of them): on CPUs as many as take 1 ms, 200 at most; elsewhere
        1 unless the kernel is too short for the device's timer, 1000 at most.
    interval
        Confidence interval of `seconds`, in seconds; nan where there are too few samples for one. It holds the true
        value for at least 95 % of the kernels though timing ends when it is narrow (`perflex.timing.statistics`), if
        their samples are undisturbed and independent.
    outliers
        How many samples lie so far above the others that they are accidents. They hardly move the median.
    precise
        Whether the interval is as narrow as was asked for.
    repeatability
        By which fraction `seconds` is expected to differ from one such measurement to the next; nan where fewer than 4
        samples are used.
    disturbed_samples
        How many samples others disturbed, by what the system reports (`perflex.timing.disturbance`).
    disturbed
        Whether disturbed samples are used all the same, less what they lacked, since too few others could be had.
    clock_hz
        The lowest and the highest clock rate of a GPU at the samples; nan where the driver does not tell.
    other_processes
        How many processes beside the measuring one had the GPU open, at most; 0 where the driver does not tell.
    """

    label: str
    seconds: float
    spread: float
    samples: tuple[float, ...]
    launches: int = 1
    interval: tuple[float, float] = (math.nan, math.nan)
    outliers: int = 0
    precise: bool = False
    repeatability: float = math.nan
    disturbed_samples: int = 0
    disturbed: bool = False
    clock_hz: tuple[float, float] = (math.nan, math.nan)
    other_processes: int = 0


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
        (no end), ``"crash"`` (of the driver), ``"memory"`` (the device has too little) or ``"wrong result"``.
    error
        The error itself.
    """

    label: str
    reason: str
    kind: FailureKind
    error: PerflexError


@dataclass(frozen=True)
class TimingSummary:
    """How timing many kernels went, all of them together.

    Attributes
    ----------
    outliers
        How many samples of all kernels are outliers.
    kernels_precise
        How many kernels' times are known as precisely as was asked for.
    samples_resumed
        How many samples are of an earlier run that was cut short.
    samples
        How many samples were taken, all kernels together; 0 where that was not counted, as by earlier versions.
    disturbed_samples
        How many of them were disturbed.
    kernels
        How many kernels were timed.
    kernels_disturbed
        How many kernels' times rest on disturbed samples.
    repeatability
        By which fraction a kernel's time is expected to differ from one such measurement to the next, the median over
        the kernels; None where less than half of them have samples enough.
    affinity
        What decided on the processors of a CPU device's workers, or why nothing did (`Affinity.description`).
    """

    outliers: int = 0
    kernels_precise: int = 0
    samples_resumed: int = 0
    samples: int = 0
    disturbed_samples: int = 0
    kernels: int = 0
    kernels_disturbed: int = 0
    repeatability: float | None = None
    affinity: str = ""


class Measured(list["Timing | MeasurementFailure"]):
    """The outcomes of measuring, in the order of the kernels asked for.

    Parameters
    ----------
    outcomes
        One per kernel.
    samples_resumed
        How many of the samples are of an earlier run that was cut short.
    affinity
        What decided on the processors of the device's workers, as `TimingSummary` says it.
    """

    def __init__(
        self, outcomes: Iterable[Timing | MeasurementFailure] = (), samples_resumed: int = 0, affinity: str = ""
    ) -> None:
        super().__init__(outcomes)
        self.samples_resumed = samples_resumed
        self.affinity = affinity

    def labelled(self, labels: Iterable[str]) -> Measured:
        """Return the outcomes under the given labels: a kernel that has several is measured once."""
        outcomes = (_under(label, outcome) for outcome, label in zip(self, labels, strict=True))
        return Measured(outcomes, self.samples_resumed, self.affinity)

    @property
    def timings(self) -> list[Timing]:
        """What was measured of the kernels that did not fail."""
        return [outcome for outcome in self if isinstance(outcome, Timing)]

    @property
    def failures(self) -> list[MeasurementFailure]:
        """Why the others failed."""
        return [outcome for outcome in self if isinstance(outcome, MeasurementFailure)]

    def summary(self) -> TimingSummary:
        """Return how measuring went, all kernels together."""
        timings = self.timings
        repeated = [timing.repeatability for timing in timings if math.isfinite(timing.repeatability)]
        # Those of one measurement under several labels share their samples.
        measurements = {id(timing.samples): timing for timing in timings}.values()
        return TimingSummary(
            outliers=sum(timing.outliers for timing in measurements),
            kernels_precise=sum(timing.precise for timing in timings),
            samples_resumed=self.samples_resumed,
            samples=sum(len(timing.samples) for timing in measurements),
            disturbed_samples=sum(timing.disturbed_samples for timing in measurements),
            kernels=len(timings),
            kernels_disturbed=sum(timing.disturbed for timing in timings),
            # The median: a few kernels that cannot be timed well say nothing of the machine. Nor do a few that have
            # more samples than the others, which are those that were disturbed.
            repeatability=statistics.median(repeated) if repeated and 2 * len(repeated) >= len(timings) else None,
            affinity=self.affinity,
        )


def _under(label: str, outcome: Timing | MeasurementFailure) -> Timing | MeasurementFailure:
    if isinstance(outcome, Timing):
        return replace(outcome, label=label)
    whose, colon, cause = outcome.reason.partition(f"{outcome.label}: ")
    return replace(outcome, label=label, reason=f"{label}: {cause}" if colon and not whose else outcome.reason)
