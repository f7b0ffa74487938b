"""How far kernels of generators that were left out lie from their predictions: intervals of calibrations with many.

A model for any kernel leaves much out, and is off by more than its residuals say, by amounts that follow no known
distribution. With twenty generators or more of two kernels each on average nothing is assumed of it: each is
predicted by a fit to the others, and the quantiles of the errors are those of intervals (as in the jackknife: Barber
et al., Ann. Stat. 49, 486, 2021).
Every generator counts alike, however many kernels it has. Errors grow with how unlike a kernel's costs are to those
that were fitted, so that quantiles are of errors over what is usual there (Lei et al., J. Am. Stat. Assoc. 113, 1094,
2018, section 5.2).

Kernels that rest on a cost which no other generator has are no such test, and are left out of it: a new kernel's
costs are all in the calibration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.held_out import HeldOut, generators_of
from perflex.calibration.uncertainty import posed_as_fitted, student_quantile, vector
from perflex.expression.roles import roles_with_costs_for_rates
from perflex.fit.coordinates import coordinates_of
from perflex.fit.nearby import minimum_near

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

# A 95 % quantile of fewer lies beyond the largest.
FEWEST_GENERATORS = 20
# Kernels of a generator on average: where each has one, a left-out kernel tells its noise and nothing of generators.
_LEAST_KERNELS = 2
# Shares of errors below each quantile that is kept. Beyond the last Student's distribution goes on.
LEVELS = (0.0, *(round(0.05 * i, 2) for i in range(1, 20)))
# Of a cost's share in each kernel's time, the sum of squares: below it, the kernels hardly know the cost.
_LEAST_MASS = 0.25
# Share of a kernel's time that may be of such costs.
_MOST_UNKNOWN = 0.25
# The usual error where costs are just alike is at least this share of the mean one.
_LEAST_NEAR = 0.1
# Slopes need a range of times: its standard deviation in log output.
_LEAST_RANGE = 0.2
_FEWEST_FOR_SLOPE = 3


@dataclass(frozen=True)
class LeftOutErrors:
    """Sizes of ln(measured / predicted) of kernels whose generator was left out.

    Attributes
    ----------
    generators
        How many were left out and could be predicted.
    kernels, excluded
        How many kernels that were, and how many more rest on costs that no other generator has.
    near, growth
        The usual error is ``near + growth * distance`` for kernels at this distance (`TermShares.distances`).
    farthest
        The largest distance among them: beyond it is not extrapolated.
    quantiles
        Of errors over the usual ones, at `LEVELS`; each generator counts alike.
    trend
        Root mean square of the slopes of ln(measured / predicted) by ln(measured) within generators: what errors grow
        by beyond the largest measurement kernels.
    """

    generators: int
    kernels: int
    excluded: int
    near: float
    growth: float
    farthest: float
    quantiles: tuple[float, ...]
    trend: float

    def reach(self, confidence: float, distances: Array, beyond: Array) -> Array:
        """Return the logarithm of the factor by which limits lie off, shape ``(r,)``.

        Parameters
        ----------
        confidence
            Share of measurements inside.
        distances
            How unlike the costs are to those of the measurement kernels, shape ``(r,)``.
        beyond
            Logarithm of all costs over those within the range of the measurement kernels, shape ``(r,)``.
        """
        usual = self.near + self.growth * np.minimum(distances, self.farthest)
        quantile = float(np.interp(confidence, LEVELS, self.quantiles))
        deviations = student_quantile((1 + confidence) / 2, float(self.generators))
        if confidence > LEVELS[-1]:
            quantile *= deviations / student_quantile((1 + LEVELS[-1]) / 2, float(self.generators))
        reach: Array = np.hypot(usual * quantile, deviations * self.trend * beyond)
        return reach


class TermShares:
    """The shares of predicted times that each cost has, and how unlike they are to those of measurement kernels.

    Parameters
    ----------
    model, fit
        The model and its fit.
    values
        Feature values of the measurement kernels.
    count
        How many they are.
    """

    def __init__(self, model: Model, fit: FitResult, values: Mapping[str, Any], count: int) -> None:
        self._model = model
        self._costs = np.array([parameter.kind != "shape" for parameter in fit.parameters])
        self._x = vector(fit)
        self.shares = self.at(values, count)

    def at(self, values: Mapping[str, Any], count: int, x: Array | None = None) -> Array:
        """Return the shares at feature values, and at parameters other than those fitted, shape ``(r, n)``."""
        x = self._x if x is None else x
        parameters = dict(zip(self._model.params(), map(float, x), strict=True))
        return self.of_gradient(self._model.compiled.derivatives({**values, **parameters}, count), x)

    def of_gradient(self, gradient: Array, x: Array | None = None) -> Array:
        """Return the shares where derivatives by the parameters are known, shape ``(r, n)``."""
        # A cost times the derivative by it is what it adds to the time, hidden parts left out.
        parts = np.abs(gradient * np.where(self._costs, self._x if x is None else x, 0.0))
        total = parts.sum(axis=1, keepdims=True)
        shares: Array = np.divide(parts, total, out=np.zeros_like(parts), where=total > 0)
        return shares

    def distances(self, shares: Array) -> Array:
        """Return the Hellinger distance of shares from the nearest measurement kernel's, in [0, 1], shape ``(r,)``."""
        return _distances(shares, self.shares)


def _distances(shares: Array, others: Array) -> Array:
    alike = (np.sqrt(shares) @ np.sqrt(others).T).max(axis=1)
    found: Array = np.sqrt(np.clip(1.0 - alike, 0.0, 1.0))
    return found


class Refits:
    """Fits to parts of the rows, begun where the fit to all ended; arguments as `left_out_rows`, all known.

    Attributes
    ----------
    logs
        Logarithms of measured times, shape ``(m,)``.
    mixtures
        The shares of costs by the fit to all rows.
    """

    def __init__(self, model: Model, fit: FitResult, table: FeatureTable) -> None:
        self._problem = posed_as_fitted(model, table, fit)
        roles = roles_with_costs_for_rates(model.tree)
        self._coordinates = coordinates_of(self._problem, roles, nonnegative=bool(fit.nonnegative), given=fit.bounds)
        self._x = vector(fit)
        self.logs: Array = np.log(self._problem.output)
        self.mixtures = TermShares(model, fit, self._problem.inputs, len(table))

    def undetermined(self, rows: NDArray[np.bool_]) -> tuple[str, ...]:
        """Return the parameters on which some rows depend, and no others."""
        effect = np.abs(self._problem.jacobian(self._x))
        alone = (effect[rows].max(axis=0) > 0) & ~(effect[~rows] > 0).any(axis=0)
        return tuple(name for name, only in zip(self._problem.parameters, alone, strict=True) if only)

    def without(self, rows: NDArray[np.bool_]) -> tuple[Array, Array] | None:
        """Return ln(measured / predicted) and the shares of all rows by the fit without some; None where it fails."""
        try:
            x = minimum_near(self._problem, self._coordinates, self._x, ~rows)
        except (ArithmeticError, np.linalg.LinAlgError):  # such a generator is not predicted
            return None
        with np.errstate(all="ignore"):
            residuals: Array = np.log(self._problem.output / self._problem.predict(x))
        return residuals, self.mixtures.at(self._problem.inputs, len(self.logs), x)


@dataclass(frozen=True, eq=False)
class LeftOutKernels:
    """Each measurement kernel as predicted without its generator; arrays of shape ``(m,)``.

    Attributes
    ----------
    owners
        Its generator.
    logs
        Logarithm of its measured time.
    errors
        ln(measured / predicted); nan where it could not be predicted.
    distances
        Of its costs from the nearest kernel's of another generator (`TermShares.distances`); nan likewise.
    rests
        Whether a quarter of its time or more is of costs that no other generator has.
    refits
        What fits without some kernels say of all of them.
    """

    owners: NDArray[np.str_]
    logs: Array
    errors: Array
    distances: Array
    rests: NDArray[np.bool_]
    refits: Refits

    @property
    def predicted(self) -> Array:
        """What was predicted, in the output's unit; nan where nothing was."""
        return np.exp(self.logs - self.errors)

    @property
    def predictable(self) -> NDArray[np.bool_]:
        """Which could be predicted."""
        return np.isfinite(self.errors) & np.isfinite(self.distances)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which could be predicted, and rest on costs that others have, too: those that tell of new kernels."""
        return self.predictable & ~self.rests

    def summary(self, errors: Array | None = None) -> LeftOutErrors:
        """Return how far the kernels lie off, or what is given as their errors."""
        errors = self.errors if errors is None else errors
        used, owners = self.known, self.owners[self.known]
        trend = _trend(errors[used], self.logs[used], owners)
        excluded = int((self.predictable & self.rests).sum())
        return _summary(np.abs(errors[used]), self.distances[used], owners, excluded, trend)


def left_out_kernels(model: Model, fit: FitResult, table: FeatureTable) -> LeftOutKernels:
    """Return all kernels as predicted by fits to those of all other generators.

    Parameters
    ----------
    model, fit, table
        The model, its fit, and what was fitted.
    """
    owners = np.array(generators_of(table.kernels, table))
    refits = Refits(model, fit, table)
    shares_in_all = refits.mixtures.shares
    errors, distances, unknown = (np.full(len(table), np.nan) for _ in range(3))
    for name in dict.fromkeys(owners.tolist()):
        own = owners == name
        found = None if own.all() else refits.without(own)
        if found is None:
            continue
        residuals, shares = found
        errors[own] = residuals[own]
        distances[own] = _distances(shares[own], shares[~own])
        mass = (shares_in_all[~own] ** 2).sum(axis=0)
        unknown[own] = shares_in_all[own][:, mass < _LEAST_MASS].sum(axis=1)
    return LeftOutKernels(owners, refits.logs, errors, distances, unknown > _MOST_UNKNOWN, refits)


def held_out_nearby(
    model: Model, fit: FitResult, table: FeatureTable, progress: Callable[[int, int, str], None] | None = None
) -> tuple[HeldOut, ...]:
    """Hold out one generator after another, as `held_out_by_generator`, by cheap refits (`perflex.fit.nearby`).

    Parameters that others leave undetermined only together with one another are not told; they stay where they were.

    Parameters
    ----------
    model, fit, table
        The model, its fit, and what was fitted.
    progress
        Called with (done, total, generator) as work proceeds.
    """
    owners = np.array(generators_of(table.kernels, table))
    refits = Refits(model, fit, table)
    names, found = list(dict.fromkeys(owners.tolist())), []
    for done, name in enumerate(names):
        if progress is not None:
            progress(done, len(names), name)
        own = owners == name
        alone = refits.undetermined(own)
        if own.all():
            found.append(HeldOut(name, (), reason="there is no other generator"))
        elif alone:
            found.append(HeldOut(name, (), alone, "the others do not determine them"))
        elif (predicted := refits.without(own)) is None:
            found.append(HeldOut(name, (), reason="the model without them is not finite"))
        else:
            found.append(HeldOut(name, tuple(map(float, np.expm1(-predicted[0][own])))))
    return tuple(found)


def left_out_errors(model: Model, fit: FitResult, table: FeatureTable | None) -> LeftOutErrors | None:
    """Return how far generators lie off that are left out one by one; arguments, and when None, as `left_out_rows`."""
    found = left_out_rows(model, fit, table)
    return None if found is None else found.summary()


def left_out_rows(model: Model, fit: FitResult, table: FeatureTable | None) -> LeftOutKernels | None:
    """Predict each generator by a fit to the others, where errors of generators say something of new kernels.

    Parameters
    ----------
    model, fit, table
        The model, its fit, and what was fitted; None where that is not known.

    Returns
    -------
    LeftOutKernels or None
        None where there are fewer than twenty generators or two kernels each, where the fit was not relative, or where
        the rows are not known.
    """
    if table is None or not fit.scaled:
        return None
    generators = len(set(generators_of(table.kernels, table)))
    if generators < FEWEST_GENERATORS or len(table) < _LEAST_KERNELS * generators:
        return None
    found = left_out_kernels(model, fit, table)
    return None if len(set(found.owners[found.known])) < FEWEST_GENERATORS else found


def _summary(sizes: Array, distances: Array, owners: NDArray[np.str_], excluded: int, trend: float) -> LeftOutErrors:
    _, place, count = np.unique(owners, return_inverse=True, return_counts=True)
    weights = 1.0 / count[place] / len(count)
    near, growth = _usual(sizes, distances, weights)
    standardised = sizes / (near + growth * distances)
    order = np.argsort(standardised, kind="stable")
    # Each error stands in the middle of its own share.
    below = np.cumsum(weights[order]) - weights[order] / 2
    quantiles = tuple(map(float, np.interp(LEVELS, below, standardised[order])))
    return LeftOutErrors(
        len(count), len(sizes), excluded, near, growth, float(distances.max()), (0.0, *quantiles[1:]), trend
    )


def _usual(sizes: Array, distances: Array, weights: Array) -> tuple[float, float]:
    """Return the line through sizes by distance, which never falls."""
    mean = float(weights @ sizes)
    away = distances - float(weights @ distances)
    spread = float(weights @ away**2)
    growth = max(float(weights @ (away * sizes)) / spread, 0.0) if spread > 0 else 0.0
    near = mean - growth * float(weights @ distances)
    # An exact fit has a reach, too, if a tiny one.
    return max(near, _LEAST_NEAR * mean, float(np.finfo(np.float64).tiny)), growth


def _trend(errors: Array, logs: Array, owners: NDArray[np.str_]) -> float:
    slopes = []
    for name in dict.fromkeys(owners.tolist()):
        x = logs[owners == name] - logs[owners == name].mean()
        if len(x) >= _FEWEST_FOR_SLOPE and float(np.sqrt(np.mean(x**2))) >= _LEAST_RANGE:
            slopes.append(float(x @ errors[owners == name] / (x @ x)))
    return float(np.sqrt(np.mean(np.square(slopes)))) if slopes else 0.0
