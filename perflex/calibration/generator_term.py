"""How much worse kernels of another generator are predicted than residuals say: the model term of intervals.

A kernel that is predicted is of no generator of the calibration. What the model leaves out is alike in all kernels of a
generator, so that parameters make up for it in the fit, and residuals do not show it. Each generator is predicted by a
fit to all others, and a variance shared by its kernels is taken such that their errors, divided by all that is
expected of them, have a mean square of one: Paule and Mandel's estimate of the variance between groups (J. Res. Natl.
Bur. Stand. 87, 377, 1982). Under a robust loss wrong rows count no more there than in the fit: Huber's Proposal 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.held_out import generators_of, refits_by_generator
from perflex.calibration.prediction_variance import PredictionVariance
from perflex.errors import CalibrationError
from perflex.fit.loss import mean_square, robust_mean_square

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from perflex.calibration.held_out import Refit
    from perflex.calibration.prediction_variance import Variances
    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

_HALVINGS = 30
_RATIO_HALVINGS = 8
# Ratios of variances beyond this are no longer told apart.
_MOST = 1e12
# Slopes need a range of times: its standard deviation in log output.
_LEAST_RANGE = 0.2
_FEWEST_FOR_SLOPE = 3


@dataclass(frozen=True)
class GeneratorTerm:
    """What predictions of generators by the others say of the model.

    Attributes
    ----------
    ratio
        Variance of errors that kernels of a generator share, over that of residuals at the same time.
    generators
        How many generators could be predicted by the others: the degrees of freedom of the ratio. With none the ratio
        is zero, for nothing is known.
    trend
        Root mean square of the slopes of log(measured / predicted) by log(measured) within generators: what the
        error grows by beyond the range of times that was measured. In absolute fits zero.
    trends
        How many slopes there were.
    """

    ratio: float = 0.0
    generators: int = 0
    trend: float = 0.0
    trends: int = 0


def compressed(reach: Array) -> Array:
    """Return the logarithm of the factor that stands for a relative reach: itself up to one, then 1 + log(reach).

    The uncertainty of a cost adds to a time. While it is small that is the same as a factor; a cost known to its
    hundredfold makes the upper limit a hundred times larger, not exp(100) times.
    """
    return np.where(reach <= 1.0, reach, 1.0 + np.log(np.maximum(reach, 1.0)))


def log_reach(deviations: Array, of_parameters: Array, scatter: Array) -> Array:
    """Return the logarithm of the factor by which a relative fit's limits lie off.

    Parameters
    ----------
    deviations
        How many standard deviations the limit is to lie off.
    of_parameters, scatter
        Standard deviations, relative to the prediction, from the parameters and about the model.
    """
    reach: Array = np.hypot(compressed(deviations * of_parameters), deviations * scatter)
    return reach


def generator_term(model: Model, fit: FitResult, table: FeatureTable | None) -> GeneratorTerm:
    """Return what predictions of generators by the others say.

    Parameters
    ----------
    model, fit, table
        The model, its fit, and what was fitted; None where that is not known.

    Returns
    -------
    GeneratorTerm
        Nothing known where the rows are not, or where no generator has more than one.
    """
    if table is None:
        return GeneratorTerm()
    owners = generators_of(table.kernels, table)
    if len(set(owners)) in {1, len(owners)}:
        return GeneratorTerm()
    held_out, slopes = [], []
    refits = refits_by_generator(
        model, table, nonnegative=bool(fit.nonnegative), start=fit, loss=fit.loss, bounds=fit.bounds
    )
    for refit in refits:
        if refit.fit is None:
            continue
        try:
            found = _HeldOut.of(model, refit, refit.fit)
        except CalibrationError:  # it passes through all of its rows, or is not finite for those held out
            continue
        held_out.append(found)
        slopes += found.slope()
    trend = float(np.sqrt(np.mean(np.square(slopes)))) if slopes else 0.0
    size = mean_square if fit.loss == "squared" else robust_mean_square
    return GeneratorTerm(_ratio(held_out, size), len(held_out), trend, len(slopes))


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """A generator's kernels as predicted by the others."""

    variances: Variances
    measured: Array
    relative: bool

    @classmethod
    def of(cls, model: Model, refit: Refit, fit: FitResult) -> _HeldOut:
        spread = PredictionVariance(model, fit, refit.rest, generators_of(refit.rest.kernels, refit.rest))
        variances, _ = spread.at({name: refit.own.column(name) for name in model.input_features()})
        if not np.isfinite(variances.predicted).all():
            msg = f"the model {model.expression!r} is not finite for kernels of {refit.generator}"
            raise CalibrationError(msg)
        positive = bool((variances.predicted > 0).all())
        return cls(variances, refit.own.column(model.output_feature), fit.scaled and positive)

    def standardised(self, ratio: float) -> Array:
        """Return the size of each error over what is expected of it, shape ``(r,)``."""
        of_parameters = np.sqrt(self.variances.of_parameters(ratio))
        scatter = self.variances.noise.deviation(self.measured) * np.sqrt(1.0 + ratio)
        if not self.relative:
            size: Array = np.abs(self.measured - self.variances.predicted) / np.hypot(of_parameters, scatter)
            return size
        of_parameters = of_parameters / self.variances.predicted
        # Times that a law gives exactly scatter by their rounding.
        scatter = np.maximum(scatter, np.finfo(np.float64).eps)
        error = np.abs(np.log(self.measured / self.variances.predicted))
        # So many deviations that the limit is just where the measurement is; the reach grows with them.
        low, high = np.zeros_like(error), error / scatter
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            inside = log_reach(middle, of_parameters, scatter) < error
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        found: Array = (low + high) / 2
        return found

    def slope(self) -> list[float]:
        """Return the slope of log(measured / predicted) by log(measured); none where times are too alike."""
        if not self.relative or len(self.measured) < _FEWEST_FOR_SLOPE:
            return []
        x = np.log(self.measured)
        x = x - x.mean()
        if float(np.sqrt(np.mean(x**2))) < _LEAST_RANGE:
            return []
        return [float(x @ np.log(self.measured / self.variances.predicted) / (x @ x))]


def _ratio(held_out: list[_HeldOut], size: Callable[[Array], float]) -> float:
    """Return the ratio at which standardised errors have a mean square of one."""

    def excess(ratio: float) -> float:
        # Each generator counts the same, however many kernels it has.
        return float(np.mean([size(entry.standardised(ratio)) for entry in held_out])) - 1.0

    if not held_out or excess(0.0) <= 0:
        return 0.0
    # In logarithms, for ratios of 0.01 and 100 both occur.
    low, high = np.log(1e-4), np.log(1.0)
    while excess(float(np.exp(high))) > 0 and high < np.log(_MOST):
        low, high = high, high + 2.0
    for _ in range(_RATIO_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(float(np.exp(middle))) > 0 else (low, middle)
    return float(np.exp((low + high) / 2))
