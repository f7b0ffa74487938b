"""Capacity curves from data: for a GPU whose hit rates were measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from perflex.features.gpu.rules import Curve

_PARAMETERS = 3
# Values of c to start from: the fit has several minima.
_STEEPNESS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True)
class FittedCurve:
    """A curve ``rate = a exp(-b exp(-c O))``.

    Attributes
    ----------
    curve
        a, b and c, all without unit: what a machine file has under ``curves``.
    residual
        Root mean square of the rate's error, a fraction.
    """

    curve: Curve
    residual: float


def fit_capacity_curve(oversubscription: ArrayLike, rate: ArrayLike) -> FittedCurve:
    """Fit a capacity curve to measured rates (Ernst et al., Section 4.5).

    Parameters
    ----------
    oversubscription
        Data over capacity, O: features ``f_oversub_l1`` and ``f_oversub_l2``. Shape ``(m,)``.
    rate
        Measured share of repeated transfers that miss (or hit) there, from 0 to 1. Shape ``(m,)``.

    Returns
    -------
    FittedCurve
        With 0 <= a <= 1 and b, c >= 0.

    Raises
    ------
    CalibrationError
        There are fewer than four points or fewer than three different oversubscriptions, shapes differ, or a value is
        not finite or out of range.
    """
    from scipy.optimize import least_squares

    o, share = _checked(oversubscription, rate)

    def residual(x: NDArray[np.float64]) -> NDArray[np.float64]:
        a, b, c = x
        error: NDArray[np.float64] = a * np.exp(-b * np.exp(np.minimum(-c * o, 700.0))) - share
        return error

    # Not 0: the gradient in b and c is proportional to a, so a fit could not leave a = 0.
    top = min(1.0, max(float(share.max()), 1e-3))
    middle = float(np.median(o))
    # The point of steepest rise, where b exp(-c O) is one, in the middle of the data.
    starts = [(top, float(np.exp(min(c * middle, 50.0))), c) for c in _STEEPNESS]
    bounds = ([0.0, 0.0, 0.0], [1.0, np.inf, np.inf])
    # b grows as exp(c O), orders of magnitude beyond a and c: the Jacobian has to set the scales.
    found = [least_squares(residual, start, bounds=bounds, x_scale="jac") for start in starts]
    best = min(found, key=lambda result: float(result.cost))
    a, b, c = map(float, best.x)
    # scipy's cost is half the sum of squares.
    return FittedCurve((a, b, c), float(np.sqrt(2 * best.cost / len(o))))


def _checked(oversubscription: ArrayLike, rate: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    o, share = np.asarray(oversubscription, dtype=np.float64), np.asarray(rate, dtype=np.float64)
    if o.ndim != 1 or o.shape != share.shape:
        msg = f"a curve needs as many rates as oversubscriptions, in one row each; shapes are {o.shape}, {share.shape}"
        raise CalibrationError(msg)
    # As many points as coefficients leave no residual to judge the fit by.
    if len(o) <= _PARAMETERS or len(np.unique(o)) < _PARAMETERS:
        msg = f"a curve has {_PARAMETERS} coefficients: give at least four points at three different oversubscriptions"
        raise CalibrationError(msg)
    if not (np.isfinite(o).all() and np.isfinite(share).all() and (o >= 0).all()):
        msg = "oversubscriptions must be finite and not negative, and rates finite; leave the other rows out"
        raise CalibrationError(msg)
    if not ((share >= 0) & (share <= 1)).all():
        msg = f"rates are shares from 0 to 1, not {share.min():.3g} to {share.max():.3g}; divide by what could miss"
        raise CalibrationError(msg)
    return o, share
