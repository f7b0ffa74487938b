"""Prediction intervals: where a measurement of a new kernel would lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.uncertainty import predictive_covariance, residual_deviation, student_quantile
from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.calibration.record import CalibrationRecord

    Array = NDArray[np.float64]
    Values = float | NDArray[np.float64]

# A parameter matters if doubling it changes the prediction by more than this share.
_MATTERS = 1e-3


@dataclass(frozen=True)
class PredictionInterval:
    """A prediction, and where measurements would lie; arrays where sizes were arrays.

    Attributes
    ----------
    predicted, low, high
        In the output feature's unit: seconds for a wall time.
    confidence
        Share of measurements that lie between ``low`` and ``high``.
    standard_error
        Of the prediction, from the parameters' uncertainty alone; same unit.
    residual_deviation
        Of a measurement about the model, from the measurement kernels' residuals; same unit.
    degrees_of_freedom
        Of Student's t distribution: measurement kernels to spare.
    """

    predicted: float | NDArray[np.float64]
    low: float | NDArray[np.float64]
    high: float | NDArray[np.float64]
    confidence: float
    standard_error: float | NDArray[np.float64]
    residual_deviation: float | NDArray[np.float64]
    degrees_of_freedom: int


def interval_at(
    calibration: CalibrationRecord, values: Mapping[str, Any], confidence: float = 0.95
) -> PredictionInterval:
    """Return the prediction interval at given feature values.

    With the derivatives g of the prediction f by the parameters, their covariance C and the residuals' standard
    deviation s, a measurement lies in ``f +- t * sqrt(g' C g + s**2)`` (delta method; t is the quantile of
    Student's distribution). A fit of relative errors has relative residuals, ``s * f``; the interval is then
    taken of the logarithm, ``f * exp(+- t * sqrt(...) / f)``, so that no time in it is negative.

    A parameter at its bound is known to be small, not to be zero: it counts with the mean square that the
    measurements leave it above zero. (Where a file keeps no measured values, it counts as zero.)

    Parameters
    ----------
    calibration
        The calibration.
    values
        A number or array per input feature of its model.
    confidence
        Between 0 and 1.

    Raises
    ------
    ValueError
        The confidence is out of range.
    CalibrationError
        There were no more measurement kernels than parameters, or the prediction depends on a parameter that
        they do not determine.
    """
    if not 0 < confidence < 1:
        msg = f"the confidence must lie between 0 and 1, not {confidence!r}"
        raise ValueError(msg)
    fit, model = calibration.fit, calibration.model
    predicted = np.asarray(model.evaluate(fit, values))
    gradient = _gradient(calibration, values, predicted)
    _require_determined(calibration, gradient, predicted.ravel())
    deviation = residual_deviation(fit)
    variance = np.einsum("ri,ij,rj->r", gradient, predictive_covariance(calibration), gradient)
    # Rounding may leave a quadratic form that vanishes slightly below zero.
    error = np.sqrt(np.maximum(variance, 0.0)).reshape(predicted.shape)
    scatter = deviation * np.abs(predicted) if fit.scaled else np.full(predicted.shape, deviation)
    # The two are independent: one is of the parameters, the other of the kernel that is predicted.
    # Two-sided: half of the remaining risk lies beyond either limit.
    reach = student_quantile((1 + confidence) / 2, fit.degrees_of_freedom) * np.hypot(error, scatter)
    low, high = predicted - reach, predicted + reach
    if fit.scaled:
        positive = predicted > 0
        with np.errstate(all="ignore"):
            factor = np.exp(np.where(positive, reach / predicted, 0.0))
        low, high = np.where(positive, predicted / factor, low), np.where(positive, predicted * factor, high)
    return PredictionInterval(
        _plain(predicted),
        _plain(low),
        _plain(high),
        confidence,
        _plain(error),
        _plain(scatter),
        fit.degrees_of_freedom,
    )


def _gradient(calibration: CalibrationRecord, values: Mapping[str, Any], predicted: Array) -> Array:
    """Return the derivatives of the predictions by the parameters, shape ``(rows, n)``."""
    model = calibration.model
    flat = {
        name: np.broadcast_to(np.asarray(values[name], dtype=np.float64), predicted.shape).ravel()
        for name in model.input_features()
    }
    gradient = model.compiled.derivatives({**flat, **calibration.fit}, predicted.size)
    if not np.isfinite(gradient).all():
        msg = f"the model {model.expression!r} has no finite derivatives for these values, so there is no interval"
        raise CalibrationError(msg, model=model)
    return gradient


def _require_determined(calibration: CalibrationRecord, gradient: Array, predicted: Array) -> None:
    for index, parameter in enumerate(calibration.fit.parameters):
        if parameter.determined:
            continue
        change = np.abs(gradient[:, index] * parameter.value)
        # The value of a cost that nothing determined says nothing, so that any dependence on it matters.
        unknown = parameter.kind == "cost" or parameter.value == 0
        matters = gradient[:, index] != 0 if unknown else change > _MATTERS * np.abs(predicted)
        if matters.any():
            cause = f"the prediction depends on {parameter.name}, which the measurement kernels do not determine"
            msg = f"{cause}, so it has no interval; calibrate with kernels that do"
            raise CalibrationError(msg, parameter=parameter.name)


def _plain(values: Array) -> Values:
    return float(values) if values.shape == () else values
