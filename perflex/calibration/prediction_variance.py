"""The variance of predictions: of the parameters, bounds included, and of a measurement about the model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from perflex.errors import CalibrationError
from perflex.fit.confidence import residual_noise
from perflex.fit.identify import scaled_slopes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.confidence import ResidualNoise
    from perflex.fit.result import FitResult

    Array = NDArray[np.float64]

# Below this length relative to its own, what is left of a column beside the others is rounding.
_INDISTINGUISHABLE = 1e-7
# Beyond this many deviations the tail's moment is its asymptote; the closed form would cancel.
_FAR = 30.0
# Deviations beyond which a normal distribution holds nothing; a limit nearer than that is integrated up to.
_BEYOND_TAIL = 9.0
_NODES = 500


@overload
def student_quantile(probability: float, freedom: float) -> float: ...
@overload
def student_quantile(probability: float, freedom: NDArray[np.float64]) -> NDArray[np.float64]: ...
def student_quantile(probability: float, freedom: float | NDArray[np.float64]) -> float | NDArray[np.float64]:
    """Return a quantile of Student's t distribution, of the shape of its degrees of freedom; nan without any."""
    from scipy.stats import t as student

    found: NDArray[np.float64] = np.asarray(student.ppf(probability, np.where(np.greater(freedom, 0), freedom, np.nan)))
    return found if np.ndim(freedom) else float(found)


def require_spare(fit: FitResult) -> int:
    """Return how many more kernels than parameters there were; a `CalibrationError` if none."""
    if fit.degrees_of_freedom <= 0:
        cause = f"{len(fit.kernels)} measurement kernels leave no degrees of freedom for {len(fit)} parameters"
        msg = f"{cause}; calibrate with more measurement kernels"
        raise CalibrationError(msg)
    return fit.degrees_of_freedom


def residual_deviation(fit: FitResult) -> float:
    """Return the standard deviation of a residual."""
    return fit.residual_norm / math.sqrt(require_spare(fit))


@dataclass(frozen=True)
class FreedParameter:
    """What the measurements say of a parameter held at its bound, if that alone let go."""

    # How far inside of its bound the linearised fit would put it, below zero for beyond; in the parameter's unit.
    value: float
    standard_error: float
    # Change of all parameters per unit of that, the fit staying at its minimum; shape ``(n,)``.
    direction: NDArray[np.float64]
    # How its value weighs the rows' errors, shape ``(m,)``.
    weights: NDArray[np.float64]
    # Value at which it would be at its other bound, or another cost, which makes way for it, zero; inf for none.
    limit: float

    def mean_square(self, deviation: float | None = None) -> float:
        """Return E[x**2] of a normal distribution with its value, cut off below zero and above the limit.

        The distribution's deviation is its standard error, or the one given.
        """
        mean, limit = self.value, self.limit
        deviation = self.standard_error if deviation is None else deviation
        if deviation == 0.0:
            return min(max(mean, 0.0), limit) ** 2
        if limit <= 0.0:
            return 0.0
        # Beyond the tail a limit cuts nothing off.
        if limit - max(mean, 0.0) > _BEYOND_TAIL * deviation:
            return _mean_square_above_zero(mean, deviation)
        # The tail of a normal distribution falls off the faster, the farther out it is cut off.
        away = max(-mean / deviation, 1.0)
        limit = min(limit, max(mean, 0.0) + _BEYOND_TAIL * deviation / min(away, 1.0 + away / 4))
        x = (np.arange(_NODES) + 0.5) * limit / _NODES
        exponent = -(((x - mean) / deviation) ** 2) / 2
        density = np.exp(exponent - exponent.max())
        return float(density @ x**2 / density.sum())


def _mean_square_above_zero(mean: float, deviation: float) -> float:
    """Return E[x**2] for a normal distribution cut off below zero."""
    from scipy.special import erfcx

    away = -mean / deviation
    if away > _FAR:
        # There the tail is exponential with mean deviation / away; its mean square is twice that mean's square.
        return 2.0 * (deviation / away) ** 2
    # erfcx, not erfc: far in the tail density and probability both vanish, but not their ratio.
    hazard = math.sqrt(2.0 / math.pi) / float(erfcx(away / math.sqrt(2.0)))
    # The hazard is the inverse Mills ratio: E[x**2] = mean**2 + deviation**2 + mean * deviation * hazard.
    return deviation**2 * (1.0 + away**2 - away * hazard)


def without_bound(fit: FitResult, index: int) -> FreedParameter | None:
    """Return what the measurements say of a parameter at its bound; None if nothing."""
    problem, free = fit.problem, fit.free
    jacobian, residual = problem.jacobian(fit.vector), problem.residual(fit.vector)
    value, lower, upper = fit.vector[index], fit.coordinates.lower[index], fit.coordinates.upper[index]
    # The nearer of both: in a file a bound that follows from the rows may differ by rounding.
    inward = -1.0 if upper - value < value - lower else 1.0
    column = inward * jacobian[:, index]
    direction = np.zeros(len(fit))
    direction[index] = inward
    rest = column
    if free:
        # Regression of its column on the free ones: how they would move along, and what is its own.
        columns, length = scaled_slopes(jacobian[:, free])
        weights = np.linalg.lstsq(columns, column, rcond=None)[0] / length
        direction[free] = -weights
        rest = column - jacobian[:, free] @ weights
    size = float(np.linalg.norm(rest))
    if not size > _INDISTINGUISHABLE * float(np.linalg.norm(column)):
        return None
    # Frisch, Waugh and Lovell: regression on what is left of a column gives its coefficient beside the other columns.
    deviation = residual_deviation(fit) / size
    limit = min(float(upper - lower), _limit(fit, direction))
    return FreedParameter(-float(rest @ residual) / size**2, deviation, direction, rest / size**2, limit)


def _limit(fit: FitResult, direction: Array) -> float:
    """Return how far a parameter may go in a direction until another one that bounds hold is at zero."""
    if not fit.nonnegative:
        return math.inf
    steps = [
        parameter.value / -float(change)
        for parameter, change in zip(fit.parameters, direction, strict=True)
        if change < 0 and parameter.kind == "cost" and not parameter.at_bound
    ]
    return min(steps, default=math.inf)


@dataclass(frozen=True, eq=False)
class _Released:
    """A parameter at its bound, and what that it may be above it does to predictions."""

    freed: FreedParameter
    squared_loading: Array
    own: float
    shared: float


@dataclass(frozen=True, eq=False)
class Variances:
    """Variances of predictions; in squares of the output's unit, shape ``(r,)`` each."""

    predicted: NDArray[np.float64]
    # Derivatives of the predictions by the parameters, shape ``(r, n)``.
    gradient: NDArray[np.float64]
    # Of the parameters, from errors that each row has for itself; without what bounds hold.
    own: NDArray[np.float64]
    # The same from errors that all rows of a generator share, each as large as a residual.
    shared: NDArray[np.float64]
    noise: ResidualNoise
    released: tuple[_Released, ...]

    def of_parameters(self, ratio: float = 0.0) -> NDArray[np.float64]:
        """Return the variance from all parameters, shape ``(r,)``.

        `ratio` is the variance of errors that the rows of a generator share over that which each has for itself.
        """
        variance = self.own + ratio * self.shared
        for part in self.released:
            # A parameter at its bound is known to be small, not to be zero.
            error = math.sqrt(part.own + ratio * part.shared)
            variance = variance + part.squared_loading * part.freed.mean_square(error)
        # Rounding may leave a quadratic form that vanishes slightly below zero.
        return np.maximum(variance, 0.0)


def flattened(model: Model, values: Mapping[str, Any]) -> tuple[dict[str, Array], tuple[int, ...]]:
    """Return the value of each input feature, numbers or arrays, as a row each, and the shape of all together."""
    names = model.input_features()
    shape = np.broadcast_shapes(*(np.shape(values[name]) for name in names))
    flat = {name: np.broadcast_to(np.asarray(values[name], dtype=np.float64), shape).ravel() for name in names}
    return flat, shape


def gradient_at(model: Model, fit: FitResult, values: Mapping[str, Any]) -> Array:
    """Return the derivatives of predictions by the parameters, shape ``(r, n)``; errors as `PredictionVariance.at`."""
    flat, shape = flattened(model, values)
    gradient: Array = model.derivatives({**flat, **fit}, math.prod(shape))
    if not np.isfinite(gradient).all():
        msg = f"the model {model.expression!r} has no finite derivatives for these values, so there is no interval"
        raise CalibrationError(msg, model=model)
    return gradient


class PredictionVariance:
    """What a fit and its rows say of the variance of predictions."""

    def __init__(self, fit: FitResult, owners: Sequence[str]) -> None:
        require_spare(fit)
        self._fit = fit
        self._owners = owners
        self._problem = fit.problem

    @cached_property
    def _jacobian(self) -> Array:
        """Jacobian of the residuals by the free parameters."""
        return self._problem.jacobian(self._fit.vector)[:, self._fit.free]

    @cached_property
    def noise(self) -> ResidualNoise:
        """How large residuals are at each output."""
        basis = np.linalg.qr(scaled_slopes(self._jacobian)[0])[0]
        residual = self._problem.residual(self._fit.vector)
        return residual_noise(self._problem, residual, basis, residual_deviation(self._fit))

    @cached_property
    def _row_errors(self) -> tuple[Array, Array]:
        """Standard deviation of each row's error, shape ``(m,)``, and which generator shares it, shape ``(m, G)``."""
        names = list(dict.fromkeys(self._owners))
        member = np.array([[owner == name for name in names] for owner in self._owners], dtype=np.float64)
        return self.noise.deviation(self._problem.output), member

    @cached_property
    def _roots(self) -> tuple[Array, Array]:
        """Roots of the parameters' covariance from own and from shared errors, shapes ``(n, m)`` and ``(n, G)``."""
        jacobian = self._jacobian
        deviation, member = self._row_errors
        inverse = np.zeros((len(self._fit), len(jacobian)))
        columns, length = scaled_slopes(jacobian)
        inverse[self._fit.free] = np.linalg.pinv(columns) / length[:, None]
        # The estimates are those of equal weights, whatever the rows' variances (White, Econometrica 48, 817, 1980;
        # with errors that a cluster shares: Liang and Zeger, Biometrika 73, 13, 1986).
        own = inverse * deviation
        return own, own @ member

    @cached_property
    def _freed(self) -> list[FreedParameter]:
        held = [i for i, parameter in enumerate(self._fit.parameters) if parameter.at_bound and parameter.determined]
        found = (without_bound(self._fit, index) for index in held)
        return [freed for freed in found if freed is not None]

    def at(self, values: Mapping[str, Any]) -> Variances:
        """Return the variances of predictions at feature values: a number or array each, which are taken as flat."""
        model = self._problem.model
        predicted = np.asarray(model.evaluate(self._fit, values), dtype=np.float64)
        gradient = gradient_at(model, self._fit, values)
        own_root, shared_root = self._roots
        deviation, member = self._row_errors
        released = tuple(
            _Released(
                freed,
                (gradient @ freed.direction) ** 2,
                float(((freed.weights * deviation) ** 2).sum()),
                float((((freed.weights * deviation) @ member) ** 2).sum()),
            )
            for freed in self._freed
        )
        own, shared = ((gradient @ root) ** 2 for root in (own_root, shared_root))
        return Variances(predicted.ravel(), gradient, own.sum(axis=1), shared.sum(axis=1), self.noise, released)
