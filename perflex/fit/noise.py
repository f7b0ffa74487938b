"""How large residuals are, row by row: the noise that was measured and a part that the model leaves out.

The variance of a row's residual is taken as ``a + b n**2``: n is the measured noise of rows with similar times, a what
the model does not describe, and b what the noise of single timings means for the statistic that was fitted. Both come
from the residuals, by likelihood. Where no noise was measured, variances follow a power of the time, if residuals show
that they do (a likelihood ratio beyond chance), else they are equal. Variance functions of these kinds: Carroll and
Ruppert, Transformation and Weighting in Regression (1988), chapter 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from perflex.fit.loss import robust_loss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

Kind = Literal["constant", "measured", "power"]

# Half a decade: the reach, as a standard deviation of log time, within which rows tell of each other's noise.
_BANDWIDTH = math.log(10) / 2
_STEP = _BANDWIDTH / 20
# Of the typical noise, the least that a row may have: none of the few samples differed, which is chance.
_LEAST_NOISE = 1e-2
# A spread beyond the time itself (two ways to run, say) tells no more of how the median of the samples varies.
_MOST_NOISE = 1.0
_RATIOS = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 81)])
# Noise of a fixed size in seconds has the power -2; the other sign is for absolute residuals.
_POWERS = np.linspace(-2.0, 2.0, 81)
# The 95 % quantile of chi-squared with one degree of freedom, for twice the logarithm of a ratio of likelihoods.
_BEYOND_CHANCE = 3.841
# Deviations beyond which a residual counts as this large under a robust loss.
_CLIPPED = 3.0
# Variances decide how much of the errors is left in residuals, and that the variances.
_PASSES = 3
_LEAST_LEFT = 1e-6


@dataclass(frozen=True, eq=False)
class ResidualNoise:
    """Standard deviation of residuals as a function of the output, usually a time.

    Attributes
    ----------
    kind
        ``"measured"``: from the rows' measured noise; ``"power"``: a power of the output; ``"constant"``.
    scale
        Standard deviation of a residual where the shape is one; relative, or in the output's unit.
    ratio
        Share of measured noise beside what the model leaves out (kind measured), or the power of the variance.
    log_output, log_noise
        Of the rows whose noise is known, shape ``(k,)``; empty for other kinds.
    limits
        Range of log output within which a power holds; beyond it the ends' values stay.
    relative
        Whether residuals are relative to the output.
    """

    kind: Kind
    scale: float
    ratio: float
    log_output: NDArray[np.float64]
    log_noise: NDArray[np.float64]
    limits: tuple[float, float]
    relative: bool

    def shape(self, output: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard deviation over `scale` at each output, shape ``(r,)``; one for a constant."""
        shape: Array = np.sqrt(_squared_shape(self.kind, self.ratio, self.basis(output)))
        return shape

    def deviation(self, output: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard deviation of a residual at each output, shape ``(r,)``."""
        return self.scale * self.shape(output)

    def basis(self, output: Array) -> Array:
        """Return what the ratio multiplies: squares of measured noise, or log output; shape ``(r,)``."""
        if self.kind == "constant":
            return np.zeros(len(output))
        # No time is zero or below; a prediction may be, and takes the noise of the shortest rows.
        log_output = np.log(np.clip(output, *np.exp(self.limits)))
        if self.kind == "power":
            return log_output - sum(self.limits) / 2
        places, smoothed = self._table
        squared: Array = np.exp(2 * np.interp(log_output, places, smoothed))
        return squared if self.relative else squared * output**2

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """Smoothed log noise over log output: a mean over the rows, weighted by their distance."""
        # Much finer than the smoothing is wide; predictions of many thousand variants look it up.
        places = np.linspace(*self.limits, 2 + int((self.limits[1] - self.limits[0]) / _STEP))
        distance = ((places[:, None] - self.log_output) / _BANDWIDTH) ** 2 / 2
        weight = np.exp(distance.min(axis=1, keepdims=True) - distance)
        return places, weight @ self.log_noise / weight.sum(axis=1)


def _squared_shape(kind: Kind, ratio: float | Array, basis: Array) -> Array:
    return np.exp(ratio * basis) if kind == "power" else 1.0 + ratio * basis


def measured_noise(table: FeatureTable) -> NDArray[np.float64] | None:
    """Return the relative noise of each row's output, shape ``(m,)``, nan where not known; None without any.

    The rows' repeatability where at least half have one, for it is that of the statistic that was fitted; else the
    spread of single timings.
    """
    for column in (table.repeatability, table.spread):
        if column is None:
            continue
        known = np.isfinite(column)
        if known.any() and 2 * known.sum() >= len(column) and (column[known] > 0).any():
            return np.asarray(column, dtype=np.float64)
    return None


def residual_noise(
    output: Array,
    residual: Array,
    basis: Array,
    noise: Array | None,
    *,
    relative: bool,
    deviation: float,
    robust: bool = False,
) -> ResidualNoise:
    """Return how large residuals are.

    Parameters
    ----------
    output
        Measured output of each row, shape ``(m,)``.
    residual
        Residual of each row, shape ``(m,)``.
    basis
        Orthonormal columns that span those of the fit's Jacobian, shape ``(m, p)``: residuals lack what lies in them.
    noise
        Measured relative noise of each row, shape ``(m,)``, nan where not known; None without any.
    relative
        Whether residuals are relative to the output.
    deviation
        Standard deviation of residuals, if it is the same for all.
    robust
        Whether few residuals may be far too large, as under a robust loss.
    """
    nothing = np.zeros(0)
    positive = bool((output > 0).all())
    logs = np.log(output) if positive else nothing
    limits = (float(logs.min()), float(logs.max())) if positive else (0.0, 0.0)
    constant = ResidualNoise("constant", deviation, 0.0, nothing, nothing, limits, relative)
    if not positive or not deviation > 0:
        return constant
    judged = np.clip(residual, -_CLIPPED * deviation, _CLIPPED * deviation) if robust else residual
    # The share of the rows' errors that is left in each residual; what noisy rows do to the parameters is in it, too.
    left = (np.eye(len(output)) - basis @ basis.T) ** 2
    spare = left.sum(axis=1)
    found = constant
    for _ in range(_PASSES):
        squares = found.shape(output) ** 2
        error = judged / np.sqrt(np.maximum(left @ squares / squares, _LEAST_LEFT))
        found = _found(constant, logs, noise, error, spare)
    if found.kind == "constant":
        return constant
    standard = error / found.shape(output)
    scale = math.sqrt(float(spare @ standard**2) / float(spare.sum()))
    if robust:
        scale = robust_loss(standard * np.sqrt(spare), round(float(spare.sum())), 0.0)[1]
    return replace(found, scale=scale)


def _found(constant: ResidualNoise, logs: Array, noise: Array | None, error: Array, spare: Array) -> ResidualNoise:
    """Return the noise that makes errors likeliest: measured, a power if that is better beyond chance, or constant."""
    output = np.exp(logs)
    best, best_gain = constant, 0.0
    if noise is not None:
        known = np.isfinite(noise)
        least = _LEAST_NOISE * float(np.median(noise[known & (noise > 0)]))
        log_noise = np.log(np.clip(noise[known], least, max(_MOST_NOISE, 2 * least)))
        measured = replace(constant, kind="measured", log_output=logs[known], log_noise=log_noise)
        # The ratio of noise to the rest in a typical row.
        ratios = _RATIOS / float(np.median(measured.basis(output)))
        ratio, best_gain = _likeliest(measured, ratios, output, error, spare)
        best = replace(measured, ratio=ratio) if ratio > 0 else constant
    power = replace(constant, kind="power")
    ratio, gain = _likeliest(power, _POWERS, output, error, spare)
    return replace(power, ratio=ratio) if 2 * (gain - best_gain) > _BEYOND_CHANCE else best


def _likeliest(noise: ResidualNoise, ratios: Array, output: Array, error: Array, spare: Array) -> tuple[float, float]:
    """Return the likeliest ratio for normal errors, and the log likelihood that it gains over equal variances."""
    shapes = np.sqrt(_squared_shape(noise.kind, ratios[:, None], noise.basis(output)))
    # Each row counts by what its residual leaves over; the scale is the likeliest one.
    surprise = float(spare.sum()) / 2 * np.log((error / shapes) ** 2 @ spare) + np.log(shapes) @ spare
    best, equal = int(np.argmin(surprise)), int(np.argmin(np.abs(ratios)))
    return float(ratios[best]), float(surprise[equal] - surprise[best])
