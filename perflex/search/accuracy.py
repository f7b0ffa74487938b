"""How accurate predicted times are: errors, the order of variants, and what a choice by prediction costs.

One number hides the others: a geometric mean is small if a few predictions are exact by chance, whatever the rest. So
all measures are computed together, see docs/explanation/judging.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.fit.result import geometric_mean_error

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

# Variants count as different when their times are further apart than this fraction (paper Section 8.4).
DIFFERENT = 0.07
# A variant is as good as the best one within this fraction of its time.
NEAR_BEST = 0.05
# Two measured values that are to be told apart by chance alone need at least this many variants.
_LEAST_VARIANTS = 2


@dataclass(frozen=True)
class Accuracy:
    """Measures of predicted times; fractions where nothing else is said (0.04 is 4 %).

    A group holds the variants of one computation at one size: what somebody chooses among. Groups of one variant count
    in the errors only. Where predictions are equal their order is taken as drawn by lot, and what is given is the
    expected value: a prediction that is the same for all variants ranks half of the pairs right.

    Attributes
    ----------
    cases
        Number of predicted times.
    geometric_mean, median, rms, maximum
        Of the relative errors ``|predicted/measured - 1|``; errors below 1e-6 count as 1e-6 in the geometric mean.
    factor
        Typical factor between predicted and measured time, ``exp(mean |ln(predicted/measured)|)``; at least 1.
    groups
        Number of groups with two or more variants. Without any, all shares and losses below are nan.
    spearman
        Mean over groups of Spearman's rank correlation of predicted and measured times (ties have their mean rank; 0
        where all predictions of a group are equal), of groups whose measured times are not all equal.
    pairs
        Number of pairs in one group whose measured times differ by more than 7 %.
    pairs_right
        Share of them that is predicted in the right order; nan without any.
    loss_median, loss_mean, loss_p90, loss_worst
        Loss of the predicted best: by which fraction its measured time is above the lowest of its group. Over groups:
        median, mean, 90th percentile (interpolated), largest.
    best_found
        Share of groups in which the predicted best is within 5 % of the lowest measured time.
    first_tenth
        Share of groups in which one within 5 % is in the first tenth (rounded up) of the predicted order.
    """

    cases: int
    geometric_mean: float
    median: float
    rms: float
    maximum: float
    factor: float
    groups: int
    spearman: float
    pairs: int
    pairs_right: float
    loss_median: float
    loss_mean: float
    loss_p90: float
    loss_worst: float
    best_found: float
    first_tenth: float

    @classmethod
    def of(cls, predicted: ArrayLike, measured: ArrayLike, groups: Sequence[Hashable]) -> Accuracy:
        """Compare predicted with measured times.

        Parameters
        ----------
        predicted, measured
            Times in seconds, shape ``(n,)``.
        groups
            The group of each, such as (family, size); n of them.

        Returns
        -------
        Accuracy
            All measures.

        Raises
        ------
        CalibrationError
            There are no times, not as many of each, or one is not a positive finite number.
        """
        made, known = _times(predicted, "predicted"), _times(measured, "measured")
        if not len(made) == len(known) == len(groups) > 0:
            msg = (
                f"{len(made)} predicted times, {len(known)} measured ones and {len(groups)} groups; accuracy needs as "
                "many of each, at least one"
            )
            raise CalibrationError(msg)
        errors = np.abs(made / known - 1)
        rows: dict[Hashable, list[int]] = {}
        for row, group in enumerate(groups):
            rows.setdefault(group, []).append(row)
        orders = [_Order(made[own], known[own]) for own in rows.values() if len(own) >= _LEAST_VARIANTS]
        losses = np.array([order.loss() for order in orders])
        pairs = [order.pairs() for order in orders]
        different = sum(total for total, _ in pairs)
        return cls(
            cases=len(made),
            geometric_mean=geometric_mean_error(errors),
            median=float(np.median(errors)),
            rms=float(np.sqrt(np.mean(errors**2))),
            maximum=float(errors.max()),
            factor=float(np.exp(np.mean(np.abs(np.log(made / known))))),
            groups=len(orders),
            spearman=_mean(value for order in orders if not math.isnan(value := order.spearman())),
            pairs=different,
            pairs_right=sum(right for _, right in pairs) / different if different else math.nan,
            loss_median=float(np.median(losses)) if orders else math.nan,
            loss_mean=_mean(losses),
            loss_p90=float(np.percentile(losses, 90)) if orders else math.nan,
            loss_worst=float(losses.max()) if orders else math.nan,
            best_found=_mean(order.near_best_among(1) for order in orders),
            first_tenth=_mean(order.near_best_among(math.ceil(len(order.made) / 10)) for order in orders),
        )

    def key(self, noise: float = 0.0) -> tuple[float, float]:
        """Return by what methods are chosen, the lowest first: the mean loss, then the rms of errors.

        Parameters
        ----------
        noise
            By which fraction measured times differ from one measurement to the next; smaller losses are chance, and
            count as none.
        """
        loss = 0.0 if math.isnan(self.loss_mean) or self.loss_mean <= noise else self.loss_mean
        return loss, self.rms


@dataclass(frozen=True, eq=False)
class _Order:
    """The variants of one group: predicted and measured seconds, shape ``(m,)`` with m >= 2."""

    made: Array
    known: Array

    def loss(self) -> float:
        chosen = self.known[self.made == self.made.min()]
        return float(chosen.mean() / self.known.min() - 1)

    def pairs(self) -> tuple[int, float]:
        """Return how many pairs differ, and how many of them are ranked right; a half for equal predictions."""
        slower = self.known[:, None] > (1 + DIFFERENT) * self.known[None, :]
        ahead = np.sign(self.made[:, None] - self.made[None, :])
        return int(slower.sum()), float(((ahead[slower] + 1) / 2).sum())

    def spearman(self) -> float:
        from scipy.stats import rankdata

        ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (self.made, self.known)]
        squares = [float(rank @ rank) for rank in ranks]
        if not squares[1]:
            return math.nan
        return float(ranks[0] @ ranks[1]) / math.sqrt(squares[0] * squares[1]) if squares[0] else 0.0

    def near_best_among(self, count: int) -> float:
        """Return the probability that one near the best is among the first `count` of the predicted order."""
        near = self.known <= (1 + NEAR_BEST) * self.known.min()
        last = np.sort(self.made)[count - 1]
        if near[self.made < last].any():
            return 1.0
        # Of those that share the last place, some are drawn by lot (a hypergeometric distribution).
        tied = self.made == last
        places = count - int((self.made < last).sum())
        none = math.comb(int((tied & ~near).sum()), places) / math.comb(int(tied.sum()), places)
        return 1.0 - none


def _times(values: ArrayLike, what: str) -> Array:
    times = np.asarray(values, dtype=np.float64)
    if times.ndim != 1:
        msg = f"{what} times have shape {times.shape}; accuracy needs one time per case, shape (n,)"
        raise CalibrationError(msg)
    wrong = np.flatnonzero(~(np.isfinite(times) & (times > 0)))
    if wrong.size:
        msg = (
            f"{wrong.size} of {times.size} {what} times are not positive finite numbers of seconds (the first is "
            f"{times[wrong[0]]} at place {wrong[0]}); leave out cases without a time, and say how many"
        )
        raise CalibrationError(msg)
    return times


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return float(np.mean(listed)) if listed else math.nan
