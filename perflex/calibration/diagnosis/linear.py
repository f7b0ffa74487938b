"""The fit as a linear regression at its solution: leverage, influence, and what informs each parameter.

Symbols: J is the Jacobian of the weighted residuals by the p free parameters over m kernels, r the weighted
residuals, ``s**2 = r @ r / (m - p)``, and ``H = J inv(J' J) J'`` the hat matrix. Everything is computed from the QR
factors of J with columns of length one, so that parameters of 1e-12 and 1e3 do not disturb each other. For models
that are linear in their parameters all of it is exact; for others it holds near the solution.

Leverage, studentised residuals and Cook's distance: Cook and Weisberg, Residuals and Influence in Regression (1982),
sections 2.2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from perflex.fit.identify import independent_slopes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# A leverage this close to one leaves a residual of nothing but rounding.
_ALONE = 1e-10
# Of singular values of columns of length one: about the square root of rounding.
_RANK_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A least-squares fit at its solution."""

    # Shape ``(m, p)``, of full rank.
    jacobian: NDArray[np.float64]
    residual: NDArray[np.float64]

    @cached_property
    def _factors(self) -> tuple[Array, Array, Array]:
        # Leverage and information do not depend on the columns' length; the factorisation's accuracy does.
        return independent_slopes(self.jacobian)

    @cached_property
    def freedom(self) -> int:
        """Rows to spare, m - p."""
        rows, columns = self.jacobian.shape
        return int(rows - columns)

    @cached_property
    def leverage(self) -> Array:
        """Diagonal of H, shape ``(m,)``: how far each fitted value follows its own measurement, 0 to 1.

        They add up to p.
        """
        # Rounding may put it above one.
        leverage: Array = np.minimum((self._factors[0] ** 2).sum(axis=1), 1.0)
        return leverage

    @cached_property
    def _spare(self) -> Array:
        """1 - leverage, nan where nothing is left."""
        spare = 1.0 - self.leverage
        return np.where(spare > _ALONE, spare, np.nan)

    @cached_property
    def leave_one_out(self) -> Array:
        """Residual of each row in a fit without it, shape ``(m,)``: ``r / (1 - h)``; nan where h is 1."""
        found: Array = self.residual / self._spare
        return found

    @cached_property
    def studentised(self) -> Array:
        """Externally studentised residuals, shape ``(m,)``: Student's t with m - p - 1 degrees of freedom.

        Each residual over its standard deviation, estimated without its own row; nan where there is none.
        """
        # Without its own row there must still be one to spare.
        if self.freedom < 2:
            return np.full(len(self.residual), np.nan)
        squares = float(self.residual @ self.residual)
        # No refit: the residual sum of squares without row i is r'r - r_i**2 / (1 - h_i).
        without = np.maximum(squares - self.residual * self.leave_one_out, 0.0) / (self.freedom - 1)
        with np.errstate(all="ignore"):
            studentised: Array = self.residual / np.sqrt(without * self._spare)
        return np.where(np.isfinite(studentised), studentised, np.nan)

    @cached_property
    def cooks_distance(self) -> Array:
        """Cook's distance, shape ``(m,)``: how far all fitted values move when a row is left out.

        In units of p times the residual variance; above 1 a row decides the fit. nan where h is 1.
        """
        if self.freedom < 1 or not self.residual.any():
            return np.full(len(self.residual), np.nan)
        variance = float(self.residual @ self.residual) / self.freedom
        distance: Array = (self.residual / self._spare) ** 2 * self.leverage / (self.jacobian.shape[1] * variance)
        return distance

    @cached_property
    def information(self) -> Array:
        """Share of each row in what is known of each parameter, shape ``(m, p)``; columns add up to 1.

        The part of a parameter's column that no combination of the other columns explains is all that tells the
        parameter apart from them; its squared length over ``s**2`` is one over the parameter's variance. A
        row's share is its part of that square. It is also the row's part in the estimate's variance, for the
        estimate weighs the measurements by that same vector.
        """
        # Rows of the pseudoinverse inv(R) Q': how the estimates weigh the measurements.
        weights = np.linalg.solve(self._factors[1], self._factors[0].T).T ** 2
        information: Array = weights / weights.sum(axis=0)
        return information

    @cached_property
    def error_ratio(self) -> Array:
        """Factor on each parameter's standard error when a row is left out, shape ``(m, p)``; inf if it is then free.

        The residuals' variance is taken as it is: ``sqrt(1 + information / (1 - h))``.
        """
        alone = np.isnan(self._spare)[:, None]
        # Sherman and Morrison's formula for inv(J'J) without a row.
        error_ratio: Array = np.sqrt(1.0 + self.information / np.where(alone, 1.0, self._spare[:, None]))
        return np.where(alone & (self.information > _ALONE), np.inf, error_ratio)

    def error_ratio_without(self, rows: NDArray[np.bool_]) -> Array:
        """Return the factor on each standard error when rows are left out together, shape ``(p,)``.

        inf for parameters that the other rows do not determine.
        """
        scaled = self.jacobian / self._factors[2]
        # Full: with fewer rows than columns the thin SVD lacks the directions that are lost.
        _, singular, directions = np.linalg.svd(scaled[~rows], full_matrices=True)
        count = scaled.shape[1]
        singular = np.concatenate([singular, np.zeros(count - len(singular))])
        lost = singular <= _RANK_TOLERANCE
        free = (directions[lost] ** 2).sum(axis=0) > _RANK_TOLERANCE
        inverse = np.divide(1.0, singular, out=np.zeros(count), where=~lost)
        # Diagonals of inv(J'J), without the rows here and with them below; the residuals' variance cancels.
        without = ((directions * inverse[:, None]) ** 2).sum(axis=0)
        before = (np.linalg.inv(self._factors[1]) ** 2).sum(axis=1)
        error_ratio: Array = np.sqrt(without / before)
        return np.where(free, np.inf, error_ratio)
