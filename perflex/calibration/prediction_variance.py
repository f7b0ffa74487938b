"""The variance of predictions: of the parameters, and of a measurement about the model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.uncertainty import (
    free_parameters,
    mean_square_within,
    posed_as_fitted,
    require_spare,
    residual_deviation,
    vector,
    without_bound,
)
from perflex.errors import CalibrationError
from perflex.fit.noise import ResidualNoise, measured_noise, residual_noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.calibration.uncertainty import FreedParameter
    from perflex.expression.model import Model
    from perflex.fit.problem import Problem
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Released:
    """A parameter at its bound, and what that it may be above it does to predictions."""

    freed: FreedParameter
    squared_loading: Array
    own: float
    shared: float


@dataclass(frozen=True, eq=False)
class Variances:
    """Variances of predictions; in squares of the output's unit, shape ``(r,)`` each.

    Attributes
    ----------
    predicted
        The predictions.
    own
        Of the parameters, from errors that each row has for itself; without what bounds hold.
    shared
        The same from errors that all rows of a generator share, each as large as a residual.
    noise
        How large residuals about the model are at each output.
    """

    predicted: NDArray[np.float64]
    own: NDArray[np.float64]
    shared: NDArray[np.float64]
    noise: ResidualNoise
    released: tuple[_Released, ...]

    def of_parameters(self, ratio: float = 0.0) -> NDArray[np.float64]:
        """Return the variance from all parameters, shape ``(r,)``.

        Parameters
        ----------
        ratio
            Variance of errors that the rows of a generator share over that of those which each has for itself.
        """
        variance = self.own + ratio * self.shared
        for part in self.released:
            # A parameter at its bound is known to be small, not to be zero.
            error = float(np.sqrt(part.own + ratio * part.shared))
            variance = variance + part.squared_loading * mean_square_within(part.freed.value, error, part.freed.limit)
        # Rounding may leave a quadratic form that vanishes slightly below zero.
        return np.maximum(variance, 0.0)


def gradient_at(model: Model, fit: FitResult, values: Mapping[str, Any], predicted: NDArray[np.float64]) -> Array:
    """Return the derivatives of predictions by the parameters, shape ``(r, n)``; errors as `PredictionVariance.at`."""
    flat = {
        name: np.broadcast_to(np.asarray(values[name], dtype=np.float64), predicted.shape).ravel()
        for name in model.input_features()
    }
    gradient: Array = model.compiled.derivatives({**flat, **fit}, predicted.size)
    if not np.isfinite(gradient).all():
        msg = f"the model {model.expression!r} has no finite derivatives for these values, so there is no interval"
        raise CalibrationError(msg, model=model)
    return gradient


class PredictionVariance:
    """What a fit and its rows say of the variance of predictions.

    Without the rows (calibrations from files of earlier versions) residuals are equally large everywhere, bounds are
    taken for certain, and nothing is known of generators.

    Parameters
    ----------
    model, fit, table
        The model, its fit, and what was fitted, if that is known.
    owners
        The generator of each row.

    Raises
    ------
    CalibrationError
        There were no more measurement kernels than parameters.
    """

    def __init__(self, model: Model, fit: FitResult, table: FeatureTable | None, owners: Sequence[str]) -> None:
        require_spare(fit)
        self.model = model
        self.fit = fit
        self._free = free_parameters(fit)
        self._owners = owners
        self._problem: Problem | None = None if table is None else posed_as_fitted(model, table, fit)
        self._measured = None if table is None else measured_noise(table)

    @cached_property
    def _jacobian(self) -> tuple[Array, Array]:
        """Jacobian of the residuals by the free parameters, and pseudo-residuals."""
        assert self._problem is not None  # noqa: S101 - asked for where there are rows only
        jacobian, pseudo = self._problem.regression(vector(self.fit), len(self._free))
        return jacobian[:, self._free], pseudo

    @cached_property
    def noise(self) -> ResidualNoise:
        """How large residuals are at each output."""
        deviation = residual_deviation(self.fit)
        if self._problem is None:
            nothing = np.zeros(0)
            return ResidualNoise("constant", deviation, 0.0, nothing, nothing, (0.0, 0.0), self.fit.scaled)
        residual = self._problem.plain_residual(vector(self.fit))
        if self._problem.loss is None and (self._problem.root != 1).any():
            # Rows are as noisy, whatever they weigh.
            residual = residual / self._problem.root
            deviation = float(np.linalg.norm(residual)) / np.sqrt(require_spare(self.fit))
        jacobian, _ = self._jacobian
        basis = np.linalg.qr(jacobian / np.linalg.norm(jacobian, axis=0))[0]
        return residual_noise(
            self._problem.output,
            residual,
            basis,
            self._measured,
            relative=self.fit.scaled,
            deviation=deviation,
            robust=self._problem.loss is not None,
        )

    @cached_property
    def _row_errors(self) -> tuple[Array, Array]:
        """Standard deviation of each row's error, shape ``(m,)``, and which generator shares it, shape ``(m, G)``."""
        assert self._problem is not None  # noqa: S101 - asked for where there are rows only
        deviation = self.noise.deviation(self._problem.output)
        if self._problem.loss is not None:
            # Pseudo-residuals, not the spread of good rows, decide how sure a robust loss's estimates are.
            _, pseudo = self._jacobian
            spread = float(np.linalg.norm(pseudo)) / np.sqrt(self.fit.degrees_of_freedom)
            usual = residual_deviation(self.fit)
            # Times that a law gives exactly, as a simulator's may be, leave no residuals.
            deviation = deviation * spread / usual if usual else deviation
        # The estimates are made of weighted residuals.
        deviation = deviation * self._problem.root
        names = list(dict.fromkeys(self._owners))
        member = np.array([[owner == name for name in names] for owner in self._owners], dtype=np.float64)
        return deviation, member

    @cached_property
    def _roots(self) -> tuple[Array, Array]:
        """Roots of the parameters' covariance from own and from shared errors, shapes ``(n, m)`` and ``(n, G)``."""
        jacobian, _ = self._jacobian
        deviation, member = self._row_errors
        length = np.linalg.norm(jacobian, axis=0)
        inverse = np.zeros((len(self.fit), len(jacobian)))
        with np.errstate(all="ignore"):
            columns = jacobian / length
        if not np.isfinite(columns).all():
            msg = (
                "the model has no finite slopes at the calibration's kernels: values are out of range; calibrate again"
            )
            raise CalibrationError(msg)
        inverse[self._free] = np.linalg.pinv(columns) / length[:, None]
        # The estimates are those of equal weights, whatever the rows' variances (White, Econometrica 48, 817, 1980;
        # with errors that a cluster shares: Liang and Zeger, Biometrika 73, 13, 1986).
        own = inverse * deviation
        return own, own @ member

    @cached_property
    def _freed(self) -> list[FreedParameter]:
        if self._problem is None:
            return []
        held = [i for i, parameter in enumerate(self.fit.parameters) if parameter.at_bound and parameter.determined]
        found = (without_bound(self._problem, self.fit, self._free, index) for index in held)
        return [freed for freed in found if freed is not None]

    def at(self, values: Mapping[str, Any]) -> tuple[Variances, NDArray[np.float64]]:
        """Return the variances of predictions, and their derivatives by the parameters, shape ``(r, n)``.

        Parameters
        ----------
        values
            A number or array per input feature; arrays are taken as flat.

        Raises
        ------
        CalibrationError
            The model has no finite derivatives there.
        """
        predicted = np.asarray(self.model.evaluate(self.fit, values), dtype=np.float64)
        gradient = gradient_at(self.model, self.fit, values, predicted)
        predicted = predicted.ravel()
        if self._problem is None:
            covariance = np.nan_to_num(self.fit.covariance, nan=0.0)
            own = np.einsum("ri,ij,rj->r", gradient, covariance, gradient)
            return Variances(predicted, own, np.zeros_like(own), self.noise, ()), gradient
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
        return Variances(predicted, own.sum(axis=1), shared.sum(axis=1), self.noise, released), gradient
