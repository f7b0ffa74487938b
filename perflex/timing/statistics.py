"""A kernel's time from its samples: statistic, interval, stray samples, and how well the statistic repeats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.timing.options import Statistic

# Statistics that are quantiles of the distribution of timings; their intervals need to know nothing else of it.
_QUANTILES = {"median": 0.5, "lower_quartile": 0.25}
# A stray sample lies so many standard deviations (estimated from the median absolute deviation) and at least this
# fraction above the median, and strays are at most this share of all samples.
_DEVIATIONS = 5.0
_LEAST_DISTANCE = 0.05
_MOST_STRAYS = 0.1
# Of a normal distribution the standard deviation is so many median absolute deviations: 1 / quantile(3/4).
_MAD_TO_DEVIATION = 1.4826
_FEWEST_IN_MODE = 3
# Sums of binomials are replaced by the normal distribution above so many samples.
_EXACT_UP_TO = 200
# Halves of fewer samples say nothing of how a statistic repeats.
_FEWEST_IN_HALVES = 4


@dataclass(frozen=True)
class Estimate:
    """What samples say of a kernel's time; as in `Timing`."""

    seconds: float
    interval: tuple[float, float]
    spread: float
    repeatability: float
    strays: int
    second_mode: bool

    def known_to(self, precision: float) -> bool:
        """Return whether half the interval's width is at most a positive fraction of the time."""
        return _is_narrow(self.interval, precision * self.seconds)


def estimate(samples: NDArray[np.float64], statistic: Statistic, level: float = 0.95) -> Estimate:
    """Evaluate samples.

    Parameters
    ----------
    samples
        Times in seconds in the order taken, shape ``(n,)`` with n at least 1.
    statistic
        One of `perflex.timing.options.STATISTICS`.
    level
        Confidence level of the interval.
    """
    strays, second_mode = stray_samples(samples)
    kept = samples[~strays]
    low, middle, high = np.quantile(kept, (0.25, 0.5, 0.75))
    return Estimate(
        seconds=time_of(samples, statistic),
        interval=interval_of(samples, statistic, level),
        # One sample has no width, which is not the same as none.
        spread=float((high - low) / middle) if middle > 0 and len(kept) > 1 else math.nan,
        repeatability=repeatability_of(samples, statistic),
        strays=int(strays.sum()),
        second_mode=second_mode,
    )


def is_known_to(precision: float, samples: NDArray[np.float64], statistic: Statistic, level: float) -> bool:
    """Return the same of samples as `Estimate.known_to`, without all else that `estimate` finds."""
    return _is_narrow(interval_of(samples, statistic, level), precision * time_of(samples, statistic))


def _is_narrow(interval: tuple[float, float], allowed: float) -> bool:
    # An interval that is not known makes the comparison false.
    return allowed > 0 and (interval[1] - interval[0]) / 2 <= allowed


def time_of(samples: NDArray[np.float64], statistic: Statistic) -> float:
    """Return a statistic of samples; the mean leaves stray samples out, which hardly move a quantile."""
    if statistic == "minimum":
        return float(samples.min())
    if statistic == "mean":
        return float(samples[~stray_samples(samples)[0]].mean())
    return float(np.quantile(samples, _QUANTILES[statistic]))


def interval_of(samples: NDArray[np.float64], statistic: Statistic, level: float) -> tuple[float, float]:
    """Return the confidence interval of a statistic, in seconds.

    That of a quantile goes from one sorted sample to another and holds for every distribution. That of the mean is
    Student's, which takes the samples for normally distributed. The minimum of a distribution cannot be known from
    samples: its interval goes to the end of that of the lower decile, and has the level for that only.

    Parameters
    ----------
    samples
        Times in seconds, shape ``(n,)``.
    statistic
        One of `perflex.timing.options.STATISTICS`.
    level
        Confidence level, between 0 and 1.

    Returns
    -------
    tuple
        Both ends; nan where so few samples have no interval of this level.
    """
    ordered = np.sort(samples)
    if statistic == "mean":
        return _students_interval(samples[~stray_samples(samples)[0]], level)
    ranks = interval_ranks(len(ordered), _QUANTILES.get(statistic, 0.1), level, one_sided=statistic == "minimum")
    return (math.nan, math.nan) if ranks is None else (float(ordered[ranks[0]]), float(ordered[ranks[1]]))


def _students_interval(kept: NDArray[np.float64], level: float) -> tuple[float, float]:
    from scipy.stats import t as student

    if len(kept) < 2:
        return math.nan, math.nan
    half = float(student.ppf((1 + level) / 2, len(kept) - 1) * kept.std(ddof=1) / math.sqrt(len(kept)))
    return float(kept.mean()) - half, float(kept.mean()) + half


def repeatability_of(samples: NDArray[np.float64], statistic: Statistic) -> float:
    """Return by which fraction the statistic differs from one such series of samples to the next.

    It is estimated from the statistics of the earlier and the later half, so that a change of the device's speed from
    the one to the other counts. A half of the samples scatters by the square root of two more than all of them.

    Parameters
    ----------
    samples
        Times in seconds in the order taken, shape ``(n,)``.
    statistic
        One of `perflex.timing.options.STATISTICS`.

    Returns
    -------
    float
        The logarithm of the ratio of two such series' statistics, without its sign; nan for fewer than 4 samples.
    """
    half = len(samples) // 2
    if len(samples) < _FEWEST_IN_HALVES:
        return math.nan
    early, late = time_of(samples[:half], statistic), time_of(samples[-half:], statistic)
    return abs(math.log(late / early)) / math.sqrt(2) if early > 0 and late > 0 else math.nan


def stray_samples(samples: NDArray[np.float64]) -> tuple[NDArray[np.bool_], bool]:
    """Tell stray samples from a second way in which a kernel runs.

    A sample is stray when it lies more than 5 standard deviations and 5 % above the median; the deviation is that of
    the median absolute deviation, which strays do not widen. Samples below the median are never stray: nothing makes
    a kernel faster by accident. If more than a tenth of the samples lie above that threshold, they are no accident
    either (a second clock rate, say), and all are kept. So fewer than ten samples have no strays.

    Parameters
    ----------
    samples
        Times in seconds, shape ``(n,)``.

    Returns
    -------
    tuple
        Which samples are stray, shape ``(n,)``; and whether there is a second mode: at least three samples, more
        than a tenth of all, above the threshold.
    """
    middle = float(np.median(samples))
    deviation = _MAD_TO_DEVIATION * float(np.median(np.abs(samples - middle)))
    # Where most samples have the same number of timer ticks the deviation is 0: the least distance alone decides.
    above = samples > middle + max(_DEVIATIONS * deviation, _LEAST_DISTANCE * middle)
    count = int(above.sum())
    if count <= _MOST_STRAYS * len(samples):
        return above, False
    return np.zeros_like(above), count >= _FEWEST_IN_MODE


# Asked after every look at every kernel, for the same few counts.
@lru_cache(maxsize=512)
def interval_ranks(count: int, quantile: float, level: float, *, one_sided: bool = False) -> tuple[int, int] | None:
    """Return between which sorted samples a quantile of their distribution lies.

    How many of n samples lie below the quantile p is binomial with n and p, whatever the distribution, so that the
    interval between two sorted samples has an exact level (David and Nagaraja, Order Statistics, 2003, Section 7.1).

    Parameters
    ----------
    count
        Number of samples, at least 1.
    quantile
        Which quantile, between 0 and 1.
    level
        Confidence level, between 0 and 1.
    one_sided
        Whether the interval begins at the least sample and only its other end is to be found.

    Returns
    -------
    tuple or None
        Positions of both ends, from 0; None where even all samples do not reach the level.
    """
    tail = (1 - level) if one_sided else (1 - level) / 2
    if count > _EXACT_UP_TO:
        half = NormalDist().inv_cdf(1 - tail) * math.sqrt(count * quantile * (1 - quantile))
        first, last = math.floor(count * quantile - half) - 1, math.ceil(count * quantile + half)
        return (0 if one_sided else max(first, 0)), min(last, count - 1)
    below = _binomial_sums(count, quantile)
    # The j-th sample from 0 lies above the quantile if at most j samples lie below it.
    first = 0 if one_sided else max((j for j in range(count) if below[j] <= tail), default=-1)
    # And below it if more than j do.
    last = next((j for j in range(count) if 1 - below[j] <= tail), -1)
    return None if min(first, last) < 0 else (first, last)


def _binomial_sums(count: int, probability: float) -> list[float]:
    """Return the probabilities of at most 0, 1, ... hits among `count` draws."""
    terms = [
        math.comb(count, hits) * probability**hits * (1 - probability) ** (count - hits) for hits in range(count + 1)
    ]
    return [math.fsum(terms[: hits + 1]) for hits in range(count + 1)]
