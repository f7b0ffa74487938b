"""A space of described configurations on one device, with the columns that predictions are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError
from perflex.expression.parser import parse_expression
from perflex.expression.tree import as_column, derivatives, evaluate, names
from perflex.search.described.description import facts_taken, platform_of
from perflex.search.settings_table import even
from perflex.search.variants import settings_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from perflex.machines.machine import Machine
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

    `residual` is the standard deviation of the logarithm of measured over predicted time; a smaller `cost`, half the
    sum of squares that was minimised, is more probable.
    """

    description: Description
    parameters: Mapping[str, float]
    residual: float
    cost: float

    def predict(self, features: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the predicted time of each configuration, in the unit that the fit was given."""
        rows = len(next(iter(features.values())))
        return as_column(evaluate(parse_expression(self.description.model), {**features, **self.parameters}), rows)

    def shares(self, features: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """Return the share of each cost in the time, ``d log(time) / d log(parameter)``, shape ``(n,)`` each.

        What costs leave over is the first parameter's, the time of the operation that costs are stated in.
        """
        parameters = tuple(self.description.parameters)
        tree = parse_expression(self.description.model)
        values = {**features, **self.parameters}
        rows = len(next(iter(features.values())))
        slopes = derivatives(tree, parameters, values, rows) / self.predict(features)[:, None]
        found = {
            name: slopes[:, number] * self.parameters[name]
            for number, name in enumerate(parameters)
            if number and self.description.parameters[name].unit != "1"
        }
        return {parameters[0]: 1 - np.sum(list(found.values()), axis=0), **found}


def fit_analytic(
    description: Description, features: Mapping[str, NDArray[np.float64]], times: NDArray[np.float64]
) -> AnalyticFit:
    """Fit a description's model to measured configurations, shape ``(n,)``, times in any one unit.

    The parameters that are most probable given the times: the logarithm of each parameter is normal around its prior,
    the logarithm of each time is about the model's with heavy tails (soft absolute errors), so that compilers' freaks
    do not bend the rest, and slow configurations may be farther off than fast ones. The parameter of time (the first)
    is set from the times first, since it is known least. Levenberg-Marquardt in the logarithms, from several starts.
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
        self.tree = parse_expression(description.model)
        self.features = {name: features[name] for name in names(self.tree) if name not in self.names}
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
        value = np.asarray(evaluate(self.tree, self._values(point)), dtype=np.float64)
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
        value = np.broadcast_to(np.asarray(evaluate(self.tree, values)), rows)
        # Chain rule: d log(time) / d log(p) = p / time * d time / dp.
        slopes = derivatives(self.tree, self.names, values, rows) * np.exp(point) / (value * self.error)[:, None]
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


class _OnDemand(Sequence[Any]):
    """What a function gives for each number: spaces have 100,000 configurations, of which few are looked at."""

    def __init__(self, item: Callable[[int], Any], length: int) -> None:
        self._item = item
        self._numbers = range(length)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: Any) -> Any:
        return self._item(self._numbers[place])


@dataclass(frozen=True)
class ReadingFit:
    """The analytic model under the reading of the description that the measurements favour.

    The reading is 0 for the description as it stands, else the alternative, counted from 1. Times of all configurations
    are predicted in the unit of the measured ones; `table` has what is learned from beside them.
    """

    fit: AnalyticFit
    reading: int
    predicted: NDArray[np.float64]
    table: NDArray[np.float64] = field(repr=False)

    @property
    def logs(self) -> NDArray[np.float64]:
        """Logarithms of the predicted times."""
        return np.log(self.predicted)


@dataclass(frozen=True, eq=False)
class DescribedSpace:
    """Configurations of a described kernel for one device, with the times that are known of them.

    Attributes
    ----------
    description
        The family of kernels.
    settings
        Columns of the tunables (and of constants that the space states), shape ``(n,)`` each.
    device
        Name of the device; one that no machine file knows is taken for a usual GPU of its maker.
    machine
        Facts of the device, if it is to be another machine than the name finds.
    times
        Measured times in seconds, shape ``(n,)``; nan where a configuration was not measured or failed. None
        where nothing was measured.
    excluded
        How many rows of a file were left out or joined with others, by cause.
    """

    description: Description
    settings: Mapping[str, NDArray[np.float64]]
    device: str = ""
    machine: Machine | None = None
    times: NDArray[np.float64] | None = None
    excluded: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of configurations."""
        return len(next(iter(self.settings.values())))

    @property
    def told_apart_by(self) -> tuple[str, ...]:
        """Names of the tunables, and of constants that differ between configurations."""
        tunables = self.description.tunables
        differing = [name for name, column in self.settings.items() if name not in tunables and np.ptp(column) > 0]
        return (*tunables, *differing)

    @property
    def names(self) -> Sequence[str]:
        """The configurations' names, such as ``block_size_x=32, tile_size_x=2``."""
        return _OnDemand(lambda number: settings_text(self.configuration(number)), len(self))

    def configuration(self, number: int) -> dict[str, float]:
        """Return the settings of one configuration; whole numbers as such."""
        values = {name: float(column[number]) for name, column in self.settings.items()}
        return {name: int(value) if value.is_integer() else value for name, value in values.items()}

    @property
    def configurations(self) -> Sequence[dict[str, float]]:
        """Settings of each configuration."""
        return _OnDemand(self.configuration, len(self))

    @cached_property
    def known(self) -> NDArray[np.float64]:
        """Times in seconds, shape ``(n,)``; nan where none is known."""
        known = np.full(len(self), np.nan) if self.times is None else np.asarray(self.times, dtype=np.float64)
        if known.shape != (len(self),):
            msg = f"{known.size} times are given for {len(self)} configurations; give one for each, or nan"
            raise CalibrationError(msg, description=self.description.name)
        return known

    def kernel(self, number: int) -> Any:
        """Refuse to build a kernel, which other spaces do: it is described by formulas."""
        msg = f"{self.description.name} is described by formulas; build it yourself from the settings"
        raise CalibrationError(msg, variant=self.names[number])

    def sample(self, count: int, seed: int = 0) -> NDArray[np.intp]:
        """Return so many of the measured configurations, drawn by chance, in their order: a batch to predict from.

        Raises
        ------
        CalibrationError
            The number is no whole one, or so many were not measured.
        """
        there = np.flatnonzero(np.isfinite(self.known))
        given: object = count
        whole = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
        if not whole or not 1 <= count <= len(there):
            msg = (
                f"{count!r} samples cannot be drawn from {len(there)} measured configurations; "
                f"ask for 1 to {len(there)}"
            )
            raise CalibrationError(msg, samples=count)
        return np.sort(np.random.default_rng(seed).choice(there, count, replace=False))

    def complete(self) -> DescribedSpace:
        """Return all configurations that the description allows, one per kernel, with the times that are known here.

        Where this space has values that the description does not list, or several problem sizes, it is returned as it
        is: its own configurations are all that is known of it.

        Raises
        ------
        FileFormatError
            As `Description.space`.
        """
        family, every = self.description, self.description.space()
        stated = {name: column for name, column in self.settings.items() if name in family.constants}
        if any(np.ptp(column) > 0 for column in stated.values()):
            return self
        every |= {name: np.full(len(next(iter(every.values()))), column[0]) for name, column in stated.items()}
        seen = np.column_stack(list(family.kernels(self.settings).values()))
        rows, first = np.unique(np.column_stack(list(family.kernels(every).values())), axis=0, return_index=True)
        times = dict(zip(map(tuple, seen.tolist()), self.known.tolist(), strict=True))
        # Taken out as they are found: what is left was measured, but the description does not allow it.
        known = np.array([times.pop(tuple(row), np.nan) for row in rows.tolist()])
        if times:
            return self
        return replace(self, settings={name: column[first] for name, column in every.items()}, times=known)

    @cached_property
    def platform(self) -> dict[str, float]:
        """Facts of the device that formulas use."""
        return platform_of(self.device, self.machine)

    @property
    def facts(self) -> str:
        """Whose facts are taken, in words: the named machine's, one found by the device's name, or usual ones."""
        return facts_taken(self.device, self.machine)

    @cached_property
    def readings(self) -> tuple[dict[str, NDArray[np.float64]], ...]:
        """Features of every configuration, under the description as it stands and under each alternative."""
        whole = range(len(self.description.alternatives))
        return tuple(
            self.description.compute(self.settings, self.platform, alternative) for alternative in (None, *whole)
        )

    @cached_property
    def places(self) -> NDArray[np.float64]:
        """Settings and switches, shape ``(n, d)``: what configurations differ in."""
        known = {**self.settings, **self.readings[0]}
        return np.column_stack([known[name] for name in (*self.description.tunables, *self.description.switches)])

    def inputs(self, reading: int) -> NDArray[np.float64]:
        """Return features and tunables as a learned correction sees them, shape ``(n, d)``; scales are even."""
        features = list(self.readings[reading].values())
        tunables = [np.asarray(self.settings[name], dtype=np.float64) for name in self.description.tunables]
        columns = [even(column) for column in (*features, *tunables)]
        # Where all are alike, one column stands for them.
        return np.column_stack([column for column in columns if np.ptp(column) > 0] or columns[:1])

    def expected(self) -> NDArray[np.float64]:
        """Return the time of every configuration by the analytic model before any measurement, shape ``(n,)``."""
        priors = {name: parameter.prior for name, parameter in self.description.parameters.items()}
        return AnalyticFit(self.description, priors, np.nan, np.nan).predict(self.readings[0])

    def fit_analytic(self, index: NDArray[np.intp], times: NDArray[np.float64]) -> ReadingFit:
        """Fit the analytic model to measured configurations, under whichever reading makes them most probable.

        Numbers and times have shape ``(m,)``. A CalibrationError if a time is not positive, measured or predicted.
        """
        fits = [
            fit_analytic(self.description, {name: column[index] for name, column in features.items()}, times)
            for features in self.readings
        ]
        # All readings have the same parameters and priors, so their costs compare as log posteriors do.
        reading = min(range(len(fits)), key=lambda number: fits[number].cost)
        predicted = fits[reading].predict(self.readings[reading])
        wrong = np.flatnonzero(~(np.isfinite(predicted) & (predicted > 0)))
        if wrong.size:
            where = ", ".join(f"{name}={self.settings[name][wrong[0]]:g}" for name in self.description.tunables)
            msg = (
                f"the model of description {self.description.name!r} gives the time {predicted[wrong[0]]:g} for "
                f"{where}; correct it so that every time is positive"
            )
            raise CalibrationError(msg, description=self.description.name)
        return ReadingFit(fits[reading], reading, predicted, self.inputs(reading))
