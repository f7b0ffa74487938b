"""The coordinates that a fit moves in, and the bounds it keeps to.

Costs are their own coordinates. A rate moves as its reciprocal, a cost, in which models are linear or nearly so. A
sharpness s moves as 1/(1 + s), and an edge as its logarithm: a model changes by about as much per step at either end of
their ranges, and a maximum, which they approach without end, lies at a finite place.

Bounds follow from a parameter's role (`perflex.expression.roles`), unless others are given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from perflex.errors import CalibrationError
from perflex.expression.functions import SHARPNESS
from perflex.fit.starts import cost_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.expression.roles import Roles
    from perflex.fit.problem import Problem

    Array = NDArray[np.float64]
    Mask = NDArray[np.bool_]

Kind = Literal["cost", "rate", "sharpness", "edge"]

# An edge below this over the longest output decides no kernel's step, above that over the shortest it decides all.
_GENTLEST, _MOST_ABRUPT = 0.5, 1e3
# Share of any kernel's time below which a rate's cost is not told from none: what is above that rate predicts the same.
_NO_SHARE = 1e-6


@dataclass(frozen=True)
class Coordinates:
    """From parameters, as the model has them, to what a fit moves, and back.

    Attributes
    ----------
    kinds
        What each parameter moves as; ``"cost"`` for as it is.
    lower, upper
        Bounds of the parameters, shape ``(n,)``.
    fixed
        Values of parameters that do not move, shape ``(n,)``; nan for those that do.
    """

    kinds: tuple[Kind, ...]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    fixed: NDArray[np.float64]

    @property
    def moving(self) -> NDArray[np.bool_]:
        """Which parameters have a coordinate, shape ``(n,)``."""
        return np.isnan(self.fixed)

    @cached_property
    def _places(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.moving)

    @cached_property
    def _transformed(self) -> tuple[tuple[int, int, Kind], ...]:
        # Place among the coordinates, place among the parameters, kind.
        moved = ((place, int(index), self.kinds[index]) for place, index in enumerate(self._places))
        return tuple(entry for entry in moved if entry[2] != "cost")

    def with_fixed(self, index: int, value: float) -> Coordinates:
        """Return the same with one parameter held at a value."""
        fixed = self.fixed.copy()
        fixed[index] = value
        return replace(self, fixed=fixed)

    def inner(self, x: Array) -> Array:
        """Return the coordinates of parameters, or of the nearest that keep to the bounds, shape ``(moving,)``."""
        # A rate below zero is nearest to the largest: its cost is below zero.
        rates = np.array([kind == "rate" for kind in self.kinds])
        low, high = self.bounds()
        return np.clip(self._mapped(np.where(rates, x, np.clip(x, self.lower, self.upper))), low, high)

    def outer(self, u: Array) -> Array:
        """Return the parameters at coordinates, shape ``(n,)``; nan or inf where there are none."""
        x = self.fixed.copy()
        x[self._places] = u
        with np.errstate(all="ignore"):
            for place, index, kind in self._transformed:
                value = u[place]
                if kind == "rate":
                    x[index] = 1.0 / value
                elif kind == "sharpness":
                    x[index] = 1.0 / value - 1.0 if value > 0 else np.nan
                else:
                    x[index] = np.exp(value)
        return x

    def slopes(self, u: Array) -> Array:
        """Return the derivative of each moving parameter by its coordinate, shape ``(moving,)``."""
        slopes = np.ones(len(u))
        with np.errstate(all="ignore"):
            for place, _, kind in self._transformed:
                value = u[place]
                slopes[place] = np.exp(value) if kind == "edge" else -1.0 / value**2
        return slopes

    def bounds(self) -> tuple[Array, Array]:
        """Return the coordinates' bounds, shape ``(moving,)`` each."""
        first, second = self._mapped(self.lower), self._mapped(self.upper)
        # A rate that may be of either sign is one whose cost may.
        unlimited = np.array([k == "rate" for k in self.kinds]) & (self.lower < 0)
        unlimited = unlimited[self.moving]
        low, high = np.minimum(first, second), np.maximum(first, second)
        return np.where(unlimited, -np.inf, low), np.where(unlimited, np.inf, high)

    def sides(self, x: Array) -> NDArray[np.int_]:
        """Return for each parameter 1 at its lower bound, -1 at its upper, 0 between them."""
        return np.where(x <= self.lower, 1, np.where(x >= self.upper, -1, 0))

    def _mapped(self, x: Array) -> Array:
        u = x.copy()
        with np.errstate(all="ignore"):
            for index, kind in enumerate(self.kinds):
                if kind == "rate":
                    u[index] = np.divide(1.0, x[index])
                elif kind == "sharpness":
                    u[index] = np.divide(1.0, 1.0 + x[index])
                elif kind == "edge":
                    u[index] = np.log(x[index])
        return u[self.moving]


def coordinates_of(
    problem: Problem, roles: Roles, *, nonnegative: bool, given: Mapping[str, tuple[float, float]]
) -> Coordinates:
    """Return the coordinates of a model's parameters.

    Parameters
    ----------
    problem
        The problem.
    roles
        What each parameter is, with costs for rates.
    nonnegative
        Whether costs must not be negative where the model would allow that.
    given
        Bounds by name that are to hold instead.

    Raises
    ------
    CalibrationError
        A given bound is of no parameter, not a number, or leaves no room.
    """
    names = problem.parameters
    lower, upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
    kinds: list[Kind] = []
    for index, name in enumerate(names):
        kinds.append(_kind(roles, name))
        if name in roles.costs and (nonnegative or name in roles.never_negative):
            lower[index] = 0.0
            if name in roles.rates:
                upper[index] = _fastest(problem, roles, name)
        elif name in roles.bounds:
            lower[index], upper[index] = roles.bounds[name]
        if name in roles.edges:
            lower[index], upper[index] = _edge_bounds(problem)
    for name, pair in given.items():
        index = names.index(_known(name, pair, names))
        lower[index], upper[index] = map(float, pair)
        # Neither logarithm nor reciprocal reaches values that mean nothing, but were asked for.
        if (kinds[index] == "edge" and lower[index] < 0) or (kinds[index] == "sharpness" and lower[index] <= -1):
            kinds[index] = "cost"
    return Coordinates(tuple(kinds), lower, upper, np.full(len(names), np.nan))


def _kind(roles: Roles, name: str) -> Kind:
    if name in roles.rates:
        return "rate"
    if name in roles.edges:
        return "edge"
    # By its range: other shapes have finite ones of their own.
    return "sharpness" if roles.bounds.get(name) == (SHARPNESS.lower, SHARPNESS.upper) else "cost"


def _known(name: str, pair: tuple[float, float], names: list[str]) -> str:
    if name not in names:
        msg = f"the bounds contain {name}, which is not a parameter; they are {', '.join(names)}"
        raise CalibrationError(msg, parameter=name)
    if not pair[0] < pair[1]:
        msg = f"the bounds of {name} are {pair[0]} and {pair[1]}; give a smaller and a larger number"
        raise CalibrationError(msg, parameter=name)
    return name


def _edge_bounds(problem: Problem) -> tuple[float, float]:
    sizes = np.abs(problem.output[problem.output != 0])
    if not sizes.size:
        return 0.0, np.inf
    return _GENTLEST / float(sizes.max()), _MOST_ABRUPT / float(sizes.min())


def _fastest(problem: Problem, roles: Roles, name: str) -> float:
    """Return the rate above which its cost is a negligible share of every kernel's time; inf if no kernel has it."""
    others = {other: 1.0 for other in problem.parameters if other not in roles.costs}
    columns, _ = cost_columns(problem, roles, others)
    column = np.abs(columns[:, roles.costs.index(name)])
    with np.errstate(all="ignore"):
        rates = column / np.abs(problem.weight * problem.output)
    rates = rates[np.isfinite(rates) & (rates > 0)]
    return float(rates.max()) / _NO_SHARE if rates.size else np.inf
