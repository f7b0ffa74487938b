"""What a fit minimises: squares of residuals, or a loss that few wrong measurements do not move.

The robust loss is ``soft_l1`` (the pseudo-Huber loss, scipy's ``least_squares(loss="soft_l1")``): a residual r counts
``2 s**2 (sqrt(1 + (r/s)**2) - 1)``, its square while it is small beside s and in proportion to its size beyond. With
``s = 1.287 d``, d the standard deviation of good residuals, the estimates are 95 % as efficient as least squares when
the residuals are normal (Huber's criterion for choosing such a constant).

Variances are Huber's for M-estimates in regression (Robust Statistics, 1981, section 7.6), written as those of least
squares on pseudo-residuals ``K psi(r) / mean(psi'(r))``. The deviation is that of his Proposal 2 (section 7.7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Loss = Literal["squared", "soft_l1"]

# Scale of the loss in standard deviations: (E psi')**2 / E psi**2 = 0.95 for a standard normal residual.
_SCALE_PER_DEVIATION = 1.2870992
# E psi(z)**2 = E z**2 / (1 + (z/c)**2) there: what makes the deviation right for normal residuals.
_MEAN_SQUARED_INFLUENCE = 0.4448450
_DEVIATION_STEPS = 200


@dataclass(frozen=True)
class SoftL1:
    """The loss soft_l1 with its scale.

    Attributes
    ----------
    scale
        Size of residual where squares turn into sizes; in the residuals' unit, above zero.
    """

    scale: float

    def signed_root(self, residual: Array) -> Array:
        """Return numbers whose squares are the losses of the residuals, with the residuals' signs."""
        # sqrt(1 + z) - 1 = z / (sqrt(1 + z) + 1), which keeps the digits of small residuals.
        # Of an infinite residual, where a step went too far, it is nan, which fits refuse as well.
        with np.errstate(invalid="ignore"):
            root: Array = residual * np.sqrt(2.0 / (np.hypot(1.0, residual / self.scale) + 1.0))
        return root

    def slope_of_root(self, residual: Array) -> Array:
        """Return the derivative of the signed root by the residual."""
        size = np.hypot(1.0, residual / self.scale)
        slope: Array = np.sqrt((size + 1.0) / 2.0) / size
        return slope

    def influence(self, residual: Array) -> Array:
        """Return psi, half of the loss's derivative: at most the scale, however large the residual."""
        influence: Array = residual / np.hypot(1.0, residual / self.scale)
        return influence

    def slope_of_influence(self, residual: Array) -> Array:
        """Return psi', the influence's derivative by the residual."""
        slope: Array = np.hypot(1.0, residual / self.scale) ** -3.0
        return slope

    def pseudo_residual(self, residual: Array, parameters: int) -> Array:
        """Return what least squares would have to see for the same estimates with the right variances.

        ``K psi(r) / mean(psi'(r))`` with Huber's correction ``K = 1 + (p/m) var(psi') / mean(psi')**2`` for p
        parameters and m residuals. They are orthogonal to the model's derivatives as residuals of least squares are.

        Raises
        ------
        CalibrationError
            All residuals are far beyond the scale.
        """
        slope = self.slope_of_influence(residual)
        mean = float(np.mean(slope))
        if mean**2 == 0:
            msg = f"the loss's scale, {self.scale:g}, is that of none of these residuals; calibrate again"
            raise CalibrationError(msg)
        correction = 1.0 + parameters / len(residual) * float(np.var(slope)) / mean**2
        pseudo: Array = correction / mean * self.influence(residual)
        return pseudo


def robust_loss(residual: Array, freedom: int, least: float) -> tuple[SoftL1, float]:
    """Return the loss that suits residuals, and the standard deviation of the good ones among them.

    The deviation d solves ``sum(psi(r)**2) = 0.4448 (m - p) d**2`` with psi's scale at 1.287 d (Huber's Proposal 2), so
    that it is the usual one for normal residuals, and far ones add no more than a bounded part.

    Parameters
    ----------
    residual
        Shape ``(m,)``.
    freedom
        Residuals less parameters, m - p; less than one counts as one.
    least
        The least deviation to make a scale of, so that an exact fit has one.
    """
    freedom = max(freedom, 1)
    # That of all residuals is an upper limit; each step goes down towards the one solution, and none passes it.
    deviation = math.sqrt(float(residual @ residual) / freedom / _MEAN_SQUARED_INFLUENCE)
    for _ in range(_DEVIATION_STEPS):
        if not deviation > 0:
            break
        psi = SoftL1(_SCALE_PER_DEVIATION * deviation).influence(residual)
        smaller = math.sqrt(float(psi @ psi) / freedom / _MEAN_SQUARED_INFLUENCE)
        done = smaller >= deviation * (1 - 1e-9)
        deviation = smaller
        if done:
            break
    return SoftL1(_SCALE_PER_DEVIATION * max(deviation, least)), deviation


def standard_loss() -> SoftL1:
    """Return the loss that suits residuals whose standard deviation is one."""
    return SoftL1(_SCALE_PER_DEVIATION)


def mean_square(standardised: NDArray[np.float64]) -> float:
    """Return the mean of the squares of residuals over their deviations."""
    return float(np.mean(standardised**2))


def robust_mean_square(standardised: NDArray[np.float64]) -> float:
    """Return the same where a few wrong rows count little: one for normal residuals (Proposal 2)."""
    return mean_square(SoftL1(_SCALE_PER_DEVIATION).influence(standardised)) / _MEAN_SQUARED_INFLUENCE
