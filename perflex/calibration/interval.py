"""Prediction intervals: where a measurement of a new kernel would lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.cross_validation import log_half_width
from perflex.calibration.prediction_variance import flattened, require_spare, student_quantile
from perflex.calibration.transfer_prior import NORMAL, TransferPrior, transferred_predictions
from perflex.errors import CalibrationError
from perflex.html import shown_by
from perflex.tables import Table, number, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.calibration.cross_validation import BetweenGenerators
    from perflex.calibration.prediction_variance import Variances
    from perflex.calibration.record import CalibrationRecord

    Array = NDArray[np.float64]

# A parameter matters if doubling it changes the prediction by more than this share.
_MATTERS = 1e-3
_ROUNDS = 25


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
        Of a measurement about the model: noise, and what the model leaves out; same unit.
    degrees_of_freedom
        Of Student's t distribution: measurement kernels to spare; fewer, and not whole, where the spread between few
        generators matters.
    extrapolated
        Whether the measurement kernels have nothing like it; the interval is wider then.
    doubts
        Reasons not to rely on the prediction, as short texts: what is extrapolated, and what else is known against
        it. For arrays those of all sizes together.
    """

    predicted: float | NDArray[np.float64]
    low: float | NDArray[np.float64]
    high: float | NDArray[np.float64]
    confidence: float
    standard_error: float | NDArray[np.float64]
    residual_deviation: float | NDArray[np.float64]
    degrees_of_freedom: float | NDArray[np.float64]
    extrapolated: bool | NDArray[np.bool_] = False
    doubts: tuple[str, ...] = ()

    def doubted(self, *doubts: str) -> PredictionInterval:
        """Return the same with further doubts, each once."""
        return replace(self, doubts=tuple(dict.fromkeys((*self.doubts, *doubts))))

    def widened(self, deviation: float | NDArray[np.float64]) -> PredictionInterval:
        """Return the same where the logarithm of a measurement has a standard deviation of its own beside."""
        beyond = NormalDist().inv_cdf((1 + self.confidence) / 2) * deviation
        with np.errstate(all="ignore"):
            down, up = (np.hypot(np.log(np.divide(end, self.predicted)), beyond) for end in (self.low, self.high))
        low = np.where(np.asarray(self.low) > 0, self.predicted * np.exp(-down), self.low)
        return replace(self, low=_plain(low), high=_plain(np.asarray(self.predicted * np.exp(up))))

    def table(self) -> Table:
        """Return a row for each prediction, by its place."""
        return interval_table(self, [str(place) for place in range(1, np.size(self.predicted) + 1)])

    _repr_html_ = shown_by("result.html")


def interval_table(found: Any, names: Sequence[str]) -> Table:
    """Return predictions and limits by name, of a `PredictionInterval` or `RowPredictions`."""
    columns = [
        text("prediction"),
        number("predicted", "time", meaning="in the output feature's unit: seconds for a wall time"),
        number("low", "from"),
        number("high", "to"),
    ]
    numbers = (np.ravel(column).tolist() for column in (found.predicted, found.low, found.high))
    caption = f"Predictions and their {100 * found.confidence:g} % intervals"
    return Table(caption, columns, list(zip(names, *numbers, strict=True)))


def carried_by(calibration: CalibrationRecord) -> TransferPrior | None:
    """Return what predictions rest on beside a fit; of a prior alone that a residual is as large as it says.

    None for a fit to rows alone.
    """
    prior = calibration.fit.prior
    if calibration.transferred is not None or prior is None:
        return calibration.transferred
    return TransferPrior(prior.sources, len(calibration.table), unknown=prior.noise, limits=NORMAL)


def interval_at(
    calibration: CalibrationRecord,
    values: Mapping[str, Any],
    confidence: float = 0.95,
    kernels: Sequence[tuple[str, str]] = (),
) -> PredictionInterval:
    """Return the prediction interval at given feature values.

    With the derivatives g of the prediction f by the parameters and their covariance C, a measurement lies in
    ``f +- t * sqrt(g' C g + s**2)`` (delta method; t is the quantile of Student's distribution). A fit of relative
    errors has its interval of the logarithm, so that no time in it is negative.

    The deviation s has three parts. That of residuals at this time (`fit/confidence.py`): the noise of a kernel that
    was not measured is taken for that of measurement kernels with similar times. What kernels of another generator are
    off by (`perflex.calibration.cross_validation`), in C, too. And beyond the largest measurement kernels what errors
    grow by with the time. A parameter at its bound is known to be small, not to be zero: it counts with the mean square
    that the measurements leave it above zero.

    Of a fit with a prior, such as of a transferred calibration, both prediction and limits follow from the posterior,
    and from what other devices say (`perflex.calibration.transfer_prior`).
    """
    if not 0 < confidence < 1:
        msg = f"the confidence must lie between 0 and 1, not {confidence!r}"
        raise ValueError(msg)
    known = carried_by(calibration)
    if known is not None:
        return _from_other_devices(calibration, known, values, confidence, kernels)
    fit, model = calibration.fit, calibration.model
    own = require_spare(fit)
    variances, place = calibration.prediction_variance.at(values), calibration.place_of(values)
    _require_determined(calibration, variances, place.depends_on)
    spread = _Spread(variances, calibration.between_generators, own, place.extrapolated_log)
    predicted, middle = variances.predicted, spread.at(variances.predicted)
    # Two-sided: half of the remaining risk lies beyond either limit.
    probability = (1 + confidence) / 2
    half_width = student_quantile(probability, middle.freedom) * np.hypot(middle.of_parameters, middle.scatter)
    low, high = predicted - half_width, predicted + half_width
    if fit.problem.relative:
        with np.errstate(all="ignore"):
            factor = np.exp(spread.log_half_widths(probability))
            low = np.where(predicted > 0, predicted / factor[0], low)
            high = np.where(predicted > 0, predicted * factor[1], high)
    _require_finite(calibration, low, high)
    shape = flattened(model, values)[1]
    return PredictionInterval(
        _plain(predicted.reshape(shape)),
        _plain(low.reshape(shape)),
        _plain(high.reshape(shape)),
        confidence,
        _plain(middle.of_parameters.reshape(shape)),
        _plain(middle.scatter.reshape(shape)),
        own if (middle.freedom == own).all() else _plain(middle.freedom.reshape(shape)),
        extrapolated=_plain(place.outside.reshape(shape)),
        doubts=place.doubts,
    )


def _from_other_devices(
    calibration: CalibrationRecord,
    transferred: TransferPrior,
    values: Mapping[str, Any],
    confidence: float,
    kernels: Sequence[tuple[str, str]],
) -> PredictionInterval:
    """Return prediction and limits of a transferred calibration."""
    flat, shape = flattened(calibration.model, values)
    found = transferred_predictions(calibration.fit, transferred, flat, kernels or [("", "")] * math.prod(shape))
    half_width = transferred.half_width(confidence)
    with np.errstate(over="ignore"):
        middle, factor = np.exp(found.mean).reshape(shape), np.exp(half_width * found.deviation).reshape(shape)
        _require_finite(calibration, middle / factor, middle * factor)
    return PredictionInterval(
        _plain(middle),
        _plain(middle / factor),
        _plain(middle * factor),
        confidence,
        _plain(middle * found.of_parameters.reshape(shape)),
        _plain(middle * np.sqrt(found.deviation**2 - found.of_parameters**2).reshape(shape)),
        float(max(len(transferred.sources) - 1, 1)),
        extrapolated=_plain(np.zeros(shape, dtype=bool)),
        doubts=transferred.remarks,
    )


def _require_finite(calibration: CalibrationRecord, *limits: Array) -> None:
    if not np.isfinite(limits).all():
        msg = (
            "the standard errors of the parameters are so large that the interval is infinite; "
            "calibrate with more kernels that contain its costs"
        )
        raise CalibrationError(msg, model=calibration.model)


@dataclass(frozen=True, eq=False)
class _Deviations:
    """Standard deviations in the output's unit, and the degrees of freedom of both together, shape ``(r,)`` each."""

    of_parameters: Array
    scatter: Array
    freedom: Array


@dataclass(frozen=True, eq=False)
class _Spread:
    """How far measurements lie from predictions, as a function of the time that is measured."""

    variances: Variances
    between: BetweenGenerators
    freedom: int
    extrapolated_log: Array

    def at(self, output: Array) -> _Deviations:
        """Return the standard deviations of measurements of the size `output`."""
        between = self.between
        size = np.abs(self.variances.predicted) if self.variances.noise.relative else 1.0
        noise = (self.variances.noise.deviation(output) * size) ** 2
        beyond = (between.slope * self.extrapolated_log * size) ** 2
        own = self.variances.of_parameters() + noise
        of_parameters = self.variances.of_parameters(between.ratio)
        # The parts are independent: of the parameters, and of the kernel that is predicted.
        shared = np.maximum(of_parameters + noise * (1.0 + between.ratio) - own, 0.0)
        freedom = _freedom((own, self.freedom), (shared, between.generators), (beyond, between.slopes))
        return _Deviations(np.sqrt(of_parameters), np.sqrt(noise * (1.0 + between.ratio) + beyond), freedom)

    def log_half_widths(self, probability: float) -> Array:
        """Return the logarithms of the factors to both limits, shape ``(2, r)``; zero for predictions not above zero.

        For a relative fit. A time is inside if it lies off by no more than the deviations expected of a measurement of
        that time: short ones are noisy, however long the prediction. So each limit is where that half-width ends.
        """
        predicted = self.variances.predicted
        positive = predicted > 0
        unit = np.where(positive, predicted, 1.0)

        def half_width(output: Array) -> Array:
            found = self.at(output)
            deviations = student_quantile(probability, found.freedom)
            wide = log_half_width(deviations, found.of_parameters / unit, found.scatter / unit)
            return np.where(positive, wide, 0.0)

        start = half_width(predicted)
        ends = np.array([start, start])
        if self.variances.noise.kind == "constant":
            return ends
        for _ in range(_ROUNDS):
            # Half steps: the longer a time, the less its noise, so that whole ones would swing.
            nearer = [half_width(predicted * np.exp(sign * end)) for sign, end in zip((-1, 1), ends, strict=True)]
            ends = (ends + nearer) / 2
        return ends


def _freedom(*parts: tuple[Array, int]) -> Array:
    """Return the degrees of freedom of a sum of variances, each with its own (Satterthwaite, Biometrics 2, 110, 1946).

    A part without any is zero.
    """
    total = np.sum([variance for variance, _ in parts], axis=0)
    weight = np.sum([variance**2 / freedom for variance, freedom in parts if freedom], axis=0)
    found: Array = np.divide(total**2, weight, out=np.full_like(total, parts[0][1]), where=weight > 0)
    # One part alone has its own, to the last digit.
    return np.where(np.isclose(found, parts[0][1], rtol=1e-12), parts[0][1], found)


def _require_determined(calibration: CalibrationRecord, variances: Variances, depends_on: tuple[str, ...]) -> None:
    gradient, predicted = variances.gradient, variances.predicted
    for index, parameter in enumerate(calibration.fit.parameters):
        if parameter.determined:
            continue
        change = np.abs(gradient[:, index] * parameter.value)
        # The value of a cost that nothing determined says nothing, so that any dependence on it matters.
        unknown = parameter.kind == "cost" or parameter.value == 0
        matters = gradient[:, index] != 0 if unknown else change > _MATTERS * np.abs(predicted)
        # Derivatives by an edge vanish where costs are added or the larger one counts, whichever is right; those by a
        # cost of zero vanish beside a larger one.
        if matters.any() or parameter.name in depends_on:
            cause = f"the prediction depends on {parameter.name}, which the measurement kernels do not determine"
            msg = f"{cause}, so it has no interval; calibrate with kernels that determine it"
            raise CalibrationError(msg, parameter=parameter.name)


# Any: a number where sizes were numbers, else an array.
def _plain(values: NDArray[Any]) -> Any:
    return values.item() if values.shape == () else values
