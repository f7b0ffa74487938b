"""A kernel's time, the median of its samples: interval, outliers, and how well it repeats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# An outlier lies so many standard deviations (estimated from the median absolute deviation) and at least this
# fraction above the median, and outliers are at most this share of all samples.
_DEVIATIONS = 5.0
_LEAST_DISTANCE = 0.05
_MOST_OUTLIERS = 0.1
# Of a normal distribution the standard deviation is so many median absolute deviations: 1 / quantile(3/4).
_MAD_TO_DEVIATION = 1.4826
# Halves of fewer samples say nothing of how a median repeats.
_FEWEST_IN_HALVES = 4


@dataclass(frozen=True)
class Estimate:
    """What samples say of a kernel's time; as in `Timing`."""

    seconds: float
    interval: tuple[float, float]
    spread: float
    repeatability: float
    outliers: int


def estimate(samples: NDArray[np.float64], level: float = 0.95) -> Estimate:
    """Evaluate samples."""
    outliers = find_outliers(samples)
    kept = samples[~outliers]
    low, middle, high = np.quantile(kept, (0.25, 0.5, 0.75))
    return Estimate(
        seconds=time_of(samples),
        interval=interval_of(samples, level),
        # One sample has no width, which is not the same as none.
        spread=float((high - low) / middle) if middle > 0 and len(kept) > 1 else math.nan,
        repeatability=repeatability_of(samples),
        outliers=int(outliers.sum()),
    )


def is_known_to(precision: float, samples: NDArray[np.float64], level: float = 0.95) -> bool:
    """Return whether half the interval's width is at most a positive fraction of the time."""
    low, high = interval_of(samples, level)
    allowed = precision * time_of(samples)
    # An interval that is not known makes the comparison false.
    return allowed > 0 and (high - low) / 2 <= allowed


def time_of(samples: NDArray[np.float64]) -> float:
    """Return the median of samples."""
    return float(np.quantile(samples, 0.5))


def interval_of(samples: NDArray[np.float64], level: float) -> tuple[float, float]:
    """Return the confidence interval of the median, in seconds.

    It goes from one sorted sample to another and holds for every distribution.
    """
    ordered = np.sort(samples)
    ranks = interval_ranks(len(ordered), level)
    return (math.nan, math.nan) if ranks is None else (float(ordered[ranks[0]]), float(ordered[ranks[1]]))


def repeatability_of(samples: NDArray[np.float64]) -> float:
    """Return by which fraction the median differs from one such series of samples to the next.

    It is estimated from the medians of the earlier and the later half, so that a change of the device's speed from
    the one to the other counts. A half of the samples scatters by the square root of two more than all of them.
    """
    half = len(samples) // 2
    if len(samples) < _FEWEST_IN_HALVES:
        return math.nan
    early, late = time_of(samples[:half]), time_of(samples[-half:])
    return abs(math.log(late / early)) / math.sqrt(2) if early > 0 and late > 0 else math.nan


def find_outliers(samples: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which samples are outliers.

    A sample is an outlier when it lies more than 5 standard deviations and 5 % above the median; the deviation is that
    of the median absolute deviation, which outliers do not widen. Samples below the median are never outliers: nothing
    makes a kernel faster by accident. If more than a tenth of the samples lie above that threshold, they are no
    accident either (a second clock rate, say), and all are kept. So fewer than ten samples have no outliers.
    """
    middle = float(np.median(samples))
    deviation = _MAD_TO_DEVIATION * float(np.median(np.abs(samples - middle)))
    # Where most samples have the same number of timer ticks the deviation is 0: the least distance alone decides.
    above: NDArray[np.bool_] = samples > middle + max(_DEVIATIONS * deviation, _LEAST_DISTANCE * middle)
    return above if above.sum() <= _MOST_OUTLIERS * len(samples) else np.zeros_like(above)


# Asked after every look at every kernel, for the same few counts.
@lru_cache(maxsize=512)
def interval_ranks(count: int, level: float) -> tuple[int, int] | None:
    """Return between which sorted samples the median of their distribution lies.

    How many of n samples lie below it is binomial with n and one half, whatever the distribution, so that the
    interval between two sorted samples has an exact level (David and Nagaraja, Order Statistics, 2003, Section 7.1).
    """
    from scipy.special import bdtr

    # The j-th sample from 0 lies above the median if at most j samples lie below it; and below it by symmetry.
    first = int(np.searchsorted(bdtr(np.arange(count), count, 0.5), (1 - level) / 2, side="right")) - 1
    return None if first < 0 else (first, count - 1 - first)


# Risk of all looks together that the interval of the last one does not hold the median's true value.
RISK = 0.05
# With 8 samples the interval of a median from the least to the largest has the level of one of six looks.
_FIRST_LOOK = 8
_GROWTH = 1.5


@lru_cache(maxsize=64)
def interim_counts(trials: int) -> tuple[int, ...]:
    """Return at which numbers of samples a kernel with so many trials at most is looked at, ascending.

    The last is the number of trials itself. Nothing that was measured decides on them.
    """
    counts = [min(_FIRST_LOOK, trials)]
    while counts[-1] < trials:
        counts.append(min(trials, math.ceil(_GROWTH * counts[-1])))
    return tuple(counts)


def interim_level(trials: int) -> float:
    """Return the confidence level of each look's interval, between 0 and 1.

    A kernel whose device time is spent before the next look is looked at a last time in place of that look.
    """
    return 1 - RISK / len(interim_counts(trials))
