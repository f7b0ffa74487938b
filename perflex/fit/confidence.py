"""Confidence intervals of parameters that bounds may hold: profile likelihood with Feldman and Cousins' limits.

Of two costs that the kernels hardly tell apart a bound holds one at zero, and the linearised error of the other then
takes that zero for certain. What is known is the sum of both, and so each lies between zero and the sum.

The interval of a parameter holds each value v at which the fit with the parameter kept at v, all bounds in force, has a
sum of squares that is larger than the best one by no more than a limit c(v). Beside a bound that difference does not
follow the distribution of ``t**2`` (Self and Liang, J. Am. Stat. Assoc. 82, 605, 1987), and its quantile would hold the
truth nearly always. So c(v) is the quantile of the same difference among simulated measurements of the model at v, the
other parameters where the fit puts them (Feldman and Cousins, Phys. Rev. D 57, 3873, 1998; with nuisance parameters:
Cranmer, PHYSTAT 2005). The model is linearised at its solution, as for standard errors, but in the coordinates that
the fit moves (`perflex.fit.coordinates`): an interval of a rate is that of its cost.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from perflex.fit.identify import independent_slopes, scaled_slopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.fit.coordinates import Coordinates
    from perflex.fit.problem import Problem

    Array = NDArray[np.float64]

Kind = Literal["constant", "measured", "power"]

# Half a decade: the length scale, as a standard deviation of log time, within which rows tell of each other's noise.
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
# Variances decide how much of the errors is left in residuals, and that the variances.
_PASSES = 3
_LEAST_LEFT = 1e-6


@dataclass(frozen=True, eq=False)
class ResidualNoise:
    """Standard deviation of residuals as a function of the output, usually a time."""

    kind: Kind
    # Standard deviation of a residual where the shape is one; relative, or in the output's unit.
    scale: float
    # Share of measured noise beside what the model leaves out (kind measured), or the power of the variance.
    ratio: float
    # Of the rows whose noise is known, shape ``(k,)``; empty for other kinds.
    log_output: NDArray[np.float64]
    log_noise: NDArray[np.float64]
    # Range of log output within which a power holds; beyond it the ends' values stay.
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


def residual_noise(problem: Problem, residual: Array, basis: Array, deviation: float) -> ResidualNoise:
    """Return how large residuals are, shape ``(m,)``, if `deviation` is that of all.

    Residuals lack what lies in the orthonormal columns of the basis, which span those of the fit's Jacobian. Their
    variance is taken as ``a + b n**2``, n the measured noise of rows with similar times; where none was measured, it
    follows a power of the time if residuals show that it does, else it is the same for all (variance functions: Carroll
    and Ruppert, Transformation and Weighting in Regression, 1988, chapter 3).
    """
    output = problem.output
    nothing = np.zeros(0)
    positive = bool((output > 0).all())
    logs = np.log(output) if positive else nothing
    limits = (float(logs.min()), float(logs.max())) if positive else (0.0, 0.0)
    constant = ResidualNoise("constant", deviation, 0.0, nothing, nothing, limits, problem.relative)
    if not positive or not deviation > 0:
        return constant
    # The share of the rows' errors that is left in each residual; what noisy rows do to the parameters is in it, too.
    left = (np.eye(len(output)) - basis @ basis.T) ** 2
    spare = left.sum(axis=1)
    found = constant
    for _ in range(_PASSES):
        squares = found.shape(output) ** 2
        error = residual / np.sqrt(np.maximum(left @ squares / squares, _LEAST_LEFT))
        found = _found(constant, logs, problem.noise, error, spare)
    if found.kind == "constant":
        return constant
    standard = error / found.shape(output)
    scale = math.sqrt(float(spare @ standard**2) / float(spare.sum()))
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


LEVEL = 0.95
# Standard errors from its bound at which a parameter no longer feels it.
_FAR = 4.0
# Bounds that are followed together: the work grows as two to that power.
_MOST_BOUNDS = 6
# Correlation with all parameters near a bound below which these move an interval by nothing.
_UNRELATED = 0.05
# The simulated quantile of 95 % has a standard deviation of one per cent of probability.
_SIMULATED = 500
_DOUBLINGS = 40
_HALVINGS = 20
# Of the standard error that the parameter would have if all others were known: how well ends are found.
_END_TOLERANCE = 0.1
# Rise of the sum of squares, in variances, up to which other parameters may be at their bounds.
_ALLOWED = 4.0


def parameter_intervals(problem: Problem, x: Array, determined: Sequence[int], coordinates: Coordinates) -> Array:
    """Return the 95 % confidence interval of each parameter of a fit, shape ``(n, 2)``; nan where not determined."""
    chosen = list(determined)
    jacobian, residual = _without_bounds(problem, x)
    jacobian = jacobian[:, chosen]
    found = np.full((len(x), 2), np.nan)
    freedom = len(residual) - len(chosen)
    if freedom > 0 and chosen:
        basis = independent_slopes(jacobian)[0]
        spare = residual - basis @ (basis.T @ residual)
        noise = residual_noise(problem, spare, basis, float(np.linalg.norm(spare)) / np.sqrt(freedom))
        deviation = noise.deviation(problem.output)
        found[chosen] = _in_coordinates(jacobian, residual, deviation, x, chosen, coordinates)
    return found


def _without_bounds(problem: Problem, x: Array) -> tuple[Array, Array]:
    """Return Jacobian, shape ``(m, n)``, and residual, shape ``(m,)``, of the fit without bounds."""
    predicted = problem.predict(x)
    if problem.kind != "relative" or not (predicted > 0).all():
        return problem.jacobian(x), problem.residual(x)
    # Residuals divided by their own measurement pull a fit down by twice their variance: a row measured too small
    # counts too much. Divided by the prediction they do not (McCullagh and Nelder, Generalized Linear Models,
    # 1989, chapter 9), so that intervals hold the true costs however many rows there are.
    ratio = problem.output / predicted
    return problem.jacobian(x) * ratio[:, None], 1.0 - ratio


def _in_coordinates(
    jacobian: Array, residual: Array, deviation: Array, x: Array, chosen: list[int], coordinates: Coordinates
) -> Array:
    """Return the intervals of the chosen parameters, shape ``(k, 2)``."""
    places = (np.cumsum(coordinates.moving) - 1)[chosen]
    point = coordinates.inner(x)
    u, slopes = point[places], coordinates.slopes(point)[places]
    lower, upper = (bound[places] for bound in coordinates.bounds())
    # What must not be negative is the distance from the nearer bound; ends are cut off at the other one.
    side = np.where(upper - u < u - lower, -1.0, 1.0)
    bound = np.where(side > 0, lower, upper)
    bounded = np.isfinite(bound)
    origin = np.where(bounded, bound, 0.0)
    found = confidence_intervals(jacobian * slopes * side, residual, side * (u - origin), bounded, deviation)
    found = np.clip(np.sort(origin[:, None] + side[:, None] * found, axis=1), lower[:, None], upper[:, None])
    ends = np.empty_like(found)
    for end in (0, 1):
        point[places] = found[:, end]
        ends[:, end] = coordinates.outer(point)[chosen]
    # Of a rate whose cost may be zero, the least that it can be, or below, no largest value is known.
    vanishing = [coordinates.kinds[i] == "rate" for i in chosen] & (found[:, 0] <= np.maximum(lower, 0.0))
    ends[:, 0] = np.where(vanishing, np.inf, ends[:, 0])
    return np.sort(ends, axis=1)


def confidence_intervals(
    jacobian: Array, residual: Array, values: Array, bounded: NDArray[np.bool_], deviation: Array
) -> Array:
    """Return the 95 % confidence interval of each parameter of a linearised fit, shape ``(n, 2)``.

    The Jacobian has full column rank; the residual is at `values`, those `bounded` must not be negative, and
    `deviation` is that of each row's residual, known from as many rows as there are to spare.
    """
    rows, count = jacobian.shape
    freedom = rows - count
    from scipy.stats import t as student

    columns, length = scaled_slopes(jacobian)
    left, singular, directions = np.linalg.svd(columns, full_matrices=False)
    # Where the fit without bounds would be, in columns of length one, and a root of its covariance.
    free = values * length - directions.T @ (left.T @ residual / singular)
    root = directions.T / singular @ (left * deviation[:, None]).T
    error = np.linalg.norm(root, axis=1)
    half_width = float(student.ppf((1 + LEVEL) / 2, freedom)) * error
    found = np.column_stack([free - half_width, free + half_width])
    # An exact fit leaves nothing open.
    if (error > 0).all():
        near = _near_bounds(free, error, bounded)
        for index in range(count):
            others = [i for i in near if i != index]
            if index in near or _related(root, index, others):
                chosen = [index, *others]
                part = _Part(root[chosen], free[chosen], bounded[chosen], freedom)
                found[index] = part.interval()
    intervals: Array = found / length[:, None]
    return intervals


def _near_bounds(free: Array, error: Array, bounded: NDArray[np.bool_]) -> list[int]:
    """Return the parameters that feel their bound, those that feel it most first."""
    distance = np.where(bounded, free / error, np.inf)
    near = [int(i) for i in np.argsort(distance) if distance[i] < _FAR]
    return near[:_MOST_BOUNDS]


def _related(root: Array, index: int, others: Sequence[int]) -> bool:
    size = np.linalg.norm(root, axis=1)
    return any(abs(float(root[index] @ root[i])) > _UNRELATED * size[index] * size[i] for i in others)


class _LeastSquares:
    """Least sum of squares of ``target - columns @ x`` where some x must not be negative.

    The minimum is that of the free problem over some of the x, the others zero. Of all such that are allowed the
    least is it, for none lies below. With few bounds trying all is fastest, for all targets together.
    """

    def __init__(self, columns: Array, bounded: NDArray[np.bool_]) -> None:
        self._columns = columns
        self._bounded = bounded
        count = columns.shape[1]
        held = np.flatnonzero(bounded).tolist()
        zeros = (zero for size in range(len(held) + 1) for zero in itertools.combinations(held, size))
        # The inverse over the moving columns, rows of zeros for the others.
        self._inverses = [self._inverse([i for i in range(count) if i not in zero]) for zero in zeros]

    def _inverse(self, moving: Sequence[int]) -> Array:
        inverse = np.zeros(self._columns.shape[::-1])
        if moving:
            inverse[moving] = np.linalg.pinv(self._columns[:, moving])
        return inverse

    def __call__(self, target: Array) -> tuple[Array, Array]:
        """Return the least sum for each column of `target`, shape ``(M,)``, and where it is, shape ``(k, M)``."""
        best, where = np.full(target.shape[1], np.inf), np.zeros((self._columns.shape[1], target.shape[1]))
        for inverse in self._inverses:
            x = inverse @ target
            rest = target - self._columns @ x
            squares = np.einsum("ij,ij->j", rest, rest)
            better = squares < best
            if self._bounded.any():
                better &= (x[self._bounded] >= 0).all(axis=0)
            if better.any():
                best, where = np.where(better, squares, best), np.where(better, x, where)
        return best, where


class _Part:
    """The parameter of interest, first, with those near their bounds; all others follow them freely."""

    def __init__(self, root: Array, free: Array, bounded: NDArray[np.bool_], freedom: int) -> None:
        # root root' is the covariance; whitened by the inverse of its triangular root, errors are one and independent.
        self._columns = np.linalg.inv(np.linalg.qr(root.T, mode="r")).T
        self._target = (self._columns @ free)[:, None]
        self._over_all = _LeastSquares(self._columns, bounded)
        self._over_others = _LeastSquares(self._columns[:, 1:], bounded[1:])
        self._bounded = bool(bounded[0])
        # With one of the others at its bound each.
        self._at_bound = [
            (i, _LeastSquares(np.delete(self._columns, i, axis=1)[:, 1:], np.delete(bounded, i)[1:]))
            for i in range(1, len(free))
        ]
        random = np.random.default_rng(0)
        self._noise = random.standard_normal((len(free), _SIMULATED))
        self._variance = random.chisquare(freedom, _SIMULATED) / freedom
        least, best = self._over_all(self._target)
        self._least, self._best = float(least[0]), float(best[0, 0])
        # The standard error that it would have if all others were known: ends may lie as close as that.
        self._step = 1.0 / float(np.linalg.norm(self._columns[:, 0]))

    def _margin(self, value: float) -> float:
        """Return how far a value lies outside of the interval: above zero there, below inside."""
        fixed = value * self._columns[:, :1]
        squares, others = self._over_others(self._target - fixed)
        excess = float(squares[0]) - self._least
        truths = [fixed + self._columns[:, 1:] @ others]
        for i, least_squares in self._at_bound:
            kept, rest = least_squares(self._target - fixed)
            # What the others are is not known either: the largest limit of those that the data allow decides.
            if others[i - 1, 0] > 0 and float(kept[0]) - float(squares[0]) <= _ALLOWED:
                truths.append(fixed + np.delete(self._columns, i, axis=1)[:, 1:] @ rest)
        return excess - max(self._limit(truth, fixed) for truth in truths)

    def _limit(self, truth: Array, fixed: Array) -> float:
        simulated = truth + self._noise
        kept, least = self._over_others(simulated - fixed)[0], self._over_all(simulated)[0]
        return float(np.quantile((kept - least) / self._variance, LEVEL))

    def interval(self) -> tuple[float, float]:
        """Return both ends."""
        upper = self._end(self._step)
        if not self._bounded:
            return self._end(-self._step), upper
        lower = 0.0 if self._best <= 0 or self._margin(0.0) <= 0 else self._end(-min(self._step, self._best))
        return max(lower, 0.0), upper

    def _end(self, step: float) -> float:
        # The best value of all is inside: its excess is zero. Beyond it the steps double until they lead outside.
        inside, inner, outside, outer = self._best, 0.0, self._best, 0.0
        for _ in range(_DOUBLINGS):
            outside += step
            if (outer := self._margin(outside)) > 0:
                break
            inside, inner, step = outside, outer, 2 * step
        for _ in range(_HALVINGS):
            if abs(outside - inside) <= _END_TOLERANCE * self._step:
                break
            middle = (inside + outside) / 2
            if (margin := self._margin(middle)) > 0:
                outside, outer = middle, margin
            else:
                inside, inner = middle, margin
        return inside + (outside - inside) * inner / (inner - outer)
