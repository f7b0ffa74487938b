"""Nonlinear least squares from one start, optionally within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.fit.bounded import minimise_bounded
from perflex.fit.scaled import ScaledProblem, Solution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.fit.coordinates import Coordinates
    from perflex.fit.problem import Problem
    from perflex.fit.scaled import Function

    Array = NDArray[np.float64]


# Times n + 1: the limit of MINPACK's lmdif1, and of scipy's leastsq without derivatives.
_EVALUATIONS_PER_PARAMETER = 200


def minimise(
    residual: Function,
    jacobian: Function,
    start: Array,
    *,
    bounds: tuple[Array, Array] | None = None,
    precise: bool = True,
) -> Solution:
    """Minimise the Euclidean norm of a residual from one start.

    Parameters
    ----------
    residual
        From parameters, shape ``(n,)``, to residuals, shape ``(m,)`` with ``m >= n``.
    jacobian
        From parameters to the residual's derivatives, shape ``(m, n)``.
    start
        Parameter values to start from, shape ``(n,)``.
    bounds
        Smallest and largest values, shape ``(n,)`` each, which may be infinite; none by default.
    precise
        Whether to go on to the last digits; not needed while starts are compared.

    Returns
    -------
    Solution
        The minimum that was reached, or where the iteration gave up.

    Raises
    ------
    ArithmeticError
        The residual or its derivatives are not finite at the start, or at a point the fit arrived at.
    """
    start = np.asarray(start, dtype=np.float64)
    problem = ScaledProblem(residual, jacobian, start, bounds=bounds, precise=precise)
    limit = _EVALUATIONS_PER_PARAMETER * (len(problem.start) + 1)
    everything = np.ones(len(problem.start), dtype=bool)
    if not (np.isfinite(problem.lower) | np.isfinite(problem.upper)).any():
        z, converged, reason = problem.levenberg_marquardt(problem.z_start, everything, limit)
        z = problem.polish(z, everything)
        return problem.solution(z, ~everything, converged, reason)
    return minimise_bounded(problem, limit)


def minimise_in(problem: Problem, coordinates: Coordinates, x: Array, *, precise: bool = True) -> Solution:
    """Minimise a problem's residual in coordinates, from and to parameters as the model has them.

    Parameters
    ----------
    problem
        The problem.
    coordinates
        What moves, and its bounds.
    x
        Parameters to start from, shape ``(n,)``; those outside the bounds start at them.
    precise
        As for `minimise`.

    Raises
    ------
    ArithmeticError
        As for `minimise`.
    """
    moving = coordinates.moving

    def residual(u: Array) -> Array:
        return problem.residual(coordinates.outer(u))

    def jacobian(u: Array) -> Array:
        derivatives: Array = problem.jacobian(coordinates.outer(u))[:, moving] * coordinates.slopes(u)
        return derivatives

    bounds = coordinates.bounds()
    found = minimise(residual, jacobian, coordinates.inner(x), bounds=bounds, precise=precise)
    end, at_bound = coordinates.outer(found.x), ~moving
    at_bound[moving] = found.at_bound
    # Exactly the bound, not what rounding makes of its coordinate.
    nearest = np.where(end - coordinates.lower <= coordinates.upper - end, coordinates.lower, coordinates.upper)
    end = np.where(at_bound & moving, nearest, end)
    return Solution(
        end,
        problem.residual(end),
        problem.jacobian(end),
        at_bound,
        found.converged,
        found.reason,
        found.evaluations,
    )
