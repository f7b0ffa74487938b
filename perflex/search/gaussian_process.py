"""A Gaussian process over columns of numbers: what the times of measured variants say of the others.

The covariance is a linear trend and a smooth rest (Matern 3/2), with a length scale for each column. All of them, the
noise and the trend's weight are those of largest posterior density given the measurements: without priors, the scales
of many columns would follow the noise of few measurements.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006); equations are theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

# Mean and standard deviation of the logarithms of what is found, each normal before any measurement: a column's inverse
# length scale beside that of all columns, then that of all, noise, trend and smooth rest. Columns are standardised and
# targets have variance 1, so that all but noise and trend are of the order of 1.
_COLUMN = (0.0, 0.6)
_OTHERS = ((0.0, 1.0), (np.log(1e-2), 1.5), (np.log(0.3), 2.0), (0.0, 1.0))
# Steps of the search for them; few suffice where it begins at what fitted fewer measurements.
_STEPS, _FEW_STEPS = 60, 20
# Most rows that they are fitted to: each step inverts a matrix of that size.
_MOST_ROWS = 300
# Without it, rows with the same columns would make the covariance singular.
_JITTER = 1e-8
# Parts of the measured rows, each predicted by a fit to the others.
_FOLDS = 5
# Rows that are predicted at once: keeps the table of 100,000 variants out of memory.
_BLOCK = 8192
# In the common order, places among the first few say little, and a place with what was learned counts twice.
_EVEN = 3.0
_LEARNED = 2.0


@dataclass(frozen=True)
class Columns:
    """What is known of variants: columns on even scales, shape ``(n, d)``, and logarithms of expected times, ``(n,)``.

    The latter are None where nothing is expected.
    """

    table: Array
    logs: Array | None = None


@dataclass(frozen=True)
class Forecast:
    """What is predicted of all variants: the logarithm of each one's time and its standard deviation, ``(n,)``."""

    logs: Array
    deviations: Array
    # Logarithms of the times without what was learned, shape ``(n,)``; None where nothing was expected.
    expected: Array | None = None

    @property
    def interval(self) -> Array:
        """The times between which 95 % are expected, shape ``(2, n)``."""
        limits: Array = np.exp(self.logs + np.array([[-1.96], [1.96]]) * self.deviations)
        return limits

    @cached_property
    def order(self) -> Indices:
        """Variants, the most promising first, from their places with and without what was learned, shape ``(n,)``.

        Reciprocal rank fusion (Cormack, Clarke, Buettcher, SIGIR 2009): of ``n`` variants one is the fastest, which is
        often one that is misjudged; what either prediction puts among its first stays among the first.
        """
        if self.expected is None:
            return np.argsort(self.logs, kind="stable")
        score = 1 / (_EVEN + _places(self.expected)) + _LEARNED / (_EVEN + _places(self.logs))
        return np.argsort(-score, kind="stable")


def _places(logs: Array) -> Indices:
    return np.argsort(np.argsort(logs, kind="stable"))


class GaussianProcess:
    """Learns logarithms of times from measured rows of a table and predicts all rows.

    Each fit begins at what was found before, so that a search is fitted quickly again and again.
    """

    def __init__(self) -> None:
        self._found: Array | None = None

    def forecast(self, known: Columns, measured: Indices, seconds: Array) -> Forecast:
        """Return the forecast of all rows from the times of some, shape ``(m,)``.

        Where times are expected, what is learned is the rest, and they are one more column.
        """
        expected = known.logs
        before = np.zeros(len(known.table)) if expected is None else expected
        points = standardised(known.table if expected is None else np.column_stack([known.table, expected]))
        logs = np.log(seconds)
        rest = logs - before[measured]
        # Equal times have no spread; 1 keeps the division defined.
        centre, scale = float(rest.mean()), float(rest.std()) or 1.0
        targets = (rest - centre) / scale
        if self._found is not None and self._found.size != points.shape[1] + len(_OTHERS):
            self._found = None
        rows = _rows(logs)
        found = self._found = _most_probable(points[measured[rows]], targets[rows], self._found)
        seen = points[measured] * _scales(found)
        inverse = np.linalg.inv(_covariance(seen, seen, found) + _noise(found) * np.eye(len(targets)))
        weights = inverse @ targets
        predicted, deviations = np.empty(len(points)), np.empty(len(points))
        for first in range(0, len(points), _BLOCK):
            part = slice(first, first + _BLOCK)
            block = points[part] * _scales(found)
            # Mean and variance given the measurements (Equations 2.25 and 2.26).
            across = _covariance(block, seen, found)
            own = np.exp(found[-1]) * (1 + np.exp(found[-2]) * (1 + (block**2).sum(axis=1)))
            predicted[part] = across @ weights
            spread = own - ((across @ inverse) * across).sum(axis=1)
            deviations[part] = np.sqrt(np.maximum(spread, 0.0) + _noise(found))
        return Forecast(before + centre + scale * predicted, scale * deviations, expected)

    def unseen(self, known: Columns, measured: Indices, seconds: Array) -> Forecast:
        """Return the forecast of the measured rows, two or more, each by a fit without its fifth, shape ``(m,)``."""
        count = len(measured)
        logs, deviations = np.empty(count), np.empty(count)
        fold = np.random.default_rng(0).permutation(count) % min(_FOLDS, count)
        for number in range(fold.max() + 1):
            others, left_out = fold != number, measured[fold == number]
            process = GaussianProcess()
            process._found = self._found
            found = process.forecast(known, measured[others], seconds[others])
            logs[fold == number], deviations[fold == number] = found.logs[left_out], found.deviations[left_out]
        return Forecast(logs, deviations)


def standardised(table: Array) -> Array:
    """Return columns with mean 0 and variance 1 / d, constant ones left out, shape ``(n, at most d)``."""
    varied = np.ptp(table, axis=0) > 1e-12 * np.maximum(1.0, np.abs(table).max(axis=0))
    columns = table[:, varied]
    # The root of their number: distances must not grow with it.
    found: Array = (columns - columns.mean(axis=0)) / (columns.std(axis=0) * max(1, columns.shape[1]) ** 0.5)
    return found


def _rows(logs: Array) -> Indices:
    """Return the rows that scales are fitted to: of many the fastest, and some of the others."""
    if len(logs) <= _MOST_ROWS:
        return np.arange(len(logs))
    ranked = np.argsort(logs, kind="stable")
    rest = np.random.default_rng(0).permutation(ranked[_MOST_ROWS // 2 :])
    return np.concatenate([ranked[: _MOST_ROWS // 2], rest[: _MOST_ROWS - _MOST_ROWS // 2]])


def _scales(found: Array) -> Array:
    scales: Array = np.exp(found[: -len(_OTHERS)] + found[-len(_OTHERS)])
    return scales


def _noise(found: Array) -> float:
    return float(np.exp(found[-3])) + _JITTER


def _covariance(left: Array, right: Array, found: Array) -> Array:
    """Return the covariance of rows in length scales (Equation 4.17 and a line of random slope and offset)."""
    product = left @ right.T
    root = _distance(left, right, product)
    values: Array = np.exp(found[-1]) * ((1 + root) * np.exp(-root) + np.exp(found[-2]) * (1 + product))
    return values


def _distance(left: Array, right: Array, product: Array) -> Array:
    squared = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * product
    # Rounding may leave the expanded square of equal rows slightly negative.
    distance: Array = np.sqrt(3 * np.maximum(squared, 0.0))
    return distance


def _most_probable(points: Array, targets: Array, begin: Array | None) -> Array:
    """Return logarithms of the columns' scales, then of `_OTHERS`: those of largest posterior density."""
    from scipy.optimize import minimize

    columns = points.shape[1]
    priors = np.array([*([_COLUMN] * columns), *_OTHERS])
    middle, spread = priors[:, 0], priors[:, 1]
    count = len(targets)
    squares = points**2

    def cost(found: Array) -> tuple[float, Array]:
        scales = _scales(found)
        trend, smooth = np.exp(found[-2:])
        rows = points * scales
        product = rows @ rows.T
        root = _distance(rows, rows, product)
        fading = np.exp(-root)
        shape, line = (1 + root) * fading, 1 + product
        covariance = smooth * (shape + trend * line) + _noise(found) * np.eye(count)
        away = (found - middle) / spread
        try:
            half_log = np.log(np.diag(np.linalg.cholesky(covariance))).sum()
        except np.linalg.LinAlgError:  # a step too far, where rounding makes rows equal
            return 1e10, away / spread
        inverse = np.linalg.inv(covariance)
        weights = inverse @ targets
        value = half_log + 0.5 * (targets @ weights + away @ away)
        # Derivative by each entry of the covariance (Equation 5.9), then by what each entry is made of.
        pull = 0.5 * (inverse - np.outer(weights, weights))
        near = -1.5 * smooth * pull * fading
        by_scale = 4 * scales**2 * (near.sum(axis=1) @ squares - ((near @ points) * points).sum(axis=0))
        by_scale += 2 * smooth * trend * scales**2 * ((pull @ points) * points).sum(axis=0)
        by_others = (
            by_scale.sum(),
            np.exp(found[-3]) * np.trace(pull),
            smooth * trend * (pull * line).sum(),
            smooth * (pull * (shape + trend * line)).sum(),
        )
        return float(value), np.concatenate([by_scale, by_others]) + away / spread

    start, steps = (middle, _STEPS) if begin is None else (begin, _FEW_STEPS)
    # Beyond these bounds numbers are no longer told apart; the posterior density has long vanished there.
    bounds = [(-8.0, 4.0)] * (columns + 1) + [(-15.0, 4.0)] * 3
    best = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return np.asarray(best.x, dtype=np.float64)
