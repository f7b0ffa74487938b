"""The coordinates that a fit moves in, the bounds it keeps to, and where it starts.

Costs are their own coordinates. A rate moves as its reciprocal, a cost, in which models are linear or nearly so. A
sharpness s moves as 1/(1 + s), and an edge as its logarithm: a model changes by about as much per step at either end of
their ranges. Bounds follow from a parameter's role (`perflex.expression.roles`).

Costs start from the additive model, in which overlapping costs stand side by side: it is linear in them, so least
squares (non-negative and plain) gives values, and so does the bound that no kernel can spend more on one cost than its
whole time. The other parameters start from a few magnitudes that the data suggest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np

from perflex.expression.tree import Call, Name, Node, Product, Sum, as_column, evaluate, names, walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.expression.roles import Roles
    from perflex.fit.problem import Problem

    Array = NDArray[np.float64]
    Mask = NDArray[np.bool_]

# Every combination is evaluated before any fit, so that only few fits are needed.
_MAX_COMBINATIONS = 64
_LEAST_SHARE = 1e-3


def start_points(problem: Problem, count: int) -> list[Array]:
    """Return at most `count` starts, each of shape ``(n,)``, best residual first."""
    roles = problem.roles
    ranked: list[tuple[float, int, Array]] = []
    fixed: dict[str, float] = {}
    others = [name for name in problem.parameters if name not in roles.costs]
    grid = _grid(problem, others)
    columns, constant, costs = np.empty((0, 0)), np.empty(0), []
    depends = any(name in names(roles.additive) for name in others)
    for number, combination in enumerate(grid):
        fixed = dict(zip(others, combination, strict=True))
        # Most additive models are sums in which only costs are left: then one solution serves all combinations.
        if number == 0 or depends:
            columns, constant = cost_columns(problem, fixed)
            costs = _cost_starts(columns, problem.weight * (problem.output - constant))
        for start in costs:
            values = {**fixed, **dict(zip(roles.costs, start, strict=True))}
            with np.errstate(divide="ignore"):
                x = np.array([_as_in_model(roles, name, values[name]) for name in problem.parameters])
            norm = float(np.linalg.norm(problem.residual(x)))
            if np.isfinite(norm) and np.isfinite(problem.jacobian(x)).all():
                ranked.append((norm, number, x))
    ranked.sort(key=lambda entry: entry[0])
    # The best of each combination first: starts that differ only in their costs tend to end together.
    first: list[Array] = []
    rest: list[Array] = []
    seen: set[int] = set()
    for _, number, x in ranked:
        (rest if number in seen else first).append(x)
        seen.add(number)
    # Two places go to other costs at combinations that are there already.
    return [*first[: max(1, count - 2)], *rest][:count]


def _as_in_model(roles: Roles, name: str, value: float) -> float:
    return float(np.divide(1.0, value)) if roles.of[name].kind == "rate" else value


def cost_columns(problem: Problem, fixed: dict[str, float]) -> tuple[Array, Array]:
    """Return the weighted columns of the costs (of rates: their reciprocals) in the additive model, and its other part.

    Shapes ``(m, len(roles.costs))`` and ``(m,)``; the latter is not weighted.
    """
    roles, rows = problem.roles, len(problem.kernels)
    values: dict[str, Array | float] = {**problem.inputs, **fixed, **dict.fromkeys(roles.costs, 0.0)}
    constant = as_column(evaluate(roles.additive, values), rows)
    columns = np.empty((rows, len(roles.costs)))
    for index, name in enumerate(roles.costs):
        with np.errstate(all="ignore"):
            # The additive model is affine in the costs: its value at cost one, less that at zero, is the column.
            columns[:, index] = as_column(evaluate(roles.additive, {**values, name: 1.0}), rows) - constant
    return columns * problem.weight[:, None], constant


def _cost_starts(columns: Array, target: Array) -> list[Array]:
    """Return starts for the costs: non-negative and plain least squares, and each cost's upper bound."""
    from scipy.optimize import nnls

    if not columns.shape[1]:
        return [np.empty(0)]
    if not (np.isfinite(columns).all() and np.isfinite(target).all()):
        return [np.ones(columns.shape[1])]
    length = np.linalg.norm(columns, axis=0)
    length[length == 0] = 1.0
    scaled = columns / length
    plain = np.linalg.lstsq(scaled, target, rcond=1e-12)[0]
    try:
        positive = nnls(scaled, target)[0]
    except RuntimeError:  # scipy's way to say that it did not converge
        positive = np.abs(plain)
    # A cost that starts at zero may have no slope to leave it by.
    positive = np.maximum(positive, _LEAST_SHARE * np.linalg.norm(target))
    with np.errstate(over="ignore"):
        share = np.divide(target[:, None], scaled, out=np.full_like(scaled, np.inf), where=scaled > 0)
    # No kernel can spend more on one cost than its whole time.
    bound = np.min(np.where(share > 0, share, np.inf), axis=0)
    bound = np.where(np.isfinite(bound), bound, positive)
    # All costs at their bounds together overestimate a sum of several; a share of the bounds comes nearer.
    return [positive / length, plain / length, bound / length, 0.3 * bound / length]


def _grid(problem: Problem, others: list[str]) -> list[tuple[float, ...]]:
    """Return combinations of values for the parameters that are no costs."""
    roles, fixed = problem.roles, dict.fromkeys(others, 1.0)
    columns, constant = cost_columns(problem, fixed)
    costs = _cost_starts(columns, problem.weight * (problem.output - constant))[0]
    values = {**problem.inputs, **fixed, **dict(zip(roles.costs, costs, strict=True))}
    choices = []
    for name in others:
        role = roles.of[name]
        edges = _edges(problem, values) if role.kind == "edge" else ()
        choices.append(role.starts or edges or _magnitudes(roles.tree, name, values))
    total = 1
    for choice in choices:
        total *= len(choice)
    if total <= _MAX_COMBINATIONS:
        return list(product(*choices))
    # Too many combinations: all at their first value, then one changed at a time, then all alike.
    middle = [choice[0] for choice in choices]
    grid = [tuple(middle)]
    for index, choice in enumerate(choices):
        grid += [(*middle[:index], value, *middle[index + 1 :]) for value in choice[1:]]
    grid += [tuple(choice[min(level, len(choice) - 1)] for choice in choices) for level in range(1, 4)]
    return list(dict.fromkeys(grid))


def _edges(problem: Problem, values: dict[str, Array | float]) -> tuple[float, ...]:
    """Return edges, in 1/[output], from gentle to abrupt for the differences of the overlapping costs."""
    typical = [_typical(problem.output)]
    for node in walk(problem.roles.tree):
        if isinstance(node, Call) and node.function == "overlap":
            first, second, _ = node.arguments
            typical.append(_typical(np.asarray(evaluate(first, values)) - np.asarray(evaluate(second, values))))
    scales = [1.0 / t for t in typical if t > 0] or [1.0]
    # tanh(3) is 0.995: a typical difference of costs then selects the larger; 0.5 is gentle, 20 and 200 abrupt.
    return (3.0 * scales[-1], 0.5 * scales[0], 20.0 * scales[-1], 200.0 * scales[0])


def _magnitudes(tree: Node, name: str, values: dict[str, Array | float]) -> tuple[float, ...]:
    """Return magnitudes for a parameter of unknown meaning, from what it multiplies or is added to."""
    scales: list[float] = []
    for node in walk(tree):
        if isinstance(node, Product):
            rest = tuple((e, factor) for e, factor in node.factors if not _is(factor, name))
            exponents = [e for e, factor in node.factors if _is(factor, name)]
            if rest and exponents:
                size = _typical(evaluate(Product(node.start, node.end, rest), values))
                # Makes the product of order one, where functions such as tanh and exp change.
                scales.append(size if exponents[0] < 0 else _inverse(size))
        elif isinstance(node, Sum):
            others = tuple((sign, term) for sign, term in node.terms if not _is(term, name))
            if others and len(others) < len(node.terms):
                scales.append(_typical(evaluate(Sum(node.start, node.end, others), values)))
    scale = next((s for s in scales if s > 0 and np.isfinite(s)), 1.0)
    return tuple(dict.fromkeys((scale, 0.1 * scale, 10.0 * scale, 1.0)))


def _is(node: Node, name: str) -> bool:
    return isinstance(node, Name) and node.identifier == name


def _inverse(size: float) -> float:
    return 1.0 / size if size > 0 else 0.0


def _typical(values: object) -> float:
    sizes = np.abs(np.asarray(values, dtype=np.float64)).ravel()
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    return float(np.median(sizes)) if sizes.size else 0.0


Kind = Literal["cost", "rate", "sharpness", "edge"]

# An edge below this over the longest output decides no kernel's step, above that over the shortest it decides all.
_GENTLEST, _MOST_ABRUPT = 0.5, 1e3
# Share of any kernel's time below which a rate's cost is none: what is above that rate predicts the same.
_NO_SHARE = 1e-6


@dataclass(frozen=True, eq=False)
class Coordinates:
    """From parameters, as the model has them, to what a fit moves, and back."""

    # What each parameter moves as; ``"cost"`` for as it is.
    kinds: tuple[Kind, ...]
    # Bounds of the parameters, shape ``(n,)``.
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    # Values of parameters that do not move, shape ``(n,)``; nan for those that do.
    fixed: NDArray[np.float64]

    @property
    def moving(self) -> Mask:
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


def coordinates_of(problem: Problem, *, nonnegative: bool) -> Coordinates:
    """Return the coordinates of a model's parameters; `nonnegative` keeps costs at or above zero in any model."""
    names, roles = problem.parameters, problem.roles
    lower, upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
    own: dict[str, Kind] = {"rate": "rate", "edge": "edge", "sharpness": "sharpness"}
    kinds = []
    for index, name in enumerate(names):
        role = roles.of[name]
        lower[index], upper[index] = role.lower, role.upper
        if role.kind == "edge":
            lower[index], upper[index] = _edge_bounds(problem)
        elif name in roles.costs and (nonnegative or role.lower == 0):
            lower[index], upper[index] = 0.0, _fastest(problem, name) if role.kind == "rate" else np.inf
        kinds.append(own.get(role.kind, "cost"))
    return Coordinates(tuple(kinds), lower, upper, np.full(len(names), np.nan))


def _edge_bounds(problem: Problem) -> tuple[float, float]:
    sizes = np.abs(problem.output[problem.output != 0])
    if not sizes.size:
        return 0.0, np.inf
    return _GENTLEST / float(sizes.max()), _MOST_ABRUPT / float(sizes.min())


def _fastest(problem: Problem, name: str) -> float:
    """Return the rate above which its cost is a negligible share of every kernel's time; inf if no kernel has it."""
    roles = problem.roles
    columns, _ = cost_columns(problem, {other: 1.0 for other in problem.parameters if other not in roles.costs})
    column = np.abs(columns[:, roles.costs.index(name)])
    with np.errstate(all="ignore"):
        rates = column / np.abs(problem.weight * problem.output)
    rates = rates[np.isfinite(rates) & (rates > 0)]
    return float(rates.max()) / _NO_SHARE if rates.size else np.inf
