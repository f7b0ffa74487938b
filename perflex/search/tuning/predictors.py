"""What learns times from measured variants while tuning: a Gaussian process over the logarithms of times."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

# Hyperparameters that are tried. Columns are standardised, so that scales are of the order of 1; noise and trend are
# relative to the smooth part.
_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)
_NOISES = (1e-4, 1e-3, 1e-2, 1e-1)
_LINEAR = (0.0, 1.0)
# Factors on a column's scale in a trial, how often all columns are gone through, and by how much the density's
# logarithm must grow for it.
_FACTORS = (0.3, 3.0)
_SWEEPS = 3
_GAIN = 0.5
# With more variants the columns keep one scale: each trial inverts a matrix of their number.
_MOST_SCALED = 150
# Rows whose distances are computed at once: keeps the table of 100,000 variants out of memory.
_BLOCK = 8192


@dataclass(frozen=True)
class Forecast:
    """What is predicted of all variants.

    Attributes
    ----------
    logs
        Logarithm of each variant's time in seconds, shape ``(n,)``.
    deviations
        Standard deviation of each, shape ``(n,)``; zero where it is not known.
    unseen
        Logarithms of the measured variants' times, each predicted without its own measurement, shape ``(m,)``.
    """

    logs: Array
    deviations: Array
    unseen: Array


class Predictor(Protocol):
    """Learns from some variants and predicts all."""

    def forecast(self, measured: Indices, seconds: Array) -> Forecast:
        """Fit to the measured variants and predict all.

        Parameters
        ----------
        measured
            Their numbers, shape ``(m,)``.
        seconds
            Their times, shape ``(m,)``.

        Raises
        ------
        CalibrationError
            They are too few, or do not determine what is to be learned.
        """
        ...


class GaussianPredictor:
    """A Gaussian process over logarithms of features: a linear trend and a smooth rest (Matern 5/2).

    Its noise, its trend and the scale of each feature are those of largest leave-one-out density. How well it predicts
    what it did not see is judged with one scale for all features: scales of their own were chosen knowing all
    measurements, and would look better than they are.

    Parameters
    ----------
    features
        Shape ``(n, d)``, finite. Columns of positive values are taken by their logarithms; constant ones are left out.
    prior
        Predicted seconds of each variant, shape ``(n,)``, e.g. of a calibration: the process then describes what
        measurements are beside it, and the prediction itself is one of its features.

    Raises
    ------
    CalibrationError
        All features are constant.
    """

    def __init__(self, features: Array, prior: Array | None = None) -> None:
        self._offset = np.zeros(len(features)) if prior is None else np.log(prior)
        columns = [np.log(column) if (column > 0).all() else column for column in features.T]
        if prior is not None:
            columns.append(self._offset)
        varied = [column for column in columns if np.ptp(column) > 1e-12 * max(1.0, float(np.abs(column).max()))]
        if not varied:
            msg = (
                "all variants have the same features, so that their times cannot be predicted; add features or tunables"
            )
            raise CalibrationError(msg)
        scaled = np.column_stack(varied)
        # The root of their number: distances must not grow with the number of features.
        self._points: Array = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0) / math.sqrt(len(varied))

    def forecast(self, measured: Indices, seconds: Array) -> Forecast:
        """Do what `Predictor.forecast` says."""
        if measured.size < 2:
            msg = f"{measured.size} measured variants are too few to learn from; measure at least 2"
            raise CalibrationError(msg)
        rest = np.log(seconds) - self._offset[measured]
        # Equal times have no spread; 1 keeps the division defined.
        centre, scale = float(rest.mean()), float(rest.std()) or 1.0
        targets = (rest - centre) / scale
        even = _with_one_scale(self._points[measured], targets)
        found = _with_own_scales(self._points[measured], targets, even)
        points = self._points[measured] * found.scales
        weights = found.inverse @ targets
        logs, deviations = np.empty(len(self._points)), np.empty(len(self._points))
        for first in range(0, len(self._points), _BLOCK):
            part = slice(first, first + _BLOCK)
            block = self._points[part] * found.scales
            # Mean and variance given the measurements: Rasmussen and Williams, Equations 2.25 and 2.26.
            across = _kernel(block, points, found.linear)
            # Variance before any measurement, the kernel's diagonal: 1 of Matern, the rest of the trend.
            own = 1.0 + found.linear * (1.0 + (block**2).sum(axis=1))
            logs[part] = across @ weights
            spread = own - ((across @ found.inverse) * across).sum(axis=1)
            deviations[part] = np.sqrt(np.maximum(spread, 0.0) + found.noise)
        return Forecast(
            self._offset + centre + scale * logs,
            scale * deviations * _amplitude(targets, weights),
            self._offset[measured] + centre + scale * even.unseen,
        )


@dataclass(frozen=True)
class _Process:
    """Hyperparameters with their leave-one-out density, predictions of the left out, and the inverse covariance."""

    scales: Array
    noise: float
    linear: float
    density: float
    unseen: Array
    inverse: Array


def _with_one_scale(points: Array, targets: Array) -> _Process:
    """Return the process of largest leave-one-out density with the same scale for all columns."""
    choices = itertools.product(_SCALES, _NOISES, _LINEAR)
    return max(
        (_process(points, targets, np.full(points.shape[1], scale), noise, linear) for scale, noise, linear in choices),
        key=lambda found: found.density,
    )


def _with_own_scales(points: Array, targets: Array, best: _Process) -> _Process:
    """Return a process with a scale for each column, found one column at a time."""
    if len(targets) > _MOST_SCALED:
        return best
    for _ in range(_SWEEPS):
        before = best.density
        for column in range(points.shape[1]):
            for factor in _FACTORS:
                scales = best.scales.copy()
                scales[column] *= factor
                trial = _process(points, targets, scales, best.noise, best.linear)
                # A column is not scaled for what chance explains as well.
                if trial.density > best.density + _GAIN:
                    best = trial
        if best.density == before:
            break
    return best


def _process(points: Array, targets: Array, scales: Array, noise: float, linear: float) -> _Process:
    """Return a process with its leave-one-out density; the amplitude is the one of largest density.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), Section 5.4.2.
    """
    scaled = points * scales
    # Without 1e-8, variants with the same features would make the matrix singular.
    inverse = np.linalg.inv(_kernel(scaled, scaled, linear) + (noise + 1e-8) * np.eye(len(targets)))
    precision = np.maximum(np.diag(inverse), 1e-12)
    # Residuals without the own measurement, from one inverse and no further fit (Equation 5.12 there).
    errors = inverse @ targets / precision
    amplitude = float((errors**2 * precision).mean())
    density = 0.5 * float(np.log(precision).sum()) - 0.5 * len(targets) * math.log(max(amplitude, 1e-300))
    return _Process(scales, noise, linear, density, targets - errors, np.asarray(inverse, dtype=np.float64))


def _kernel(left: Array, right: Array, linear: float) -> Array:
    """Return a linear trend and Matern's covariance of smoothness 5/2 (Rasmussen and Williams, Equation 4.17)."""
    product = left @ right.T
    squared = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * product
    # Rounding may leave the expanded square of equal points slightly negative.
    distance = np.sqrt(5 * np.maximum(squared, 0.0))
    values: Array = (1 + distance + distance**2 / 3) * np.exp(-distance)
    # A trend's covariance is that of a line with random slope and offset.
    return values + linear * (1 + product) if linear else values


def _amplitude(targets: Array, weights: Array) -> float:
    # The weights are K^-1 y: y'K^-1 y / n is the most likely squared amplitude.
    return math.sqrt(max(float(targets @ weights) / len(targets), 1e-12))
