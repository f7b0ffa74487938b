"""A least-squares problem with scaled parameters, and Levenberg-Marquardt on it.

The fit minimises the Euclidean norm of the residual (paper Section 7.2) with scipy's MINPACK
Levenberg-Marquardt. Parameters are scaled so that each column of the Jacobian has length one at the start;
parameters of 1e-12 and 1e3 are then fitted together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Function = Callable[["NDArray[np.float64]"], "NDArray[np.float64]"]

# As far as doubles allow; starts that are only compared need not go so far.
# scipy's "lm" refuses tolerances below machine epsilon, 2.2e-16.
_TOLERANCE = 1e-15
_ROUGH_TOLERANCE = 1e-9
_POLISHING_STEPS = 12
_NEWTON_STEPS = 10
# Relative step of the differences of gradients that second derivatives are made of.
_DIFFERENCE = 1e-6
# A residual that cannot be computed is replaced by this, so that the step that led there is refused.
# Its square, 1e200, is still finite, as the sum of squares has to be.
_REFUSED = 1e100
# Largest cosine between residual and derivatives at what counts as a minimum.
_GRADIENT_TOLERANCE = 1e-6
ROUGH_GRADIENT_TOLERANCE = 1e-3


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
        Which parameters a bound holds, shape ``(n,)``.
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


class ScaledProblem:
    """The same problem in parameters z = x / scale whose columns have length one at the start."""

    def __init__(
        self,
        residual: Function,
        jacobian: Function,
        start: Array,
        *,
        bounds: tuple[Array, Array] | None,
        precise: bool,
    ) -> None:
        self.evaluations = 0
        self.precise = precise
        self.tolerance = _TOLERANCE if precise else _ROUGH_TOLERANCE
        self._residual = residual
        self._jacobian = jacobian
        self.start = start
        first = jacobian(start)
        if not (np.isfinite(first).all() and np.isfinite(residual(start)).all()):
            msg = "the residual or its derivatives are not finite at the start"
            raise ArithmeticError(msg)
        length = np.linalg.norm(first, axis=0)
        # A parameter without effect at the start has no length to scale by.
        fallback = np.where(start != 0, np.abs(start), 1.0)
        self.scale = np.divide(1.0, length, out=fallback, where=length > 0)
        self.z_start = start / self.scale
        unlimited = np.full(len(start), np.inf)
        lower, upper = (-unlimited, unlimited) if bounds is None else bounds
        self.lower, self.upper = lower / self.scale, upper / self.scale

    def residual(self, z: Array) -> Array:
        """Return the residual at scaled parameters, shape ``(m,)``; huge where the model is not finite."""
        self.evaluations += 1
        values = self._residual(z * self.scale)
        # scipy refuses nan at the start only; later ones are up to the caller.
        finite: Array = np.where(np.isfinite(values), values, _REFUSED)
        return finite

    def jacobian(self, z: Array) -> Array:
        """Return the derivatives by the scaled parameters, shape ``(m, n)``.

        Raises
        ------
        ArithmeticError
            They are not finite.
        """
        # No stand-in as for the residual: MINPACK takes derivatives only where it has already accepted a step.
        values: Array = self._jacobian(z * self.scale) * self.scale
        if not np.isfinite(values).all():
            msg = "the derivatives are not finite at a point that the fit reached"
            raise ArithmeticError(msg)
        return values

    def norm(self, z: Array) -> float:
        """Return the Euclidean norm of the residual."""
        return float(np.linalg.norm(self.residual(z)))

    def levenberg_marquardt(self, z: Array, free: NDArray[np.bool_], limit: int) -> tuple[Array, bool, str]:
        """Minimise over the free parameters, the others kept."""
        from scipy.optimize import least_squares

        if not free.any():
            return z, True, "every parameter is at its bound"

        def whole(part: Array) -> Array:
            full = z.copy()
            full[free] = part
            return full

        result = least_squares(
            lambda part: self.residual(whole(part)),
            z[free],
            jac=lambda part: self.jacobian(whole(part))[:, free],
            method="lm",
            # MINPACK's own scaling on top: the lengths of columns change on the way from the start.
            x_scale="jac",
            ftol=self.tolerance,
            xtol=self.tolerance,
            gtol=self.tolerance,
            max_nfev=limit,
        )
        end = whole(result.x)
        converged, reason = self._verdict(end, free, limit, exhausted=result.status == 0)
        if self.precise and not converged:
            end = self._newton(end, free)
            converged, reason = self._verdict(end, free, limit, exhausted=result.status == 0)
        return end, converged, reason

    def _newton(self, z: Array, free: NDArray[np.bool_]) -> Array:
        """Return the flattest point of a few Newton steps, none of which may go uphill.

        Near a sharp bend of the model, as where one cost takes over from another, its curvature times the residual is
        no longer small beside what Gauss and Newton keep of second derivatives; their steps then hardly advance.
        """
        places = np.flatnonzero(free)
        flattest = self.slope(z)[free].max()
        for _ in range(_NEWTON_STEPS):
            gradient = self._gradient(z)[free]
            hessian = np.empty((len(places), len(places)))
            for column, place in enumerate(places):
                width = np.zeros_like(z)
                width[place] = _DIFFERENCE * max(abs(z[place]), 1e-3)
                sides = self._gradient(z + width), self._gradient(z - width)
                hessian[:, column] = (sides[0] - sides[1])[free] / (2 * width[place])
            if not np.isfinite(hessian).all():
                break
            trial = z.copy()
            trial[free] -= np.linalg.lstsq((hessian + hessian.T) / 2, gradient, rcond=1e-12)[0]
            if not self.norm(trial) <= self.norm(z) * (1 + 1e-12):
                break
            slope = self.slope(trial)[free].max()
            if not slope < flattest:
                break
            z, flattest = trial, slope
        return z

    def _gradient(self, z: Array) -> Array:
        return np.asarray(self._jacobian(z * self.scale) * self.scale).T @ self.residual(z)

    def _verdict(self, z: Array, free: NDArray[np.bool_], limit: int, *, exhausted: bool) -> tuple[bool, str]:
        # The slope decides, not scipy's status: a run may also stop on a slope, because its steps became small.
        slope = self.slope(z)[free].max(initial=0.0)
        if slope <= (_GRADIENT_TOLERANCE if self.precise else ROUGH_GRADIENT_TOLERANCE):
            return True, "the residual is orthogonal to the model's derivatives"
        if exhausted:
            return False, f"no minimum was reached in {limit} evaluations"
        return False, f"the fit stopped before the residual was stationary (cosine {slope:.1e})"

    def slope(self, z: Array) -> Array:
        """Return the cosine of the angle between the residual and each derivative; 0 for an exact fit.

        Less where all the way to a bound changes the residual little: the direction of such a derivative means nothing.
        """
        residual, jacobian = self.residual(z), self.jacobian(z)
        length = np.linalg.norm(jacobian, axis=0)
        gradient = jacobian.T @ residual
        # Near an exact fit the residual is rounding, whose direction means nothing.
        reach = np.linalg.norm(residual) + 1e-6 * float(np.linalg.norm(length * z))
        cosine: Array = np.divide(np.abs(gradient), length * reach, out=np.zeros_like(z), where=length * reach > 0)
        room = np.where(gradient > 0, z - self.lower, self.upper - z)
        with np.errstate(invalid="ignore"):
            change = np.where(length > 0, length * np.abs(room), 0.0)
        return cosine * np.minimum(1.0, change / reach) if reach > 0 else cosine

    def polish(self, z: Array, free: NDArray[np.bool_]) -> Array:
        """Return the flattest point of a few Gauss-Newton steps, none of which may go uphill."""
        if not (self.precise and free.any()):
            return z
        # The norm is flat at a minimum: its digits fix about half of the parameters' digits. The slope fixes the rest.
        best, flattest = z, self.slope(z)[free].max()
        for _ in range(_POLISHING_STEPS):
            residual, jacobian = self.residual(z), self.jacobian(z)[:, free]
            step = np.zeros_like(z)
            # The cut-off leaves directions alone that the data do not determine.
            step[free] = np.linalg.lstsq(jacobian, -residual, rcond=1e-12)[0]
            # Rounding alone may raise the norm a little.
            if not np.linalg.norm(self.residual(z + step)) <= np.linalg.norm(residual) * (1 + 1e-12):
                break
            z = z + step
            try:
                slope = self.slope(z)[free].max()
            except ArithmeticError:
                break
            if slope < flattest:
                best, flattest = z, slope
        return best

    def solution(self, z: Array, at_bound: NDArray[np.bool_], converged: bool, reason: str) -> Solution:
        """Return the solution at scaled parameters, in the parameters' own units."""
        x = z * self.scale
        # The functions as given, not the guarded ones: no stand-in may get into a result.
        return Solution(x, self._residual(x), self._jacobian(x), at_bound, converged, reason, self.evaluations)
