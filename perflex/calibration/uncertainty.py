"""What a fit leaves open about its parameters, and what that means for predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.fit.loss import SoftL1
from perflex.fit.problem import pose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.calibration.record import CalibrationRecord
    from perflex.expression.model import Model
    from perflex.fit.problem import Problem
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

# Below this length relative to its own, what is left of a column beside the others is rounding.
_INDISTINGUISHABLE = 1e-7
# Beyond this many deviations the tail's moment is its asymptote; the closed form would cancel.
_FAR = 30.0


@dataclass(frozen=True)
class FreedParameter:
    """What the measurements say of a parameter held at its bound, if that alone let go.

    Attributes
    ----------
    value, standard_error
        Where the linearised fit would put it, and how sure; in the parameter's unit.
    direction
        Change of all parameters per unit of its own, the fit staying at its minimum; shape ``(n,)``.
    mean_square
        Mean of its square, given that it is at or above zero (a normal distribution cut off there).
    """

    value: float
    standard_error: float
    direction: NDArray[np.float64]
    mean_square: float


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
        cause = f"{len(fit.kernels)} measurement kernels leave nothing over to judge {len(fit)} parameters by"
        msg = f"{cause}; calibrate with more measurement kernels"
        raise CalibrationError(msg)
    return fit.degrees_of_freedom


def student_quantile(probability: float, freedom: int) -> float:
    """Return a quantile of Student's t distribution; nan without degrees of freedom."""
    from scipy.stats import t as student

    return float(student.ppf(probability, freedom)) if freedom > 0 else math.nan


def predictive_covariance(calibration: CalibrationRecord) -> Array:
    """Return the covariance of the parameters for predictions, shape ``(n, n)``; zero for what is held fixed.

    That of the fit, to which each parameter at a bound adds what its own release would move: it is known to be
    small, not to be zero. Without the measured values (older files) bounds are taken for certain.
    """
    fit = calibration.fit
    covariance = np.nan_to_num(fit.covariance, nan=0.0)
    if calibration.table is not None and fit.at_bound:
        problem = posed_as_fitted(calibration.model, calibration.table, fit)
        free = free_parameters(fit)
        for index, parameter in enumerate(fit.parameters):
            if parameter.at_bound and (freed := without_bound(problem, fit, free, index)) is not None:
                covariance = covariance + freed.mean_square * np.outer(freed.direction, freed.direction)
    return covariance


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
    column = jacobian[:, index]
    direction = np.zeros(len(fit))
    direction[index] = 1.0
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
    return FreedParameter(value, deviation, direction, _mean_square_above_zero(value, deviation))


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
