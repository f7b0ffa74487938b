"""Nonlinear least squares: Levenberg-Marquardt with scaled columns, optionally with bounds at zero.

The fit minimises the Euclidean norm of the residual (paper Section 7.2) with scipy's MINPACK
Levenberg-Marquardt. Parameters are scaled so that each column of the Jacobian has length one at the start;
parameters of 1e-12 and 1e3 are then fitted together.

Bounds: where the unbounded minimum keeps them, it is the answer. Otherwise a trust-region fit with bounds
comes near the constrained minimum, but never exactly onto a bound. An active-set iteration around
Levenberg-Marquardt then settles which parameters are zero: parameters that would turn negative are set to
zero, those whose gradient points inside are released, until the Karush-Kuhn-Tucker conditions hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["Solution", "minimise"]

Function = Callable[["NDArray[np.float64]"], "NDArray[np.float64]"]

_TOLERANCE = 1e-15
_POLISHING_STEPS = 3
_ROUGH_EVALUATIONS = 60
# A residual that cannot be computed is replaced by this, so that the step that led there is refused.
_REFUSED = 1e100
_GRADIENT_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Solution:
    """Where a least-squares fit ended.

    Attributes
    ----------
    x
        Parameter values, shape ``(n,)``.
    residual
        Residual there, shape ``(m,)``.
    jacobian
        Its derivatives there, shape ``(m, n)``.
    at_bound
        Which parameters the bound holds at zero, shape ``(n,)``.
    converged
        Whether this is a (local, constrained) minimum.
    reason
        Why the iteration ended.
    evaluations
        Number of residual evaluations.
    """

    x: NDArray[np.float64]
    residual: NDArray[np.float64]
    jacobian: NDArray[np.float64]
    at_bound: NDArray[np.bool_]
    converged: bool
    reason: str
    evaluations: int

    @property
    def norm(self) -> float:
        """Euclidean norm of the residual."""
        return float(np.linalg.norm(self.residual))


def minimise(
    residual: Function,
    jacobian: Function,
    start: Array,
    *,
    nonnegative: NDArray[np.bool_] | None = None,
    max_evaluations: int | None = None,
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

    Returns
    -------
    Solution
        The minimum that was reached, or where the iteration gave up.

    Raises
    ------
    ArithmeticError
        The residual or its derivatives are not finite at the start, or at a point the fit arrived at.
    """
    problem = _Problem(residual, jacobian, np.asarray(start, dtype=np.float64))
    limit = max_evaluations or 200 * (len(problem.start) + 1)
    everything = np.ones(len(problem.start), dtype=bool)
    if nonnegative is None or not nonnegative.any():
        z, converged, reason = problem.levenberg_marquardt(problem.z_start, everything, limit)
        z = problem.polish(z, everything)
        return problem.solution(z, ~everything, converged, reason)
    inside = np.where(nonnegative, np.maximum(problem.z_start, 0.0), problem.z_start)
    z, converged, reason = problem.levenberg_marquardt(inside, everything, limit)
    if converged and (z[nonnegative] > 0).all():
        z = problem.polish(z, everything)
        return problem.solution(z, ~everything, converged, reason)
    return _minimise_bounded(problem, inside, nonnegative, limit)


class _Problem:
    """The same problem in parameters z = x / scale whose columns have length one at the start."""

    def __init__(self, residual: Function, jacobian: Function, start: Array) -> None:
        self.evaluations = 0
        self._residual = residual
        self._jacobian = jacobian
        self.start = start
        first = jacobian(start)
        if not (np.isfinite(first).all() and np.isfinite(residual(start)).all()):
            msg = "the residual or its derivatives are not finite at the start"
            raise ArithmeticError(msg)
        length = np.linalg.norm(first, axis=0)
        fallback = np.where(start != 0, np.abs(start), 1.0)
        self.scale = np.divide(1.0, length, out=fallback, where=length > 0)
        self.z_start = start / self.scale

    def residual(self, z: Array) -> Array:
        self.evaluations += 1
        values = self._residual(z * self.scale)
        finite: Array = np.where(np.isfinite(values), values, _REFUSED)
        return finite

    def jacobian(self, z: Array) -> Array:
        values: Array = self._jacobian(z * self.scale) * self.scale
        if not np.isfinite(values).all():
            msg = "the derivatives are not finite at a point that the fit arrived at"
            raise ArithmeticError(msg)
        return values

    def levenberg_marquardt(self, z: Array, free: NDArray[np.bool_], limit: int) -> tuple[Array, bool, str]:
        """Minimise over the free parameters, the others kept."""
        from scipy.optimize import least_squares

        if not free.any():
            return z, True, "every parameter is held at its bound"

        def whole(part: Array) -> Array:
            full = z.copy()
            full[free] = part
            return full

        result = least_squares(
            lambda part: self.residual(whole(part)),
            z[free],
            jac=lambda part: self.jacobian(whole(part))[:, free],
            method="lm",
            x_scale="jac",
            ftol=_TOLERANCE,
            xtol=_TOLERANCE,
            gtol=_TOLERANCE,
            max_nfev=limit,
        )
        end = whole(result.x)
        return end, *self._verdict(end, free, limit, exhausted=result.status == 0)

    def _verdict(self, z: Array, free: NDArray[np.bool_], limit: int, *, exhausted: bool) -> tuple[bool, str]:
        slope = self.slope(z)[free].max(initial=0.0)
        if slope <= _GRADIENT_TOLERANCE:
            return True, "the residual is orthogonal to the model's derivatives"
        if exhausted:
            return False, f"no minimum was reached in {limit} evaluations"
        return False, f"the fit stopped where the residual still has a slope (cosine {slope:.1e})"

    def slope(self, z: Array) -> Array:
        """Return the cosine of the angle between the residual and each derivative; 0 for an exact fit."""
        residual, jacobian = self.residual(z), self.jacobian(z)
        length = np.linalg.norm(jacobian, axis=0)
        gradient = np.abs(jacobian.T @ residual)
        reach = np.linalg.norm(residual) + 1e-6 * float(np.linalg.norm(length * z))
        cosine: Array = np.divide(gradient, length * reach, out=np.zeros_like(z), where=length * reach > 0)
        return cosine

    def polish(self, z: Array, free: NDArray[np.bool_]) -> Array:
        """Return z after a few Gauss-Newton steps, each taken only if it brings the minimum closer."""
        for _ in range(_POLISHING_STEPS):
            residual, jacobian = self.residual(z), self.jacobian(z)[:, free]
            step = np.zeros_like(z)
            step[free] = np.linalg.lstsq(jacobian, -residual, rcond=1e-12)[0]
            after = self.residual(z + step)
            if not np.linalg.norm(after) <= np.linalg.norm(residual) * (1 + 1e-14):
                break
            try:
                flatter = self.slope(z + step)[free].max(initial=0) < self.slope(z)[free].max(initial=0)
            except ArithmeticError:
                break
            if not flatter:
                break
            z = z + step
        return z

    def solution(self, z: Array, at_bound: NDArray[np.bool_], converged: bool, reason: str) -> Solution:
        x = z * self.scale
        return Solution(x, self._residual(x), self._jacobian(x), at_bound, converged, reason, self.evaluations)


def _minimise_bounded(problem: _Problem, z: Array, nonnegative: NDArray[np.bool_], limit: int) -> Solution:
    """Return the constrained minimum: trust region first, then active sets around Levenberg-Marquardt."""
    from scipy.optimize import least_squares

    rough = least_squares(
        problem.residual,
        z,
        jac=problem.jacobian,
        method="trf",
        bounds=(np.where(nonnegative, 0.0, -np.inf), np.inf),
        ftol=1e-4,
        max_nfev=min(limit, _ROUGH_EVALUATIONS),
    )
    best = z = rough.x
    gradient = problem.jacobian(z).T @ problem.residual(z)
    reach = float(np.linalg.norm(z)) + 1e-300
    active = nonnegative & (z <= 1e-6 * reach) & (gradient > 0)
    z = np.where(active, 0.0, z)
    converged, reason = False, "the set of parameters at their bound did not settle"
    for _ in range(3 * len(z) + 10):
        end, converged, reason = problem.levenberg_marquardt(z, ~active, limit)
        leaving = nonnegative & ~active & (end < 0)
        if leaving.any():
            fraction = np.min(z[leaving] / (z[leaving] - end[leaving]))
            z = z + fraction * (end - z)
            active |= leaving & (z <= 1e-14 * reach)
            z = np.where(active, 0.0, z)
            continue
        z = problem.polish(end, ~active)
        z = np.where(nonnegative & ~active & (z < 0), end, z)
        inward = _most_inward(problem, z, active)
        if inward is None:
            break
        active[inward] = False
    else:
        converged, reason = False, "the set of parameters at their bound did not settle"
    if np.linalg.norm(problem.residual(best)) < np.linalg.norm(problem.residual(z)) * (1 - 1e-9):
        z, active = best, nonnegative & (best <= 0)
        converged, reason = False, "the set of parameters at their bound did not settle"
    return problem.solution(z, active, converged, reason)


def _most_inward(problem: _Problem, z: Array, active: NDArray[np.bool_]) -> int | None:
    """Return the parameter at its bound that would lower the residual most by leaving it, if any."""
    residual, jacobian = problem.residual(z), problem.jacobian(z)
    length = np.linalg.norm(jacobian, axis=0)
    threshold = 1e-9 * np.linalg.norm(residual) + 1e-13 * float(np.linalg.norm(length * z))
    pull = np.divide(-(jacobian.T @ residual), length, out=np.zeros_like(z), where=length > 0)
    pull = np.where(active, pull, -np.inf)
    index = int(np.argmax(pull))
    return index if pull[index] > threshold else None
