"""Prediction intervals: where a measurement of a new kernel would lie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.carried_over import carried_predictions
from perflex.calibration.generator_term import log_reach
from perflex.calibration.prediction_variance import gradient_at
from perflex.calibration.uncertainty import require_spare, student_quantile
from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.calibration.carried_over import CarriedOver
    from perflex.calibration.generator_term import GeneratorTerm
    from perflex.calibration.left_out import LeftOutErrors
    from perflex.calibration.prediction_variance import Variances
    from perflex.calibration.record import CalibrationRecord

    Array = NDArray[np.float64]
    Values = float | NDArray[np.float64]

# A parameter matters if doubling it changes the prediction by more than this share.
_MATTERS = 1e-3
_ROUNDS = 25
# Share of a normal distribution within one standard deviation.
_ONE_DEVIATION = 0.6827


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


def interval_at(
    calibration: CalibrationRecord,
    values: Mapping[str, Any],
    confidence: float = 0.95,
    kernels: Sequence[tuple[str, str]] = (),
) -> PredictionInterval:
    """Return the prediction interval at given feature values.

    With the derivatives g of the prediction f by the parameters and their covariance C, a measurement lies in
    ``f +- t * sqrt(g' C g + s**2)`` (delta method; t is the quantile of Student's distribution). A fit of relative
    errors has relative residuals; the interval is then taken of the logarithm, so that no time in it is negative.

    The deviation s has three parts. That of residuals at this time (`perflex.fit.noise`): the noise of a kernel that
    was not measured is taken for that of measurement kernels with similar times. What kernels of another generator are
    off by (`perflex.calibration.generator_term`), in C, too. And beyond the largest measurement kernels what errors
    grow by with the time.

    With twenty generators or more of two kernels each on average, fitted relatively, nothing is assumed of errors: the
    logarithms of the limits are quantiles of how far off generators were that were left out, wider where costs are
    mixed unlike theirs (`perflex.calibration.left_out`). Where predictions are corrected by what was learned of the
    residuals, those errors are, too, by learners that have not seen the generator.

    Of a transferred calibration both prediction and limits follow from the posterior and from what was carried over
    (`perflex.calibration.carried_over`).

    A parameter at its bound is known to be small, not to be zero: it counts with the mean square that the
    measurements leave it above zero. (Where a file keeps no measured values, it counts as zero, residuals are taken to
    be equally large everywhere, and nothing is known of generators and ranges.)

    Parameters
    ----------
    calibration
        The calibration.
    values
        A number or array per input feature of its model.
    confidence
        Between 0 and 1.
    kernels
        Label and program of each value, by which a transferred calibration knows what other devices say of the
        kernel; by default those of no kernel that they have timed.

    Raises
    ------
    ValueError
        The confidence is out of range.
    CalibrationError
        There were no more measurement kernels than parameters, the prediction depends on a parameter that
        they do not determine, or the interval has no end.
    """
    if not 0 < confidence < 1:
        msg = f"the confidence must lie between 0 and 1, not {confidence!r}"
        raise ValueError(msg)
    if calibration.transferred is not None:
        return _from_other_devices(calibration, calibration.transferred, values, confidence, kernels)
    fit = calibration.fit
    require_spare(fit)
    predicted = np.asarray(calibration.model.evaluate(fit, values), dtype=np.float64)
    shape, gradient = predicted.shape, gradient_at(calibration.model, fit, values, predicted)
    factor = np.asarray(calibration.correction(values), dtype=np.float64)
    predicted = predicted.ravel()
    place = calibration.place_of(values)
    _require_determined(calibration, gradient, predicted, () if place is None else place.depends_on)
    growth = np.zeros_like(predicted) if place is None else place.growth
    left_out = calibration.known_left_out
    if left_out is not None and (predicted > 0).all():
        predicted = predicted * factor.ravel()
        # What parameters add to a time is corrected with it; shares stay as they are.
        gradient = gradient * factor.reshape(-1, 1)
        low, high, middle = _from_left_out(calibration, left_out, gradient, predicted, growth, confidence)
    else:
        variances, _ = calibration.prediction_variance.at(values)
        spread = _Spread(variances, calibration.generator_term, fit.degrees_of_freedom, growth, relative=fit.scaled)
        low, high, middle = _from_deviations(spread, confidence)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        msg = (
            "the standard errors of the parameters are so large that the interval is infinite; "
            "calibrate with more kernels that contain its costs"
        )
        raise CalibrationError(msg, model=calibration.model)
    own = fit.degrees_of_freedom
    return PredictionInterval(
        _plain(predicted.reshape(shape)),
        _plain(low.reshape(shape)),
        _plain(high.reshape(shape)),
        confidence,
        _plain(middle.of_parameters.reshape(shape)),
        _plain(middle.scatter.reshape(shape)),
        own if (middle.freedom == own).all() else _plain(middle.freedom.reshape(shape)),
        extrapolated=False if place is None else _flags(place.outside.reshape(shape)),
        doubts=() if place is None else place.doubts,
    )


def _from_other_devices(
    calibration: CalibrationRecord,
    carried: CarriedOver,
    values: Mapping[str, Any],
    confidence: float,
    kernels: Sequence[tuple[str, str]],
) -> PredictionInterval:
    """Return prediction and limits of a transferred calibration."""
    shape = np.broadcast_shapes(*(np.shape(values[name]) for name in calibration.model.input_features()))
    count = int(np.prod(shape))
    flat = {
        name: np.broadcast_to(np.asarray(values[name], dtype=np.float64), shape).ravel()
        for name in calibration.model.input_features()
    }
    found = carried_predictions(calibration.model, calibration.fit, carried, flat, kernels or [("", "")] * count)
    reach = carried.reach(confidence)
    middle, factor = np.exp(found.mean).reshape(shape), np.exp(reach * found.deviation).reshape(shape)
    return PredictionInterval(
        _plain(middle),
        _plain(middle / factor),
        _plain(middle * factor),
        confidence,
        _plain(middle * found.of_parameters.reshape(shape)),
        _plain(middle * found.deviation.reshape(shape)),
        float(max(len(carried.sources) - 1, 1)),
        extrapolated=_flags(np.zeros(shape, dtype=bool)),
        doubts=carried.remarks,
    )


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
    term: GeneratorTerm
    freedom: int
    growth: Array
    relative: bool

    def at(self, output: Array) -> _Deviations:
        """Return the standard deviations of measurements of the size `output`."""
        predicted, ratio = self.variances.predicted, self.term.ratio
        size = np.abs(predicted) if self.relative else np.ones_like(predicted)
        noise = (self.variances.noise.deviation(output) * size) ** 2
        trend = (self.term.trend * self.growth * size) ** 2
        own = self.variances.of_parameters() + noise
        of_parameters = self.variances.of_parameters(ratio)
        # The parts are independent: of the parameters, and of the kernel that is predicted.
        shared = np.maximum(of_parameters + noise * (1.0 + ratio) - own, 0.0)
        freedom = _freedom((own, self.freedom), (shared, self.term.generators), (trend, self.term.trends))
        return _Deviations(np.sqrt(of_parameters), np.sqrt(noise * (1.0 + ratio) + trend), freedom)

    def log_reaches(self, probability: float) -> Array:
        """Return the logarithms of the factors to both limits, shape ``(2, r)``; zero for predictions not above zero.

        A time is inside if it lies off by no more than the deviations expected of a measurement of that time: short
        ones are noisy, however long the prediction. So each limit is where that reach ends, found by iteration.
        """
        predicted = self.variances.predicted
        positive = predicted > 0
        unit = np.where(positive, predicted, 1.0)

        def reach(output: Array) -> Array:
            found = self.at(output)
            deviations = student_quantile(probability, found.freedom)
            return np.where(positive, log_reach(deviations, found.of_parameters / unit, found.scatter / unit), 0.0)

        start = reach(predicted)
        ends = np.array([start, start])
        if self.variances.noise.kind == "constant":
            return ends
        for _ in range(_ROUNDS):
            # Half steps: the longer a time, the less its noise, so that whole ones would swing.
            ends = (ends + [reach(predicted * np.exp(sign * end)) for sign, end in zip((-1, 1), ends, strict=True)]) / 2
        return ends


def _from_deviations(spread: _Spread, confidence: float) -> tuple[Array, Array, _Deviations]:
    """Return the limits from variances, and the standard deviations."""
    predicted = spread.variances.predicted
    middle = spread.at(predicted)
    # Two-sided: half of the remaining risk lies beyond either limit.
    probability = (1 + confidence) / 2
    reach = student_quantile(probability, middle.freedom) * np.hypot(middle.of_parameters, middle.scatter)
    low, high = predicted - reach, predicted + reach
    if spread.relative:
        positive = predicted > 0
        with np.errstate(all="ignore"):
            factor = np.exp(spread.log_reaches(probability))
            low, high = np.where(positive, predicted / factor[0], low), np.where(positive, predicted * factor[1], high)
    return low, high, middle


def _from_left_out(
    calibration: CalibrationRecord,
    left_out: LeftOutErrors,
    gradient: Array,
    predicted: Array,
    growth: Array,
    confidence: float,
) -> tuple[Array, Array, _Deviations]:
    """Return the limits from errors of generators that were left out, and the standard deviations."""
    mixtures, covariance = calibration.term_shares, np.nan_to_num(calibration.fit.covariance, nan=0.0)
    assert mixtures is not None  # noqa: S101 - what was left out is known where rows are only
    distances = mixtures.distances(mixtures.of_gradient(gradient))
    reach = left_out.reach(confidence, distances, growth)
    scatter = predicted * left_out.reach(_ONE_DEVIATION, distances, growth)
    of_parameters = np.sqrt(np.maximum(np.einsum("ri,ij,rj->r", gradient, covariance, gradient), 0.0))
    freedom = np.full(predicted.shape, float(left_out.generators))
    with np.errstate(all="ignore"):
        low, high = predicted * np.exp(-reach), predicted * np.exp(reach)
    return low, high, _Deviations(of_parameters, scatter, freedom)


def _freedom(*parts: tuple[Array, int]) -> Array:
    """Return the degrees of freedom of a sum of variances, each with its own (Satterthwaite, Biometrics 2, 110, 1946).

    A part without any is zero.
    """
    total = np.sum([variance for variance, _ in parts], axis=0)
    weight = np.sum([variance**2 / freedom for variance, freedom in parts if freedom], axis=0)
    found: Array = np.divide(total**2, weight, out=np.full_like(total, parts[0][1]), where=weight > 0)
    # One part alone has its own, to the last digit.
    return np.where(np.isclose(found, parts[0][1], rtol=1e-12), parts[0][1], found)


def _require_determined(
    calibration: CalibrationRecord, gradient: Array, predicted: Array, depends_on: tuple[str, ...]
) -> None:
    for index, parameter in enumerate(calibration.fit.parameters):
        if parameter.determined:
            continue
        change = np.abs(gradient[:, index] * parameter.value)
        # The value of a cost that nothing determined says nothing, so that any dependence on it matters.
        unknown = parameter.kind == "cost" or parameter.value == 0
        matters = gradient[:, index] != 0 if unknown else change > _MATTERS * np.abs(predicted)
        # Where costs are added or the larger one counts, derivatives by an edge vanish, whichever is right.
        if matters.any() or parameter.name in depends_on:
            cause = f"the prediction depends on {parameter.name}, which the measurement kernels do not determine"
            msg = f"{cause}, so it has no interval; calibrate with kernels that determine it"
            raise CalibrationError(msg, parameter=parameter.name)


def _plain(values: Array) -> Values:
    return float(values) if values.shape == () else values


def _flags(values: NDArray[np.bool_]) -> bool | NDArray[np.bool_]:
    return bool(values) if values.shape == () else values
