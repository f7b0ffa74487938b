"""One factor per device: the time of the same kernel on another device, times a constant.

The constant comes from samples that both have. Sources whose times follow the samples more closely count more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# As how many samples the usual scatter between two sources counts.
_USUAL_SAMPLES = 3.0
_LEAST_SCATTER = 1e-3
# Labels that two sources need in common to tell how their ratio scatters.
_FEWEST_COMMON = 3
_USUAL_SCATTER = 0.3


def one_factor_log_times(sources: Sequence[Mapping[str, float]], samples: Mapping[str, float]) -> dict[str, float]:
    """Return the logarithm of the time of each label that sources have timed, by one factor of each source.

    Parameters
    ----------
    sources
        The logarithm of each source's times, by label.
    samples
        The same of the target's samples.

    Returns
    -------
    dict
        By label; empty where no sample is of a kernel that a source has timed.
    """
    usual = _usual_scatter(sources)
    factors: list[tuple[Mapping[str, float], float, float]] = []
    for times in sources:
        ratios = np.array([value - times[label] for label, value in samples.items() if label in times])
        if len(ratios):
            factor = float(np.median(ratios))
            squares = float(np.sum((ratios - factor) ** 2)) + _USUAL_SAMPLES * usual**2
            factors.append((times, factor, squares / (len(ratios) + _USUAL_SAMPLES)))
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for times, factor, variance in factors:
        # Sources that follow twice as closely count sixteen times: the nearest decides, if one is clearly so.
        weight = variance**-2.0
        for label, value in times.items():
            sums[label] = sums.get(label, 0.0) + weight * (value + factor)
            weights[label] = weights.get(label, 0.0) + weight
    return {label: total / weights[label] for label, total in sums.items()}


def _usual_scatter(sources: Sequence[Mapping[str, float]]) -> float:
    """Return the usual standard deviation of the ratio of two sources' times, in the logarithm."""
    found = []
    for place, first in enumerate(sources):
        for second in sources[place + 1 :]:
            ratios = np.array([value - second[label] for label, value in first.items() if label in second])
            if len(ratios) >= _FEWEST_COMMON:
                found.append(float(np.std(ratios)))
    return max(float(np.median(found)), _LEAST_SCATTER) if found else _USUAL_SCATTER
