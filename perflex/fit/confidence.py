"""Confidence intervals of parameters that bounds may hold: profile likelihood with Feldman and Cousins' limits.

Without bounds ``value +- t * standard error`` is exact for a linear model. Where costs must not be negative it is not:
of two costs that the kernels hardly tell apart the bound holds one at zero, and the linearised error of the other then
takes that zero for certain. What is known is the sum of both, and so each lies between zero and the sum.

The interval of a parameter holds each value v at which the fit with the parameter kept at v, all bounds in force, has a
sum of squares that is larger than the best one by no more than a limit c(v). Beside a bound that difference does not
follow the distribution of ``t**2`` (Self and Liang, J. Am. Stat. Assoc. 82, 605, 1987), and its quantile would hold the
truth nearly always. So c(v) is the quantile of the same difference among simulated measurements of the model at v, the
other parameters where the fit puts them (Feldman and Cousins, Phys. Rev. D 57, 3873, 1998; with nuisance parameters:
Cranmer, PHYSTAT 2005). Unlike a bootstrap over rows this needs no refit, and no row that alone informs a
parameter can be missing from a sample. The model is linearised at its solution, as for standard errors, but in
the coordinates that the fit moves (`perflex.fit.coordinates`): an interval of a rate is that of its cost.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from perflex.fit.noise import residual_noise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.fit.coordinates import Coordinates
    from perflex.fit.problem import Problem

    Array = NDArray[np.float64]

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


@dataclass(frozen=True, eq=False)
class LinearisedFit:
    """A fit at its solution, without its bounds: what the intervals of its parameters follow from.

    Attributes
    ----------
    problem
        What was fitted.
    x
        All parameters, shape ``(n,)``.
    determined
        Columns of those that the rows determine, whether a bound holds them or not.
    coordinates
        What the fit moved: intervals are taken there, where models are nearly linear, and have its bounds.
    noise
        Measured relative noise of each row, as for `residual_noise`.
    """

    problem: Problem
    x: NDArray[np.float64]
    determined: tuple[int, ...]
    coordinates: Coordinates
    noise: NDArray[np.float64] | None

    def regression(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return Jacobian, shape ``(m, n)``, and residual, shape ``(m,)``, of the fit without bounds."""
        problem = self.problem
        predicted = problem.predict(self.x)
        if problem.loss is not None or not problem.logarithmic or not (predicted > 0).all():
            return problem.regression(self.x, len(self.determined))
        # Residuals divided by their own measurement pull a fit down by twice their variance: a row measured too small
        # counts too much. Divided by the prediction they do not (McCullagh and Nelder, Generalized Linear Models,
        # 1989, chapter 9), so that intervals hold the true costs however many rows there are.
        ratio = problem.output / predicted
        return problem.jacobian(self.x) * ratio[:, None], problem.root * (1.0 - ratio)

    @cached_property
    def intervals(self) -> NDArray[np.float64]:
        """The 95 % confidence interval of each parameter, shape ``(n, 2)``; nan where it is not determined."""
        chosen = list(self.determined)
        jacobian, residual = self.regression()
        jacobian = jacobian[:, chosen]
        found = np.full((len(self.x), 2), np.nan)
        freedom = len(residual) - len(chosen)
        if freedom > 0 and chosen:
            basis = np.linalg.qr(jacobian / np.linalg.norm(jacobian, axis=0))[0]
            spare = residual - basis @ (basis.T @ residual)
            noise = residual_noise(
                self.problem.output,
                spare,
                basis,
                self.noise,
                relative=self.problem.logarithmic,
                deviation=float(np.linalg.norm(spare)) / np.sqrt(freedom),
                robust=self.problem.loss is not None,
            )
            deviation = noise.deviation(self.problem.output)
            found[chosen] = self._within_bounds(jacobian, residual, deviation)
        return found

    def _within_bounds(self, jacobian: Array, residual: Array, deviation: Array) -> Array:
        """Return the intervals of the determined parameters, shape ``(k, 2)``."""
        chosen = list(self.determined)
        places = (np.cumsum(self.coordinates.moving) - 1)[chosen]
        point = self.coordinates.inner(self.x)
        u, slopes = point[places], self.coordinates.slopes(point)[places]
        lower, upper = (bound[places] for bound in self.coordinates.bounds())
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
            ends[:, end] = self.coordinates.outer(point)[chosen]
        # Of a rate whose cost may be zero or below, no largest value is known.
        vanishing = [self.coordinates.kinds[i] == "rate" for i in chosen] & (found[:, 0] <= 0)
        ends[:, 0] = np.where(vanishing, np.inf, ends[:, 0])
        return np.sort(ends, axis=1)


def confidence_intervals(
    jacobian: Array, residual: Array, values: Array, bounded: NDArray[np.bool_], deviation: Array
) -> Array:
    """Return the 95 % confidence interval of each parameter of a linearised fit.

    Parameters
    ----------
    jacobian
        Shape ``(m, n)``, of full column rank.
    residual
        Shape ``(m,)``, at `values`.
    values
        The fitted parameters, shape ``(n,)``.
    bounded
        Which of them must not be negative, shape ``(n,)``.
    deviation
        Standard deviation of each row's residual, shape ``(m,)``, known from as many rows as there are to spare.

    Returns
    -------
    Array
        Shape ``(n, 2)``, in the parameters' units.
    """
    rows, count = jacobian.shape
    freedom = rows - count
    from scipy.stats import t as student

    length = np.linalg.norm(jacobian, axis=0)
    left, singular, directions = np.linalg.svd(jacobian / length, full_matrices=False)
    # Where the fit without bounds would be, in columns of length one, and a root of its covariance.
    free = values * length - directions.T @ (left.T @ residual / singular)
    root = directions.T / singular @ (left * deviation[:, None]).T
    error = np.linalg.norm(root, axis=1)
    reach = float(student.ppf((1 + LEVEL) / 2, freedom))
    found = np.column_stack([free - reach * error, free + reach * error])
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
