"""The analytic model of a described kernel, fitted to few measured configurations with prior knowledge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.expression.compiled import CompiledExpression
    from perflex.search.described.description import Description

# Error of the model that residuals are weighed with against the priors, in the logarithm of the time.
_SPREAD = 0.2
# How much larger that error may be for a configuration e times slower than the fastest: they need not be told apart.
_LENIENCE = 0.3
# The priors, and others drawn about them: the least squares may have several minima.
_STARTS = 3


@dataclass(frozen=True)
class AnalyticFit:
    """The analytic model with the parameters that fit the measured configurations best, priors included.

    Attributes
    ----------
    description
        The family of kernels.
    parameters
        Value of each parameter.
    residual
        Standard deviation of the logarithm of measured over predicted time.
    cost
        Half the sum of squares that was minimised: smaller is more probable.
    """

    description: Description
    parameters: Mapping[str, float]
    residual: float
    cost: float

    def predict(self, features: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the predicted time of each configuration, in the unit that the fit was given."""
        compiled = _compiled(self.description.model, tuple(self.description.parameters))
        rows = len(next(iter(features.values())))
        return np.broadcast_to(np.asarray(compiled.value({**features, **self.parameters})), rows).astype(np.float64)

    def shares(self, features: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """Return by what part of itself the time would fall without each cost, to first order, shape ``(n,)`` each.

        The share of a parameter that has a unit is ``d log(time) / d log(parameter)``; what costs leave over is the
        first parameter's, the time of the operation that costs are stated in.
        """
        names = tuple(self.description.parameters)
        compiled = _compiled(self.description.model, names)
        values = {**features, **self.parameters}
        rows = len(next(iter(features.values())))
        slopes = compiled.derivatives(values, rows) / self.predict(features)[:, None]
        found = {
            name: slopes[:, number] * self.parameters[name]
            for number, name in enumerate(names)
            if number and self.description.parameters[name].unit != "1"
        }
        return {names[0]: 1 - np.sum(list(found.values()), axis=0), **found}


# Each fit while tuning asks for the same model: its symbolic derivatives are worth keeping.
@lru_cache(maxsize=16)
def _compiled(model: str, parameters: tuple[str, ...]) -> CompiledExpression:
    from perflex.expression.compiled import CompiledExpression
    from perflex.expression.parser import parse_expression

    return CompiledExpression(parse_expression(model), parameters)


def fit_analytic(
    description: Description, features: Mapping[str, NDArray[np.float64]], times: NDArray[np.float64]
) -> AnalyticFit:
    """Fit a description's model to measured configurations.

    The parameters that are most probable given the times: the logarithm of each parameter is normal around its prior,
    the logarithm of each time is about the model's with heavy tails (soft absolute errors), so that compilers' freaks
    do not bend the rest, and slow configurations may be farther off than fast ones. The parameter of time (the first)
    is set from the times first, since it is known least.

    Parameters
    ----------
    description
        The family of kernels.
    features
        Columns of the measured configurations, shape ``(n,)`` each.
    times
        Measured times, shape ``(n,)``, positive, in any one unit.

    Raises
    ------
    CalibrationError
        A time is not positive and finite, there is none, or the model is not finite at its priors.

    Notes
    -----
    Levenberg-Marquardt in the logarithms, from several starts drawn about the priors, with the symbolic Jacobian.
    """
    times = np.asarray(times, dtype=np.float64)
    if not len(times) or not (np.isfinite(times) & (times > 0)).all():
        msg = (
            "the measured times must be positive and finite, and there must be at least one; "
            "leave out failed configurations"
        )
        raise CalibrationError(msg, description=description.name)
    problem = _Problem(description, features, np.log(times))
    cost, best = min((problem.solve(start) for start in problem.starts()), key=lambda pair: pair[0])
    fitted = problem.log_times(best)
    deviation = float(np.sqrt(np.mean((problem.target - fitted) ** 2)))
    return AnalyticFit(
        description, dict(zip(description.parameters, np.exp(best).tolist(), strict=True)), deviation, cost
    )


class _Problem:
    """Residuals of the times and of the priors as functions of the parameters' logarithms."""

    def __init__(
        self, description: Description, features: Mapping[str, NDArray[np.float64]], target: NDArray[np.float64]
    ) -> None:
        self.names = tuple(description.parameters)
        self.compiled = _compiled(description.model, self.names)
        self.features = {name: features[name] for name in self.compiled.features}
        self.target = target
        self.error = _SPREAD * (1 + _LENIENCE * (target - target.min()))
        # In logarithms parameters stay positive without bounds, which Levenberg-Marquardt does not have.
        self.prior = np.log([parameter.prior for parameter in description.parameters.values()])
        self.spread = np.array([parameter.spread for parameter in description.parameters.values()])
        # The median: configurations that the model misses by far must not set the unit of time.
        offset = float(np.median(target - self.log_times(self.prior)))
        if not np.isfinite(offset):
            msg = f"the model of description {description.name!r} is not finite at its priors; correct the description"
            raise CalibrationError(msg, description=description.name)
        # The first parameter scales the time, whose unit its prior cannot know.
        self.prior[0] += offset

    # Clipped, so that exponentials stay finite wherever the solver tries.
    def _values(self, point: NDArray[np.float64]) -> dict[str, NDArray[np.float64] | float]:
        return {**self.features, **dict(zip(self.names, np.exp(np.clip(point, -300, 300)).tolist(), strict=True))}

    def log_times(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        value = np.asarray(self.compiled.value(self._values(point)), dtype=np.float64)
        with np.errstate(all="ignore"):
            return np.broadcast_to(np.log(value), self.target.shape)

    def starts(self) -> list[NDArray[np.float64]]:
        # A fixed seed: equal measurements give equal fits.
        random = np.random.default_rng(0)
        about = [self.prior + 0.7 * self.spread * random.standard_normal(len(self.prior)) for _ in range(_STARTS - 1)]
        # The offset of the time is known already.
        for start in about:
            start[0] = self.prior[0]
        return [self.prior, *about]

    def residual(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        # Finite and large where the model gives no positive time: least_squares refuses a start with nan.
        error = np.nan_to_num((self.log_times(point) - self.target) / self.error, nan=1e3, posinf=1e3, neginf=-1e3)
        # Soft L1 loss: a configuration that the model misses by far must not decide the fit.
        soft = np.sign(error) * np.sqrt(2 * (np.sqrt(1 + error**2) - 1))
        return np.concatenate([soft, (point - self.prior) / self.spread])

    def jacobian(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        values = self._values(point)
        rows = len(self.target)
        value = np.broadcast_to(np.asarray(self.compiled.value(values)), rows)
        # Chain rule: d log(time) / d log(p) = p / time * d time / dp.
        slopes = self.compiled.derivatives(values, rows) * np.exp(point) / (value * self.error)[:, None]
        error = (self.log_times(point) - self.target) / self.error
        root = np.sqrt(1 + error**2)
        soft = np.sqrt(2 * (root - 1))
        # Derivative of the soft loss's root; where the error vanishes it is 0/0, and its limit 1.
        factor = np.where(np.abs(error) < 1e-4, 1.0, np.abs(error) / (root * np.maximum(soft, 1e-300)))
        return np.vstack([np.nan_to_num(slopes * factor[:, None]), np.diag(1 / self.spread)])

    def solve(self, start: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        from scipy.optimize import least_squares

        # "lm" needs as many residuals as parameters: the rows of the priors make up for few measurements.
        found = least_squares(self.residual, start, jac=self.jacobian, method="lm", xtol=1e-6, ftol=1e-6, max_nfev=200)
        return float(found.cost), np.asarray(found.x, dtype=np.float64)
