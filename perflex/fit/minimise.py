"""Nonlinear least squares from one start, optionally within bounds, to the last digits.

The fit minimises the Euclidean norm of the residual (paper Section 7.2) with scipy: MINPACK's Levenberg-Marquardt, and
within bounds a trust region that reflects at them (Branch, Coleman and Li, SIAM J. Sci. Comput. 21, 1, 1999), after
which the parameters that no bound holds go on without bounds. Parameters are scaled so that each column of the
Jacobian has length one at the start; parameters of 1e-12 and 1e3 are then fitted together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.fit.coordinates import Coordinates
    from perflex.fit.problem import Problem

    Array = NDArray[np.float64]
    Mask = NDArray[np.bool_]

Function = Callable[["NDArray[np.float64]"], "NDArray[np.float64]"]

# As far as doubles allow; starts that are only compared need not go so far.
# scipy refuses tolerances below machine epsilon, 2.2e-16.
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
_ROUGH_GRADIENT_TOLERANCE = 1e-3
# Times n + 1: the limit of MINPACK's lmdif1, and of scipy's leastsq without derivatives.
_EVALUATIONS_PER_PARAMETER = 200
# Effect of a parameter at the start, as a share of the residual or of the largest effect, that counts as none.
_NO_EFFECT = 1e-12
# Effect of a step to its bound, in norms of the residual, below which a parameter that is pressed there is at it.
_AT_BOUND = 1e-8


@dataclass(frozen=True)
class Solution:
    """Where a least-squares fit ended."""

    x: NDArray[np.float64]
    # There, shape ``(m,)``, and its derivatives, shape ``(m, n)``.
    residual: NDArray[np.float64]
    jacobian: NDArray[np.float64]
    # Which parameters a bound holds, shape ``(n,)``.
    at_bound: NDArray[np.bool_]
    # Whether this is a (local, constrained) minimum, and why the iteration ended.
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
    bounds: tuple[Array, Array] | None = None,
    precise: bool = True,
) -> Solution:
    """Minimise the Euclidean norm of a residual from one start."""
    problem = _ScaledProblem(residual, jacobian, np.asarray(start, dtype=np.float64), bounds, precise=precise)
    z, held = problem.z_start, np.zeros(len(problem.z_start), dtype=bool)
    if (np.isfinite(problem.lower) | np.isfinite(problem.upper)).any():
        z, held = problem.within_bounds(z)
        if not precise and problem.slope(z)[~held].max(initial=0.0) <= _ROUGH_GRADIENT_TOLERANCE:
            return problem.solution(z, held)
    return problem.settled(z, held)


def minimise_in(problem: Problem, coordinates: Coordinates, x: Array, *, precise: bool = True) -> Solution:
    """Minimise a problem's residual in coordinates, from and to parameters as the model has them."""
    moving = coordinates.moving

    def residual(u: Array) -> Array:
        return problem.residual(coordinates.outer(u))

    def jacobian(u: Array) -> Array:
        derivatives: Array = problem.jacobian(coordinates.outer(u))[:, moving] * coordinates.slopes(u)
        return derivatives

    found = minimise(residual, jacobian, coordinates.inner(x), bounds=coordinates.bounds(), precise=precise)
    end, at_bound = coordinates.outer(found.x), ~moving
    at_bound[moving] = found.at_bound
    # Exactly the bound, not what rounding makes of its coordinate.
    nearest = np.where(end - coordinates.lower <= coordinates.upper - end, coordinates.lower, coordinates.upper)
    end = np.where(at_bound & moving, nearest, end)
    return replace(found, x=end, residual=problem.residual(end), jacobian=problem.jacobian(end), at_bound=at_bound)


class _ScaledProblem:
    """The same problem in parameters z = x / scale whose columns have length one at the start."""

    def __init__(
        self, residual: Function, jacobian: Function, start: Array, bounds: tuple[Array, Array] | None, *, precise: bool
    ) -> None:
        self.evaluations = 0
        self.precise = precise
        self.tolerance = _TOLERANCE if precise else _ROUGH_TOLERANCE
        self.limit = _EVALUATIONS_PER_PARAMETER * (len(start) + 1)
        self._residual = residual
        self._jacobian = jacobian
        first, values = jacobian(start), residual(start)
        if not ((np.abs(first) < _REFUSED).all() and np.isfinite(values).all()):
            msg = "the residual or its derivatives are not finite at the start"
            raise ArithmeticError(msg)
        length = np.linalg.norm(first, axis=0)
        # A parameter without effect at the start has no length to scale by: a tiny one would be huge elsewhere.
        fallback = np.where(start != 0, np.abs(start), 1.0)
        effect = np.where(start != 0, length * np.abs(start), length)
        least = _NO_EFFECT * max(float(np.linalg.norm(values)), float(effect.max(initial=0.0)))
        self.scale = np.divide(1.0, length, out=fallback, where=effect > least)
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
        """Return the derivatives by the scaled parameters, shape ``(m, n)``; an `ArithmeticError` if not finite."""
        # No stand-in as for the residual: derivatives are taken only where a step has already been accepted.
        values: Array = self._jacobian(z * self.scale) * self.scale
        # Squares of larger ones overflow in scipy, which then ends with a ValueError.
        if not (np.abs(values) < _REFUSED).all():
            msg = "the derivatives are not finite at a point that the fit reached"
            raise ArithmeticError(msg)
        return values

    def norm(self, z: Array) -> float:
        """Return the Euclidean norm of the residual."""
        return float(np.linalg.norm(self.residual(z)))

    def within_bounds(self, z: Array) -> tuple[Array, Mask]:
        """Return the minimum within the bounds, near enough to tell which parameters they hold, and these."""
        from scipy.optimize import least_squares

        found = least_squares(
            self.residual,
            np.clip(z, self.lower, self.upper),
            jac=self.jacobian,
            bounds=(self.lower, self.upper),
            method="trf",
            ftol=_ROUGH_TOLERANCE,
            xtol=_ROUGH_TOLERANCE,
            gtol=_ROUGH_TOLERANCE,
            max_nfev=self.limit,
        )
        below, above = found.x - self.lower, self.upper - found.x
        pressed = np.where(below < above, found.grad, -found.grad) >= 0
        with np.errstate(invalid="ignore"):
            effect = np.linalg.norm(found.jac, axis=0) * np.minimum(below, above)
        held = pressed & (effect <= _AT_BOUND * np.linalg.norm(found.fun))
        return np.where(held, np.where(below < above, self.lower, self.upper), found.x), held

    def settled(self, z: Array, held: Mask) -> Solution:
        """Return the minimum over the parameters that no bound holds; those that would leave theirs stay there."""
        for _ in range(len(z) + 1):
            end, exhausted = self._levenberg_marquardt(z, ~held)
            polished = self._polished(end, ~held)
            # Polishing knows no bounds.
            end = end if self._outside(polished).any() else polished
            leaving = self._outside(end) & ~held
            if not leaving.any():
                break
            z, held = np.clip(end, self.lower, self.upper), held | leaving
        return self.solution(end, held, exhausted=exhausted)

    def _outside(self, z: Array) -> Mask:
        outside: Mask = (z < self.lower) | (z > self.upper)
        return outside

    def _levenberg_marquardt(self, z: Array, free: Mask) -> tuple[Array, bool]:
        """Minimise over the free parameters, the others kept; also return whether evaluations ran out."""
        from scipy.optimize import least_squares

        if not free.any():
            return z, False

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
            max_nfev=self.limit,
        )
        end = whole(result.x)
        if self.precise and self.slope(end)[free].max() > _GRADIENT_TOLERANCE:
            end = self._newton(end, free)
        return end, result.status == 0

    def _newton(self, z: Array, free: Mask) -> Array:
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

    def slope(self, z: Array) -> Array:
        """Return the cosine of the angle between the residual and each derivative; 0 for an exact fit.

        Less where all the way to a bound changes the residual little: the direction of such a derivative means nothing.
        """
        residual, jacobian = self.residual(z), self.jacobian(z)
        length = np.linalg.norm(jacobian, axis=0)
        gradient = jacobian.T @ residual
        # Near an exact fit the residual is rounding, whose direction means nothing.
        size = np.linalg.norm(residual) + 1e-6 * float(np.linalg.norm(length * z))
        cosine: Array = np.divide(np.abs(gradient), length * size, out=np.zeros_like(z), where=length * size > 0)
        room = np.where(gradient > 0, z - self.lower, self.upper - z)
        with np.errstate(invalid="ignore"):
            change = np.where(length > 0, length * np.abs(room), 0.0)
        return cosine * np.minimum(1.0, change / size) if size > 0 else cosine

    def _polished(self, z: Array, free: Mask) -> Array:
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

    def solution(self, z: Array, held: Mask, *, exhausted: bool = False) -> Solution:
        """Return the solution at scaled parameters, in the parameters' own units, with a verdict."""
        # The slope decides, not scipy's status: a run may also stop on a slope, because its steps became small.
        slope = self.slope(z)[~held].max(initial=0.0)
        converged = bool(slope <= (_GRADIENT_TOLERANCE if self.precise else _ROUGH_GRADIENT_TOLERANCE))
        if held.all():
            reason = "every parameter is at its bound"
        elif converged:
            reason = "the residual is orthogonal to the model's derivatives"
        elif exhausted:
            reason = f"no minimum was reached in {self.limit} evaluations"
        else:
            reason = f"the fit stopped before the residual was stationary (cosine {slope:.1e})"
        x = z * self.scale
        # The functions as given, not the guarded ones: no stand-in may get into a result.
        return Solution(x, self._residual(x), self._jacobian(x), held, converged, reason, self.evaluations)
