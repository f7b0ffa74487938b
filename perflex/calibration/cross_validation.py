"""Cross-validation by generator: each generator's kernels predicted by a fit to all others, and what follows of it.

A kernel that is predicted is of no generator of the calibration. What the model leaves out is alike in all kernels of a
generator, so that parameters make up for it in the fit, and residuals do not show it. So each generator is predicted by
a fit to all others, and a variance shared by its kernels is taken such that their errors, divided by all that is
expected of them, have a mean square of one: Paule and Mandel's estimate of the variance between groups (J. Res. Natl.
Bur. Stand. 87, 377, 1982).

The fits to the others begin where the fit to all ended, and go to the minimum near it.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta

from perflex.calibration.prediction_variance import PredictionVariance
from perflex.errors import CalibrationError, PerflexError
from perflex.fit.identify import identify, undecided
from perflex.fit.minimise import minimise_in
from perflex.yaml_file import Fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

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

_Number = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
_Count = Annotated[int, Meta(ge=0)]


class BetweenGenerators(Fields, frozen=True):
    """What predictions of generators by the others say of the model."""

    # Variance of errors that kernels of a generator share, over that of residuals at the same time.
    ratio: _Number = 0.0
    # How many generators could be predicted by the others: the degrees of freedom of the ratio. With none the ratio is
    # zero, for nothing is known.
    generators: _Count = 0
    # Root mean square of the slopes of log(measured / predicted) by log(measured) within generators: what the error
    # grows by beyond the range of times that was measured; and how many slopes there were.
    slope: _Number = 0.0
    slopes: _Count = 0


@dataclass(frozen=True, eq=False)
class Fold:
    """A generator's kernels, predicted by a fit to the kernels of all others."""

    generator: str
    # Which rows are its kernels, shape ``(m,)``.
    rows: NDArray[np.bool_]
    # To the others; None where there is none.
    fit: FitResult | None = None
    # (predicted - measured) / measured of its kernels; empty, with a reason, where they could not be predicted.
    errors: tuple[float, ...] = ()
    undetermined: tuple[str, ...] = ()
    reason: str = ""


def root_mean_square(errors: Iterable[float]) -> float:
    """Return the root mean square of the errors that are finite; nan if none is."""
    known = np.array([error for error in errors if math.isfinite(error)])
    return float(np.sqrt(np.mean(known**2))) if known.size else math.nan


def relative_errors(model: Model, parameters: Mapping[str, float], table: FeatureTable) -> tuple[float, ...]:
    """Return (predicted - measured) / measured of each row."""
    values = table.columns(model.input_features())
    predicted = np.broadcast_to(model.evaluate(parameters, values), (len(table),))
    with np.errstate(all="ignore"):
        return tuple(map(float, predicted / table.column(model.output_feature) - 1))


def cross_validation(
    fit: FitResult, owners: Sequence[str], progress: Callable[[int, int, str], None] | None = None
) -> tuple[Fold, ...]:
    """Leave out one generator (`owners`: of each row) after another; progress is told of each."""
    places, folds = np.array(owners), []
    names = list(dict.fromkeys(owners))
    for done, name in enumerate(names):
        if progress is not None:
            progress(done, len(names), name)
        folds.append(_fold(fit, name, places == name))
    return tuple(folds)


def _fold(fit: FitResult, name: str, own: NDArray[np.bool_]) -> Fold:
    problem = fit.problem.take(~own)
    if own.all():
        return Fold(name, own, reason="there is no other generator")
    if len(problem.kernels) < len(fit):
        return Fold(name, own, reason=f"the others are {len(problem.kernels)} kernels for {len(fit)} parameters")
    try:
        found = minimise_in(problem, fit.coordinates, fit.vector, precise=False)
        considered = [i for i in undecided(found, fit.coordinates) if fit.parameters[i].determined]
        # A column of the others is short in comparison with that of all rows.
        reference = np.linalg.norm(fit.problem.jacobian(fit.vector), axis=0)
        unknown = tuple(list(fit)[i] for i in identify(found.jacobian, reference, considered).undetermined)
        if unknown:
            return Fold(name, own, undetermined=unknown, reason="the others do not determine them")
        parameters = tuple(
            msgspec.structs.replace(p, value=float(value), standard_error=math.nan, at_bound=bool(held))
            for p, value, held in zip(fit.parameters, found.x, found.at_bound, strict=True)
        )
        refit = replace(fit, parameters=parameters, problem=problem)
        # Made once: they follow from the model and the range of times.
        refit.__dict__["coordinates"] = fit.coordinates
        left_out = fit.problem.take(own)
        predicted = np.broadcast_to(fit.problem.model.evaluate(refit, left_out.inputs), left_out.output.shape)
    except (ArithmeticError, np.linalg.LinAlgError, PerflexError) as error:  # the model is not finite there
        return Fold(name, own, reason=str(error))
    return Fold(name, own, refit, tuple(map(float, predicted / left_out.output - 1)))


def between_generators(fit: FitResult, owners: Sequence[str]) -> BetweenGenerators:
    """Return what predictions of generators by the others say; nothing where no generator has several kernels.

    Nor with a prior: without it the fit to the others would be another one.
    """
    if len(set(owners)) in {1, len(owners)} or fit.prior is not None:
        return BetweenGenerators()
    left_out, slopes = [], []
    for fold in cross_validation(fit, owners):
        if fold.fit is None:
            continue
        try:
            found = _LeftOut.of(fold, fold.fit, fit, owners)
        except CalibrationError:  # the fit passes through all of its rows, or is not finite for those left out
            continue
        left_out.append(found)
        slopes += found.squared_slope()
    slope = math.sqrt(max(float(np.mean(slopes)), 0.0)) if slopes else 0.0
    return BetweenGenerators(_ratio(left_out), len(left_out), slope, len(slopes))


def log_half_width(deviations: Array, of_parameters: Array, scatter: Array) -> Array:
    """Return the logarithm of the factor by which the limits of relative errors lie off.

    The uncertainty of a cost adds to a time. While it is small that is the same as a factor; a cost known to its
    hundredfold makes the upper limit a hundred times larger, not exp(100) times.
    """
    added = deviations * of_parameters
    factor = np.where(added <= 1.0, added, 1.0 + np.log(np.maximum(added, 1.0)))
    half_width: Array = np.hypot(factor, deviations * scatter)
    return half_width


@dataclass(frozen=True, eq=False)
class _LeftOut:
    """A generator's kernels as predicted by the others."""

    variances: Variances
    measured: Array

    @classmethod
    def of(cls, fold: Fold, refit: FitResult, fit: FitResult, owners: Sequence[str]) -> _LeftOut:
        others = [owner for owner, own in zip(owners, fold.rows, strict=True) if not own]
        left_out = fit.problem.take(fold.rows)
        variances = PredictionVariance(refit, others).at(left_out.inputs)
        lowest = 0.0 if fit.problem.relative else -np.inf
        if not (np.isfinite(variances.predicted) & (variances.predicted > lowest)).all():
            msg = f"the model {fit.problem.model.expression!r} has no times for kernels of {fold.generator}"
            raise CalibrationError(msg)
        return cls(variances, left_out.output)

    def standardised(self, ratio: float) -> Array:
        """Return the size of each error over what is expected of it, shape ``(r,)``."""
        of_parameters = np.sqrt(self.variances.of_parameters(ratio))
        scatter = self.variances.noise.deviation(self.measured) * np.sqrt(1.0 + ratio)
        if not self.variances.noise.relative:
            size: Array = np.abs(self.measured - self.variances.predicted) / np.hypot(of_parameters, scatter)
            return size
        of_parameters = of_parameters / self.variances.predicted
        # Times that a law gives exactly scatter by their rounding.
        scatter = np.maximum(scatter, np.finfo(np.float64).eps)
        error = np.abs(np.log(self.measured / self.variances.predicted))
        # So many deviations that the limit is just where the measurement is; the half-width grows with them.
        low, high = np.zeros_like(error), error / scatter
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            inside = log_half_width(middle, of_parameters, scatter) < error
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        found: Array = (low + high) / 2
        return found

    def squared_slope(self) -> list[float]:
        """Return the square of the slope of log(measured / predicted) by log(predicted), less what noise makes of it.

        None where times are too alike. By predicted times, because noise is in the measured ones: of those a slope
        remains where there is none.
        """
        if not self.variances.noise.relative:
            return []
        logs = np.log(self.variances.predicted)
        x = logs - logs.mean()
        if len(x) < _FEWEST_FOR_SLOPE or float(np.sqrt(np.mean(x**2))) < _LEAST_RANGE:
            return []
        weights = x / (x @ x)
        slope = weights @ np.log(self.measured / self.variances.predicted)
        return [float(slope**2 - weights**2 @ self.variances.noise.deviation(self.measured) ** 2)]


def _ratio(left_out: list[_LeftOut]) -> float:
    """Return the ratio at which standardised errors have a mean square of one."""

    def excess(ratio: float) -> float:
        # Each generator counts the same, however many kernels it has.
        return float(np.mean([np.mean(entry.standardised(ratio) ** 2) for entry in left_out])) - 1.0

    if not left_out or excess(0.0) <= 0:
        return 0.0
    # In logarithms, for ratios of 0.01 and 100 both occur.
    low, high = np.log(1e-4), np.log(1.0)
    while excess(float(np.exp(high))) > 0 and high < np.log(_MOST):
        low, high = high, high + 2.0
    for _ in range(_RATIO_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(float(np.exp(middle))) > 0 else (low, middle)
    return float(np.exp((low + high) / 2))
