"""Which samples others disturbed: told by the processor time that a kernel did not get, not by how long it took.

To leave out samples because they are long would choose the result. What the operating system reports of a sample
(`SystemActivity`) does not depend on what the kernel's time should be.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from perflex.timing.results import Drift

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.store.records import Sample

# A sample is disturbed if its threads lacked processors for more than this share of its time, and for longer than it
# takes to wake threads up for each launch, and the counters to be read.
_SHARE = 0.1
_WAKING_S = 2e-5
_LEAST_S = 1e-4
# What counts as all the processors that a kernel uses is the use in its best samples: this quantile of them.
_FULL_USE = 0.9
# Of shorter samples the processor time tells little of all the processors that a device uses.
_LONG_S = 2e-3
# So many undisturbed samples are better than any number of disturbed ones.
_ENOUGH = 3
# Below it, in seconds on the clock, ratios of times mean nothing.
_SHORTEST_S = 1e-9


def lacking_seconds(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """Return for how long processors were missing in each sample of one kernel, in seconds; shape ``(n,)``.

    The largest of three: the longest wait of a thread; the processor time that the threads did not get, compared with
    their use of processors in the kernel's other samples (a thread that waits all the time is only reported to have
    waited when it runs again); and the time that a hypervisor took from one processor. 0 where the system reports
    nothing.
    """
    use = np.array([_use(sample) for sample in samples])
    known = np.isfinite(use)
    full = float(np.quantile(use[known], _FULL_USE)) if known.any() else math.nan
    lacking = []
    for sample, own in zip(samples, use, strict=True):
        activity = sample.activity
        if activity is None:
            lacking.append(0.0)
            continue
        missed = 0.0
        if full > 0 and math.isfinite(own) and activity.elapsed_s is not None:
            missed = activity.elapsed_s * max(0.0, 1 - own / full)
        lacking.append(max(missed, activity.waited_s or 0.0, activity.stolen_s or 0.0))
    return np.array(lacking, dtype=np.float64)


def disturbed(samples: Sequence[Sample]) -> NDArray[np.bool_]:
    """Return which samples of one kernel were disturbed, shape ``(n,)``.

    Those are disturbed that lacked processors for more than a tenth of their time, 0.02 ms for each launch and 0.1 ms,
    all together, and those during which the device lowered its clock, unless that is how it mostly runs.
    """
    lacking = lacking_seconds(samples)
    duration = np.array([sample.seconds * sample.launches for sample in samples], dtype=np.float64)
    launches = np.array([sample.launches for sample in samples], dtype=np.float64)
    allowed = _SHARE * duration + _WAKING_S * launches + _LEAST_S
    found: NDArray[np.bool_] = (lacking > allowed) | _throttled(samples)
    return found


def full_use(kernels: Iterable[Sequence[Sample]]) -> float:
    """Return how many processors kernels use where nobody else does; nan where that is not known."""
    known = []
    for samples in kernels:
        use = [own for sample in samples if math.isfinite(own := _use(sample))]
        # Of a short kernel the time until its threads are awake is a part that counts.
        if use and np.median([sample.seconds * sample.launches for sample in samples]) > _LONG_S:
            known.append(float(np.quantile(use, _FULL_USE)))
    return float(np.quantile(known, _FULL_USE)) if known else math.nan


def used_samples(samples: Sequence[Sample], full: float) -> tuple[list[Sample], bool]:
    """Return the samples that tell a kernel's time, and whether disturbed ones had to be taken.

    Where fewer than three are undisturbed, all are taken, each reduced by the share of the processor time that it
    lacked: a device hands its work-groups to whichever thread is free, so that the missing time delays them all alike.
    How many processors the kernel uses is known from its best sample. Other kernels may use more; what is missing by
    their measure only counts as far as one of the sample's threads was seen to wait.
    """
    clean = [sample for sample, bad in zip(samples, disturbed(samples), strict=True) if not bad]
    if len(clean) >= min(_ENOUGH, len(samples)):
        return clean, False
    # A lowered clock cannot be corrected for; its samples count only where there are no others.
    left = [sample for sample, slow in zip(samples, _throttled(samples), strict=True) if not slow] or list(samples)
    own = max((use for sample in samples if math.isfinite(use := _use(sample))), default=math.nan)
    # Where no sample is long enough to tell what others use, the kernel's own best must do.
    return [_without_lack(sample, own, full if math.isfinite(full) else own) for sample in left], True


def _without_lack(sample: Sample, own: float, full: float) -> Sample:
    activity, use = sample.activity, _use(sample)
    if activity is None or activity.elapsed_s is None or not use > 0:
        return sample
    lacking = max(1 - use / own, min(1 - use / full, (activity.waited_s or 0.0) / activity.elapsed_s), 0.0)
    return replace(sample, seconds=sample.seconds * (1 - lacking))


def _throttled(samples: Sequence[Sample]) -> NDArray[np.bool_]:
    """Return during which samples the device lowered its clock, shape ``(n,)``.

    None where it did so during most of them: at its limit of power a device runs so always, and no sample taken again
    would be another.
    """
    found = np.array(
        [sample.activity is not None and bool(sample.activity.throttled) for sample in samples], dtype=bool
    )
    return found if 2 * found.sum() <= len(found) else np.zeros_like(found)


def _use(sample: Sample) -> float:
    """Return how many processors the process used on average while a sample was taken; nan where that is not known."""
    activity = sample.activity
    if activity is None or activity.elapsed_s is None or activity.processor_s is None:
        return math.nan
    return activity.processor_s / activity.elapsed_s if activity.elapsed_s >= _SHORTEST_S else math.nan


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


def _gain(before: Sequence[NDArray[np.float64]], after: Sequence[NDArray[np.float64]]) -> tuple[float | None, bool]:
    """Return the median ratio of the kernels' spreads, and whether it is enough."""
    ratios = []
    for old, new in zip(before, after, strict=True):
        if len(old) >= _FEWEST_SAMPLES and (spread := _spread(old)) > 0:
            ratios.append(_spread(new) / spread)
    if not ratios:
        return None, False
    gain = float(np.median(ratios))
    return gain, gain < _GAIN and float(np.mean(np.array(ratios) < 1)) >= _MOST


def _spread(values: NDArray[np.float64]) -> float:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float((high - low) / middle) if middle > 0 else 0.0
