"""A kernel's time from its samples: statistic, stray samples, and how well the statistic is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEVEL = 0.95
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


@dataclass(frozen=True)
class Estimate:
    """What samples say of a kernel's time; as in `Timing`."""

    seconds: float
    interval: tuple[float, float]
    spread: float
    outliers: int
    second_mode: bool

    def known_to(self, precision: float) -> bool:
        """Return whether half the interval's width is at most a positive fraction of the time."""
        low, high = self.interval
        return precision > 0 and (high - low) / 2 <= precision * self.seconds


def estimate(samples: NDArray[np.float64], statistic: str) -> Estimate:
    """Evaluate samples.

    Parameters
    ----------
    samples
        Times in seconds, shape ``(n,)`` with n at least 1.
    statistic
        ``"median"`` or ``"minimum"``.
    """
    strays, second_mode = stray_samples(samples)
    kept = np.sort(samples[~strays])
    first, last = interval_ranks(len(kept), statistic)
    low, middle, high = np.quantile(kept, (0.25, 0.5, 0.75))
    return Estimate(
        seconds=float(middle if statistic == "median" else kept[0]),
        interval=(float(kept[first]), float(kept[last])),
        spread=float((high - low) / middle) if middle > 0 else math.nan,
        outliers=int(strays.sum()),
        second_mode=second_mode,
    )


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


# Asked after every sample of every kernel, for the same few counts.
@lru_cache(maxsize=512)
def interval_ranks(count: int, statistic: str) -> tuple[int, int]:
    """Return between which sorted samples the 95 % bootstrap percentile interval of a statistic lies.

    Resampling need not be done: the k-th smallest of n samples is at most the j-th smallest of the original ones with
    the probability that a binomial variable of n draws at j/n reaches k, which is the limit of infinitely many
    resamples. For even n the interval goes from the lower middle sample's to the upper middle sample's, and so
    contains that of their mean. It is exact, the same every time, and costs nothing beyond sorting.

    Parameters
    ----------
    count
        Number of samples, at least 1.
    statistic
        ``"median"`` or ``"minimum"``.

    Returns
    -------
    tuple
        Positions of both ends, from 0.
    """
    tail = (1 - _LEVEL) / 2
    if statistic == "minimum":
        # A resample's minimum exceeds the j-th smallest sample with probability (1 - j/n)^n: all n draws do. It is the
        # smallest itself in over 63 % of the resamples, so that the interval begins there.
        last = next(j for j in range(1, count + 1) if 1 - (1 - j / count) ** count >= 1 - tail)
        return 0, last - 1
    if count > _EXACT_UP_TO:
        # The binomial's standard deviation at 1/2 times the normal distribution's quantile of 97.5 %.
        half = 1.959964 * math.sqrt(count) / 2
        return math.floor((count - 1) / 2 - half), math.ceil((count - 1) / 2 + half)
    lower, upper = (count + 1) // 2, count // 2 + 1
    first = next(j for j in range(1, count + 1) if _reaches(count, j, lower) >= tail)
    last = next(j for j in range(1, count + 1) if _reaches(count, j, upper) >= 1 - tail)
    return first - 1, last - 1


def _reaches(count: int, rank: int, least: int) -> float:
    """Return the probability of `least` hits or more among `count` draws that hit with probability rank/count."""
    p = rank / count
    if p == 1:
        return 1.0
    return math.fsum(math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(least, count + 1))
