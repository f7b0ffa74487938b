"""Statistics of timings that `timing_statistics.py` compares: those of `perflex.timing.statistics`, and others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from perflex.timing.statistics import interval_ranks, time_of
from perflex.timing.stopping import level_of_look

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_STEPS = 60
# A component narrower than this (of logarithms) would close in on a single sample.
_NARROWEST = 2e-3
# A component of less weight is some stray samples and no way in which the kernel runs.
_LEAST_WEIGHT = 0.1


def half_sample_mode(samples: NDArray[np.float64]) -> float:
    """Return the mode that is left when the narrowest half of the samples is taken again and again.

    Bickel and Fruehwirth, On a fast, robust estimator of the mode, Computational Statistics & Data Analysis 50, 2006.
    """
    ordered = np.sort(samples)
    while len(ordered) > 3:
        half = (len(ordered) + 1) // 2
        first = int(np.argmin(ordered[half - 1 :] - ordered[: len(ordered) - half + 1]))
        ordered = ordered[first : first + half]
    if len(ordered) == 3 and ordered[1] - ordered[0] != ordered[2] - ordered[1]:
        ordered = ordered[:2] if ordered[1] - ordered[0] < ordered[2] - ordered[1] else ordered[1:]
    return float(ordered.mean())


def lower_component(samples: NDArray[np.float64]) -> float:
    """Return the centre of the lower of two normal distributions of the logarithms that fit the samples best.

    Expectation and maximization (Dempster, Laird and Rubin, 1977) from the lower quartile and the upper decile. A lower
    component of less than a tenth of the samples does not count: then it is the other one.
    """
    values = np.log(np.sort(samples))
    if len(values) < 4 or values[-1] - values[0] < _NARROWEST:
        return float(np.exp(np.median(values)))
    centres = np.quantile(values, (0.25, 0.9))
    widths = np.full(2, values.std() / 2 + _NARROWEST)
    weights = np.full(2, 0.5)
    for _ in range(_STEPS):
        exponents = -0.5 * ((values[:, None] - centres) / widths) ** 2 + np.log(weights / widths)
        # Relative to the greater of both, or far samples would belong to none.
        shares = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        sums = shares.sum(axis=0) + 1e-9
        weights = sums / sums.sum()
        centres = (shares * values[:, None]).sum(axis=0) / sums
        variances = (shares * (values[:, None] - centres) ** 2).sum(axis=0) / sums
        widths = np.maximum(np.sqrt(variances), _NARROWEST)
    lower = int(np.argmin(centres))
    if weights[lower] < _LEAST_WEIGHT:
        lower = 1 - lower
    return float(np.exp(centres[lower]))


def _lower_half(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sort(samples)[: (len(samples) + 1) // 2]


def mean_of_lower_half(samples: NDArray[np.float64]) -> float:
    return float(_lower_half(samples).mean())


def median_of_lower_half(samples: NDArray[np.float64]) -> float:
    return float(np.median(_lower_half(samples)))


CANDIDATES: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "mean": partial(time_of, statistic="mean"),
    "median": partial(time_of, statistic="median"),
    "minimum": partial(time_of, statistic="minimum"),
    "lower quartile": partial(time_of, statistic="lower_quartile"),
    "half-sample mode": half_sample_mode,
    "lower component": lower_component,
    "mean, lower half": mean_of_lower_half,
    "median, lower half": median_of_lower_half,
}


def samples_needed() -> dict[str, tuple[int, int] | None]:
    """Return how many samples a 95 % interval of a candidate needs, for one look and for each of six looks.

    None where no interval holds for every distribution and only a bootstrap remains. The mean's is Student's, for
    normal samples; a minimum is only bounded by the interval of the lower decile.
    """
    levels = (0.95, level_of_look(60))

    def least(quantile: float, *, one_sided: bool = False) -> tuple[int, int]:
        first, last = (
            next(n for n in range(1, 200) if interval_ranks(n, quantile, level, one_sided=one_sided))
            for level in levels
        )
        return first, last

    known = {
        "mean": (2, 2),
        "median": least(0.5),
        "minimum": least(0.1, one_sided=True),
        "lower quartile": least(0.25),
        # The median of the lower half is about the lower quartile.
        "median, lower half": least(0.25),
    }
    return {name: known.get(name) for name in CANDIDATES}
