"""Which samples others disturbed: told by the processor time that a kernel did not get, not by how long it took.

To leave out samples because they are long would choose the result. What the operating system reports of a sample
(`SystemActivity`) does not depend on what the kernel's time should be.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import quantiles
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from perflex.store.records import Sample

# A sample is disturbed if its threads lacked processors for more than this share of its time, and for longer than it
# takes to wake threads up for each launch, and the counters to be read.
_SHARE = 0.1
_WAKING_S = 2e-5
_LEAST_S = 1e-4
# What counts as all the processors that a kernel uses is the use in its best samples: the last of these quantiles.
_TENTHS = 10
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
    use = [_use(sample) for sample in samples]
    known = [own for own in use if math.isfinite(own)]
    full = _full(known) if known else math.nan
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


def _full(use: Sequence[float]) -> float:
    """Return a use of processors that only a tenth of the samples exceed; numpy's quantile takes longer for so few."""
    return quantiles(use, n=_TENTHS, method="inclusive")[-1] if len(use) > 1 else use[0]


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
            known.append(_full(use))
    return _full(known) if known else math.nan


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
