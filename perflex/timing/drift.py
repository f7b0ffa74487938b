"""Drift of a device's speed: found with reference kernels that take part in every round, corrected where that helps."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from perflex.timing.results import Drift

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.store.records import Sample

Moment: TypeAlias = "tuple[str, int]"

# With fewer rounds the normal approximation below is poor, and a running median of five smooths nothing.
_FEWEST_ROUNDS = 8
_FEWEST_SAMPLES = 5
_MOST_REFERENCES = 3
_WINDOW = 5
# One series in about 200 without drift exceeds this.
_STANDARD_DEVIATIONS = 2.5
_LEAST_SIZE = 1.01
# A correction has to narrow the spread of the middle one of the other kernels by a tenth, and that of most of them.
_GAIN = 0.9
_MOST = 2 / 3
# A ratio of times may be larger than any float where its logarithm is a common number.
_LARGEST_LOG = math.log(sys.float_info.max)


@dataclass(frozen=True)
class Corrected:
    """Samples of all kernels, in seconds and in order, after the correction if there is one; and the drift found."""

    samples: tuple[NDArray[np.float64], ...]
    drift: Drift


def reference_count(kernels: int) -> int:
    """Return how many of so many kernels serve as references: one, two or three, so that most are left out."""
    return min(_MOST_REFERENCES, max(1, (kernels + 1) // 3))


def assess_drift(labels: Sequence[str], samples: Sequence[Sequence[Sample]]) -> Corrected:
    """Look for drift and correct it where kernels that played no part in finding it agree.

    The result depends on the samples alone, so that runs that were interrupted end like those that were not. The
    reference kernels are those that took part in most rounds, for every round times them. Their mean relative time by
    round is a series; it drifts when neighbouring rounds are more alike than noise would have them (Bartels' rank
    version of von Neumann's ratio, which needs no idea of how much noise there is). The series is smoothed by a running
    median of five rounds, and all samples are divided by it if that narrows the interquartile range of the kernels that
    are no references.

    Parameters
    ----------
    labels
        Names of the kernels.
    samples
        The samples of each.
    """
    plain = tuple(np.array([sample.seconds for sample in own]) for own in samples)
    moments = _moments(samples)
    references = _references(samples, plain)
    others = [index for index in range(len(samples)) if index not in references]
    timed, series = _series(references, samples, plain, moments)
    names = tuple(labels[index] for index in references)
    if len(series) < _FEWEST_ROUNDS:
        return Corrected(plain, Drift(rounds=len(series), references=names))
    smooth = _running_median(series)
    # The series is of logarithms: a difference is a ratio of times.
    size = math.exp(min(float(smooth.max() - smooth.min()), _LARGEST_LOG))
    # From the raw series: smoothing alone makes neighbours alike.
    found = _trend(series) > _STANDARD_DEVIATIONS and size > _LEAST_SIZE
    if not found:
        return Corrected(plain, Drift(size=size, rounds=len(series), references=names))
    # Rounds in which no reference has a sample of use lie between those in which one has.
    places = {moment: place for place, moment in enumerate(moments)}
    between = np.interp(range(len(moments)), [places[moment] for moment in timed], smooth)
    factors = dict(zip(moments, np.exp(np.clip(between, -_LARGEST_LOG, _LARGEST_LOG)), strict=True))
    corrected = tuple(
        values / np.array([factors[sample.session, sample.round] for sample in own])
        for own, values in zip(samples, plain, strict=True)
    )
    gain, is_enough = _gain([plain[i] for i in others], [corrected[i] for i in others])
    drift = Drift(True, size, is_enough, len(series), names, gain)
    return Corrected(corrected if is_enough else plain, drift)


def _moments(samples: Sequence[Sequence[Sample]]) -> list[Moment]:
    """Return all rounds: sessions by their beginning, rounds by number, whatever clocks do meanwhile."""
    session_start: dict[str, float] = defaultdict(lambda: math.inf)
    for own in samples:
        for sample in own:
            session_start[sample.session] = min(session_start[sample.session], sample.started)
    moments = {(sample.session, sample.round) for own in samples for sample in own}
    return sorted(moments, key=lambda moment: (session_start[moment[0]], moment))


def _references(samples: Sequence[Sequence[Sample]], plain: Sequence[NDArray[np.float64]]) -> list[int]:
    rounds = [len({(sample.session, sample.round) for sample in own}) for own in samples]
    order = [index for index in range(len(samples)) if rounds[index]]
    # Of equally many rounds the longest kernels, which the timer and the host disturb least; the index settles ties.
    order.sort(key=lambda index: (-rounds[index], -float(np.median(plain[index])), index))
    return order[: reference_count(len(order))]


def _series(
    references: Sequence[int],
    samples: Sequence[Sequence[Sample]],
    plain: Sequence[NDArray[np.float64]],
    moments: Sequence[Moment],
) -> tuple[list[Moment], NDArray[np.float64]]:
    """Return the rounds with references, and the mean logarithm of their relative times there, 0 in the middle."""
    found: Mapping[Moment, list[float]] = {moment: [] for moment in moments}
    for index in references:
        # Relative to its median a long kernel counts as much as a short one; logarithms treat slower and faster alike.
        middle = float(np.median(plain[index]))
        for sample in samples[index]:
            if sample.seconds > 0 and middle > 0:
                found[sample.session, sample.round].append(math.log(sample.seconds) - math.log(middle))
    timed = [moment for moment in moments if found[moment]]
    series = np.array([np.mean(found[moment]) for moment in timed])
    return timed, series - np.median(series) if timed else series


def _running_median(series: NDArray[np.float64]) -> NDArray[np.float64]:
    # A median, not a mean: one disturbed round must not look like drift.
    half = _WINDOW // 2
    return np.array([np.median(series[max(0, i - half) : i + half + 1]) for i in range(len(series))])


def _trend(series: NDArray[np.float64]) -> float:
    """Return by how many standard deviations neighbours are more alike than in noise (Bartels 1982)."""
    count = len(series)
    order = np.argsort(series, kind="stable")
    ranks = np.empty(count)
    ranks[order] = np.arange(count)
    for value in np.unique(series):  # equal values share their mean rank
        equal = series == value
        ranks[equal] = ranks[equal].mean()
    variation = float(((ranks - ranks.mean()) ** 2).sum())
    if variation == 0:
        return 0.0
    ratio = float((np.diff(ranks) ** 2).sum()) / variation
    # Without drift the ratio has the mean 2 and about the variance 20 / (5 n + 7): Bartels, JASA 77 (1982), 40-46.
    return (2 - ratio) / math.sqrt(20 / (5 * count + 7))


def _gain(before: Sequence[NDArray[np.float64]], after: Sequence[NDArray[np.float64]]) -> tuple[float, bool]:
    """Return the median ratio of the kernels' spreads, and whether it is enough."""
    ratios = []
    for old, new in zip(before, after, strict=True):
        if len(old) >= _FEWEST_SAMPLES and (spread := _spread(old)) > 0:
            ratios.append(_spread(new) / spread)
    if not ratios:
        return math.nan, False
    gain = float(np.median(ratios))
    return gain, gain < _GAIN and float(np.mean(np.array(ratios) < 1)) >= _MOST


def _spread(values: NDArray[np.float64]) -> float:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float((high - low) / middle) if middle > 0 else 0.0
