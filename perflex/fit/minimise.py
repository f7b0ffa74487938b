"""Nonlinear least squares from one start, optionally with parameters kept non-negative."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.fit.scaled import ScaledProblem, Solution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.fit.scaled import Function

    Array = NDArray[np.float64]
    Mask = NDArray[np.bool_]


# Times n + 1: the limit of MINPACK's lmdif1, and of scipy's leastsq without derivatives.
_EVALUATIONS_PER_PARAMETER = 200
# Only to find out which bounds hold: Levenberg-Marquardt gives the digits.
_TRUST_REGION_EVALUATIONS = 60


def minimise(
    residual: Function,
    jacobian: Function,
    start: Array,
    *,
    nonnegative: Mask | None = None,
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
    limit = _EVALUATIONS_PER_PARAMETER * (len(problem.start) + 1)
    everything = np.ones(len(problem.start), dtype=bool)
    if nonnegative is None or not nonnegative.any():
        z, converged, reason = problem.levenberg_marquardt(problem.z_start, everything, limit)
        z = problem.polish(z, everything)
        return problem.solution(z, ~everything, converged, reason)
    return _minimise_bounded(problem, nonnegative, limit)


def _minimise_bounded(problem: ScaledProblem, nonnegative: Mask, limit: int) -> Solution:
    """Return the minimum with the given parameters at or above zero; `limit` is that of each run."""
    start = np.where(nonnegative, np.maximum(problem.z_start, 0.0), problem.z_start)
    free = np.ones(len(start), dtype=bool)
    z, converged, reason = problem.levenberg_marquardt(start, free, limit)
    # Mostly no bound is needed; then the unconstrained minimum is the constrained one.
    if converged and (z[nonnegative] > 0).all():
        return problem.solution(problem.polish(z, free), ~free, converged, reason)
    outside = nonnegative & (z <= 0)
    z = np.where(outside, 0.0, z)
    # Cutting off negative costs may have made things worse than they were.
    if not problem.norm(z) < problem.norm(start):
        z, outside = start, nonnegative & (start <= 0)
    first = _settle(problem, z, outside, nonnegative, limit)
    if first.converged:
        return first
    # The parameters at their bound are not found so: ask a method that keeps inside the bounds which of them hold.
    z = _trust_region(problem, start, nonnegative, limit)
    pull = problem.jacobian(z).T @ problem.residual(z)
    # Which it never reaches quite: what is near a bound and pushed towards it is held there.
    held = nonnegative & (z <= 1e-6 * (np.linalg.norm(z) + 1e-300)) & (pull > 0)
    second = _settle(problem, np.where(held, 0.0, z), held, nonnegative, limit)
    return second if second.converged or second.norm < first.norm else first


def _trust_region(problem: ScaledProblem, start: Array, nonnegative: Mask, limit: int) -> Array:
    from scipy.optimize import least_squares

    result = least_squares(
        problem.residual,
        start,
        jac=problem.jacobian,
        # MINPACK knows no bounds; "trf" keeps strictly inside them.
        method="trf",
        bounds=(np.where(nonnegative, 0.0, -np.inf), np.inf),
        ftol=1e-4,
        max_nfev=min(limit, _TRUST_REGION_EVALUATIONS),
    )
    end: Array = result.x
    return end


# An active-set method, as NNLS (Lawson and Hanson, Solving Least Squares Problems, 1974, Chapter 23).
def _settle(problem: ScaledProblem, z: Array, held: Mask, nonnegative: Mask, limit: int) -> Solution:
    """Move parameters onto and off their bound until none has a reason to move."""
    held = held.copy()
    tried: set[bytes] = set()
    # 3 n rounds are the customary limit of NNLS; scipy's has it too.
    for _ in range(3 * len(z) + 10):
        end, converged, reason = problem.levenberg_marquardt(z, ~held, limit)
        leaving = nonnegative & ~held & (end < 0)
        if leaving.any():
            # As far as the first bound; the parameters that reach it stay there.
            reach = np.full_like(z, np.inf)
            reach[leaving] = z[leaving] / (z[leaving] - end[leaving])
            z = z + reach.min() * (end - z)
            held |= reach <= reach.min()
            z = np.where(held, 0.0, z)
            continue
        polished = problem.polish(end, ~held)
        # Polishing knows no bounds.
        z = end if (nonnegative & (polished < 0)).any() else polished
        inward = _most_inward(problem, z, held)
        if inward is None:
            return problem.solution(z, held, converged, reason)
        # The same set a second time would go on for ever.
        if held.tobytes() in tried:
            break
        tried.add(held.tobytes())
        held[inward] = False
    return problem.solution(z, held, converged=False, reason="the set of parameters at their bound did not settle")


def _most_inward(problem: ScaledProblem, z: Array, held: Mask) -> int | None:
    """Return the parameter at its bound that would lower the residual most by leaving it, if any."""
    residual, jacobian = problem.residual(z), problem.jacobian(z)
    length = np.linalg.norm(jacobian, axis=0)
    # The second summand is rounding: at an exact fit the residual, and with it the first, is next to nothing.
    threshold = (1e-9 if problem.precise else 1e-5) * np.linalg.norm(residual) + 1e-13 * float(
        np.linalg.norm(length * z)
    )
    # Per length of column: the scale of a parameter must not decide which one leaves its bound.
    pull = np.divide(-(jacobian.T @ residual), length, out=np.zeros_like(z), where=length > 0)
    pull = np.where(held, pull, -np.inf)
    index = int(np.argmax(pull))
    return index if pull[index] > threshold else None
