"""What a fit leaves open about its parameters, and what that means for predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

from perflex.errors import CalibrationError
from perflex.expression.roles import roles_with_costs_for_rates
from perflex.fit.coordinates import coordinates_of
from perflex.fit.loss import SoftL1
from perflex.fit.problem import pose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.problem import Problem
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

# Below this length relative to its own, what is left of a column beside the others is rounding.
_INDISTINGUISHABLE = 1e-7
# Beyond this many deviations the tail's moment is its asymptote; the closed form would cancel.
_FAR = 30.0
# Deviations beyond which a normal distribution holds nothing; a limit nearer than that is integrated up to.
_BEYOND_TAIL = 9.0
_NODES = 500


@dataclass(frozen=True)
class FreedParameter:
    """What the measurements say of a parameter held at its bound, if that alone let go.

    Attributes
    ----------
    value, standard_error
        How far inside of its bound the linearised fit would put it, below zero for beyond, and how sure; in the
        parameter's unit.
    direction
        Change of all parameters per unit of that, the fit staying at its minimum; shape ``(n,)``: its own is 1 at a
        lower bound, -1 at an upper one.
    mean_square
        Mean of its square, given that it lies between zero and the limit (a normal distribution cut off there).
    weights
        How its value weighs the rows' errors, shape ``(m,)``.
    limit
        Value at which it would be at its other bound, or another cost, which makes way for it, zero; inf for none.
    """

    value: float
    standard_error: float
    direction: NDArray[np.float64]
    mean_square: float
    weights: NDArray[np.float64]
    limit: float


def posed_as_fitted(model: Model, table: FeatureTable, fit: FitResult) -> Problem:
    """Return the problem that a fit solved, with its loss; errors as `pose`."""
    return pose(model, table).under(None if fit.loss_scale is None else SoftL1(fit.loss_scale))


def vector(fit: FitResult) -> Array:
    """Return the parameters' values, shape ``(n,)``."""
    return np.array(list(fit.values()), dtype=np.float64)


def free_parameters(fit: FitResult) -> list[int]:
    """Return the columns that the fit could move: determined, and not held at a bound."""
    return [i for i, parameter in enumerate(fit.parameters) if parameter.determined and not parameter.at_bound]


def residual_deviation(fit: FitResult) -> float:
    """Return the standard deviation of a residual: relative to the output, or in its unit.

    Under a robust loss that of the good rows, which a few wrong ones raise little.

    Raises
    ------
    CalibrationError
        There were no more kernels than parameters, so that residuals say nothing.
    """
    known = fit.robust_deviation
    freedom = require_spare(fit)
    return fit.residual_norm / math.sqrt(freedom) if known is None else known


def require_spare(fit: FitResult) -> int:
    """Return how many more kernels than parameters there were; if none, `residual_deviation`'s error."""
    if fit.degrees_of_freedom <= 0:
        cause = f"{len(fit.kernels)} measurement kernels leave no degrees of freedom for {len(fit)} parameters"
        msg = f"{cause}; calibrate with more measurement kernels"
        raise CalibrationError(msg)
    return fit.degrees_of_freedom


@overload
def student_quantile(probability: float, freedom: float) -> float: ...
@overload
def student_quantile(probability: float, freedom: NDArray[np.float64]) -> NDArray[np.float64]: ...
def student_quantile(probability: float, freedom: float | NDArray[np.float64]) -> float | NDArray[np.float64]:
    """Return a quantile of Student's t distribution, of the shape of its degrees of freedom; nan without any."""
    from scipy.stats import t as student

    found: NDArray[np.float64] = np.asarray(student.ppf(probability, np.where(np.greater(freedom, 0), freedom, np.nan)))
    return found if np.ndim(freedom) else float(found)


def without_bound(problem: Problem, fit: FitResult, free: Sequence[int], index: int) -> FreedParameter | None:
    """Return what the measurements say of a parameter at its bound; None if nothing.

    Parameters
    ----------
    problem
        What was fitted.
    fit
        The fit.
    free
        The parameters that the fit could move.
    index
        The parameter at its bound.
    """
    jacobian, residual = problem.regression(vector(fit), len(free))
    inward, room = _inside(problem, fit, index)
    column = inward * jacobian[:, index]
    direction = np.zeros(len(fit))
    direction[index] = inward
    rest = column
    if free:
        # Regression of its column on the free ones: how they would move along, and what is its own.
        length = np.linalg.norm(jacobian[:, free], axis=0)
        weights = np.linalg.lstsq(jacobian[:, free] / length, column, rcond=None)[0] / length
        direction[list(free)] = -weights
        rest = column - jacobian[:, free] @ weights
    size = float(np.linalg.norm(rest))
    if not size > _INDISTINGUISHABLE * float(np.linalg.norm(column)):
        return None
    # Frisch, Waugh and Lovell: regression on what is left of a column gives its coefficient beside the other columns.
    value = -float(rest @ residual) / size**2
    # Under a loss pseudo-residuals, not the spread of good rows, decide how sure its estimates are.
    spread = float(np.linalg.norm(residual)) / math.sqrt(require_spare(fit))
    deviation = (residual_deviation(fit) if problem.loss is None else spread) / size
    limit = min(room, _limit(fit, direction))
    return FreedParameter(
        value, deviation, direction, mean_square_within(value, deviation, limit), rest / size**2, limit
    )


def _inside(problem: Problem, fit: FitResult, index: int) -> tuple[float, float]:
    """Return on which side of its bound a parameter may lie, 1 or -1, and how far away its other bound is."""
    roles = roles_with_costs_for_rates(problem.model.tree)
    coordinates = coordinates_of(problem, roles, nonnegative=bool(fit.nonnegative), given=fit.bounds)
    value, lower, upper = vector(fit)[index], coordinates.lower[index], coordinates.upper[index]
    # The nearer of both: in a file a bound that follows from the rows may differ by rounding.
    return (-1.0 if upper - value < value - lower else 1.0), float(upper - lower)


def _limit(fit: FitResult, direction: Array) -> float:
    """Return how far a parameter may go in a direction until another one that bounds hold is at zero."""
    if not fit.nonnegative:
        return math.inf
    steps = [
        parameter.value / -float(change)
        for parameter, change in zip(fit.parameters, direction, strict=True)
        if change < 0 and parameter.kind == "cost" and not parameter.at_bound
    ]
    return min(steps, default=math.inf)


def mean_square_within(mean: float, deviation: float, limit: float = math.inf) -> float:
    """Return E[x**2] for a normal distribution cut off below zero and above the limit."""
    if deviation == 0.0:
        return min(max(mean, 0.0), limit) ** 2
    if limit <= 0.0:
        return 0.0
    # Beyond the reach of the tail a limit cuts nothing off.
    if limit - max(mean, 0.0) > _BEYOND_TAIL * deviation:
        return _mean_square_above_zero(mean, deviation)
    # The tail of a normal distribution falls off the faster, the farther out it is cut off.
    away = max(-mean / deviation, 1.0)
    limit = min(limit, max(mean, 0.0) + _BEYOND_TAIL * deviation / min(away, 1.0 + away / 4))
    x = (np.arange(_NODES) + 0.5) * limit / _NODES
    exponent = -(((x - mean) / deviation) ** 2) / 2
    density = np.exp(exponent - exponent.max())
    return float(density @ x**2 / density.sum())


def _mean_square_above_zero(mean: float, deviation: float) -> float:
    """Return E[x**2] for a normal distribution cut off below zero."""
    from scipy.special import erfcx

    if deviation == 0.0:
        return max(mean, 0.0) ** 2
    away = -mean / deviation
    if away > _FAR:
        # There the tail is exponential with mean deviation / away; its mean square is twice that mean's square.
        return 2.0 * (deviation / away) ** 2
    # erfcx, not erfc: far in the tail density and probability both vanish, but not their ratio.
    hazard = math.sqrt(2.0 / math.pi) / float(erfcx(away / math.sqrt(2.0)))
    # The hazard is the inverse Mills ratio: E[x**2] = mean**2 + deviation**2 + mean * deviation * hazard.
    return deviation**2 * (1.0 + away**2 - away * hazard)
