"""Nonlinear least squares from one start, optionally with parameters kept non-negative."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.fit.fit_bounds import minimise_bounded
from perflex.fit.scaled import Function, ScaledProblem, Solution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["Solution", "minimise"]


def minimise(
    residual: Function,
    jacobian: Function,
    start: Array,
    *,
    nonnegative: NDArray[np.bool_] | None = None,
    max_evaluations: int | None = None,
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
    nonnegative
        Which parameters must not become negative, shape ``(n,)``; none by default.
    max_evaluations
        Limit on residual evaluations; by default ``200 * (n + 1)``.
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
    problem = ScaledProblem(residual, jacobian, np.asarray(start, dtype=np.float64), precise=precise)
    limit = max_evaluations or 200 * (len(problem.start) + 1)
    everything = np.ones(len(problem.start), dtype=bool)
    if nonnegative is None or not nonnegative.any():
        z, converged, reason = problem.levenberg_marquardt(problem.z_start, everything, limit)
        z = problem.polish(z, everything)
        return problem.solution(z, ~everything, converged, reason)
    return minimise_bounded(problem, nonnegative, limit)
