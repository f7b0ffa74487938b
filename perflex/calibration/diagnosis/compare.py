"""Models of the same measurements side by side: Akaike's criterion and errors of what was held out."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.held_out import held_out_by_generator, root_mean_square
from perflex.errors import CalibrationError, PerflexWarning
from perflex.fit.fitting import fit_model
from perflex.fit.table import scale_features_by_output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.calibration.record import CalibrationRecord
    from perflex.expression.model import Model
    from perflex.fit.loss import Loss
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable


@dataclass(frozen=True)
class ModelComparison:
    """A model beside others, fitted to the same measurements.

    Attributes
    ----------
    name, model
        The model.
    fit
        Its fit; None where the kernels do not determine it.
    aicc, aicc_difference
        Akaike's criterion, and its distance from the best model's; nan without a fit.
    weight
        Akaike weight: how likely this is the best of these models, 0 to 1.
    held_out_error
        Root mean square of relative errors, each kernel predicted without its generator; nan where that was
        possible for none.
    held_out_kernels
        Over how many kernels that is.
    reason
        Why there is no fit, or empty.
    """

    name: str
    model: Model
    fit: FitResult | None
    aicc: float = math.nan
    aicc_difference: float = math.nan
    weight: float = 0.0
    held_out_error: float = math.nan
    held_out_kernels: int = 0
    reason: str = ""


def aicc(fit: FitResult) -> float:
    """Return Akaike's information criterion with the correction for few measurements.

    ``m log(|r|**2 / m) + 2 k m / (m - k - 1)`` with m kernels and k counting the determined parameters off
    their bound and the residual variance (Hurvich and Tsai, Biometrika 76, 1989; a parameter at a bound uses up no
    measurement). Lower is better; only differences between fits to the same measurements mean something. Under a
    robust loss ``|r|**2`` is that of good rows, from the robust deviation.

    Returns
    -------
    float
        nan where there are too few kernels, -inf for a perfect fit.
    """
    count = len(fit.kernels)
    used = count - fit.degrees_of_freedom + 1
    if count <= used + 1:
        return math.nan
    robust = fit.robust_deviation
    norm = fit.residual_norm if robust is None else robust * math.sqrt(fit.degrees_of_freedom)
    if norm == 0:
        return -math.inf
    # The logarithm of the square, which may itself be beyond all numbers or below them.
    return count * (2.0 * math.log(norm) - math.log(count)) + 2.0 * used * count / (count - used - 1)


def compare_models(
    models: Mapping[str, Model], table: FeatureTable, *, nonnegative: bool = True, loss: Loss = "squared"
) -> tuple[ModelComparison, ...]:
    """Fit models to the same measurements and compare them.

    Parameters
    ----------
    models
        By name.
    table
        Measured outputs and a column for each feature of each model.
    nonnegative, loss
        As for `fit_model`.

    Returns
    -------
    tuple of ModelComparison
        The lowest criterion first, models that could not be fitted last.
    """
    scaled = scale_features_by_output(table)
    compared = [_compared(name, model, scaled, nonnegative=nonnegative, loss=loss) for name, model in models.items()]
    known = [entry.aicc for entry in compared if not math.isnan(entry.aicc)]
    least = min(known, default=math.nan)
    total = sum(_likelihood(value, least) for value in known)
    finished = [
        entry
        if math.isnan(entry.aicc)
        else replace(
            entry,
            aicc_difference=_difference(entry.aicc, least),
            weight=_likelihood(entry.aicc, least) / total,
        )
        for entry in compared
    ]
    return tuple(sorted(finished, key=lambda entry: math.inf if math.isnan(entry.aicc) else entry.aicc))


def _compared(name: str, model: Model, table: FeatureTable, *, nonnegative: bool, loss: Loss) -> ModelComparison:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerflexWarning)  # the comparison is there to tell
            fit = fit_model(model, table, nonnegative=nonnegative, loss=loss)
    except CalibrationError as error:
        return ModelComparison(name, model, None, reason=error.message)
    held_out = held_out_by_generator(model, table, nonnegative=nonnegative, start=fit, loss=loss)
    errors = [error for entry in held_out for error in entry.errors]
    return ModelComparison(
        name, model, fit, aicc(fit), held_out_error=root_mean_square(errors), held_out_kernels=len(errors)
    )


def aicc_differences(calibrations: Mapping[str, CalibrationRecord]) -> dict[str, float]:
    """Return how far each calibration's criterion is above the lowest one.

    Parameters
    ----------
    calibrations
        Of different models, made from the same measurements; by name.

    Raises
    ------
    CalibrationError
        They are not of the same measurements, or a file does not keep them.
    """
    _require_same(list(calibrations.items()))
    values = {name: aicc(calibration.fit) for name, calibration in calibrations.items()}
    least = min((value for value in values.values() if not math.isnan(value)), default=math.nan)
    return {name: _difference(value, least) for name, value in values.items()}


def _require_same(calibrations: Sequence[tuple[str, CalibrationRecord]]) -> None:
    first = calibrations[0][1].table
    for name, calibration in calibrations:
        table = calibration.table
        if table is None or first is None:
            lacking = name if table is None else calibrations[0][0]
            msg = f"{lacking} does not keep its measured values, so it cannot be compared; make the calibration again"
            raise CalibrationError(msg)
        same = (
            # Features differ between models; kernels, the measured output (column 0) and its scaling must not.
            table.kernels == first.kernels
            and np.array_equal(table.values[:, 0], first.values[:, 0])
            and calibration.fit.scaled == calibrations[0][1].fit.scaled
            # A sum of squares and the spread of good rows are not of one kind.
            and calibration.fit.loss == calibrations[0][1].fit.loss
        )
        if not same:
            cause = f"{name} and {calibrations[0][0]} were not fitted to the same measurements"
            msg = f"{cause}, so their AICc values are not comparable; calibrate both models from one feature table"
            raise CalibrationError(msg)


def _difference(value: float, least: float) -> float:
    # Perfect fits have a criterion of -inf, whose difference from itself is nan.
    return 0.0 if value == least else value - least


def _likelihood(value: float, least: float) -> float:
    return math.exp(-_difference(value, least) / 2)
