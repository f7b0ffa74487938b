"""Which samples others disturbed: told by the processor time that a kernel did not get, not by how long it took.

To leave out samples because they are long would choose the result. What the operating system reports of a sample
(`SystemActivity`) does not depend on what the kernel's time should be.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.store.records import Sample

# A sample is disturbed if its threads lacked processors for more than this share of its time, and for longer than it
# takes to wake threads up.
_SHARE = 0.1
_LEAST_S = 1e-4
# What counts as all the processors that a kernel uses is the use in its best samples: this quantile of them.
_FULL_USE = 0.9


def lacking_seconds(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """Return for how long processors were missing in each sample of one kernel, in seconds; shape ``(n,)``.

    The largest of three: the longest wait of a thread; the processor time that the threads did not get, compared with
    their use of processors in the kernel's other samples (a thread that waits all the time is only reported to have
    waited when it runs again); and the time that a hypervisor took. 0 where the system reports nothing.
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

    Those are disturbed that lacked processors for more than a tenth of their time, and those during which the device
    lowered its clock.
    """
    lacking = lacking_seconds(samples)
    duration = np.array([sample.seconds * sample.launches for sample in samples], dtype=np.float64)
    found: NDArray[np.bool_] = (lacking > _SHARE * duration + _LEAST_S) | _throttled(samples)
    return found


def usable(samples: Sequence[Sample], fewest: int) -> tuple[NDArray[np.intp], bool]:
    """Return which samples tell a kernel's time, and whether disturbed ones had to be taken.

    Parameters
    ----------
    samples
        Of one kernel.
    fewest
        Fewest samples to go by: where fewer were undisturbed, those that lacked least of their time are taken.

    Returns
    -------
    tuple
        Positions, ascending; and whether some of them are disturbed.
    """
    marked = disturbed(samples)
    clean = np.flatnonzero(~marked)
    if len(clean) >= min(fewest, len(samples)):
        return clean, False
    duration = np.array([sample.seconds * sample.launches for sample in samples], dtype=np.float64)
    share = lacking_seconds(samples) / np.maximum(duration, 1e-12)
    # Undisturbed ones before all others; a lowered clock is no lack of processors, but no better.
    order = np.lexsort((share, _throttled(samples), marked))
    return np.sort(order[: min(fewest, len(samples))]), True


def _throttled(samples: Sequence[Sample]) -> NDArray[np.bool_]:
    """Return during which samples the device is known to have lowered its clock, shape ``(n,)``."""
    return np.array([sample.activity is not None and bool(sample.activity.throttled) for sample in samples], dtype=bool)


def _use(sample: Sample) -> float:
    """Return how many processors the process used on average while a sample was taken; nan where that is not known."""
    activity = sample.activity
    if activity is None or not activity.elapsed_s or activity.processor_s is None:
        return math.nan
    return activity.processor_s / activity.elapsed_s
