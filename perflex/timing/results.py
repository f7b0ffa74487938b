"""What timing gives: a time or a failure per kernel, and whether the device's speed drifted meanwhile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perflex.errors import PerflexError

__all__ = ["Drift", "FailureKind", "Measured", "MeasurementFailure", "Timing"]

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


class Measured(list["Timing | MeasurementFailure"]):
    """The outcomes of measuring, in the order of the jobs.

    Parameters
    ----------
    outcomes
        One per job.
    drift
        Whether the device's speed drifted meanwhile.
    """

    def __init__(self, outcomes: Iterable[Timing | MeasurementFailure] = (), drift: Drift | None = None) -> None:
        super().__init__(outcomes)
        self.drift = drift or Drift()
