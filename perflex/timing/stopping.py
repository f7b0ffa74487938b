"""When a kernel's time is known: looks at fixed numbers of samples, each with its share of the risk.

Who looks after every sample and stops as soon as an interval is narrow stops too often when it is narrow by chance: an
interval of 95 % then holds the truth less often. Here samples are only looked at when there are 8, 12, 18, ... of them.
The level of each look is such that all looks together miss the truth in at most 5 % of the kernels (Bonferroni's
inequality; group sequential designs: Jennison and Turnbull, Group Sequential Methods, 2000, Chapter 2).
"""

from __future__ import annotations

import math
from functools import lru_cache

# Risk of all looks together that the interval of the last one does not hold the statistic's true value.
RISK = 0.05
# With 8 samples the interval of a median from the least to the largest has the level of one of six looks.
_FIRST_LOOK = 8
_GROWTH = 1.5


@lru_cache(maxsize=64)
def looks(trials: int) -> tuple[int, ...]:
    """Return at which numbers of samples a kernel with so many trials at most is looked at, ascending.

    The last is the number of trials itself. Nothing that was measured decides on them.
    """
    counts = [min(_FIRST_LOOK, trials)]
    while counts[-1] < trials:
        counts.append(min(trials, math.ceil(_GROWTH * counts[-1])))
    return tuple(counts)


def level_of_look(trials: int) -> float:
    """Return the confidence level of each look's interval, between 0 and 1.

    A kernel whose device time is spent before the next look is looked at a last time in place of that look.
    """
    return 1 - RISK / len(looks(trials))
