"""Which predictions a calibration has no measurement kernels like: extrapolation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.prediction_variance import flattened
from perflex.expression.roles import find_roles
from perflex.expression.tree import as_column, evaluate
from perflex.fit.identify import scaled_slopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.fit.result import FitResult

    Array = NDArray[np.float64]

# A feature beyond the range matters if more than this share of all costs, side by side, is due to it.
_MATTERS = 0.01
_ROUNDING = 1e-9
# Leverages that differ by less are of the same mixture of costs at another size.
_SAME_MIXTURE = 0.1
# Undetermined costs in proportions that differ by less are like those that were measured.
_PROPORTION = 1e-3
_LISTED = 3


@dataclass(frozen=True, eq=False)
class Extrapolation:
    """Where predictions lie, seen from the measurement kernels."""

    # Which predictions are extrapolated, and the logarithm of all costs side by side over those with no feature beyond
    # the range (zero inside); shape ``(r,)``.
    outside: NDArray[np.bool_]
    extrapolated_log: NDArray[np.float64]
    doubts: tuple[str, ...]
    # What the measurement kernels do not determine: edges where they decide more than of any of these kernels, and
    # costs that no combination of the kernels has as these predictions have them.
    depends_on: tuple[str, ...] = ()


class CalibratedRange:
    """What the measurement kernels of a calibration span.

    A kernel lies outside if a feature that matters is larger than that of any measurement kernel, or if its costs are
    mixed unlike theirs: the leverage of its row in the Jacobian without bounds is larger than that of any of their rows
    (Montgomery, Peck and Vining, Introduction to Linear Regression Analysis, section 3.8, "hidden extrapolation"). In
    relative fits rows are divided by their times, so that the leverage tells of mixtures and the range of sizes.
    """

    def __init__(self, fit: FitResult) -> None:
        problem = fit.problem
        self._model = problem.model
        self._fit = fit
        roles = find_roles(self._model.tree)
        self._side_by_side = roles.additive
        self._largest = {name: float(column.max()) for name, column in problem.inputs.items()}
        self._columns = [i for i, parameter in enumerate(fit.parameters) if parameter.determined]
        with np.errstate(all="ignore"):
            rows = self._rows(problem.derivatives(fit.vector), problem.predict(fit.vector))
        unit, self._length = scaled_slopes(rows)
        _, singular, directions = np.linalg.svd(unit, full_matrices=False)
        kept = singular > _ROUNDING * singular.max(initial=0.0)
        self._inverse = directions[kept].T / singular[kept]
        self._leverage = float(self._leverages(rows).max(initial=0.0))
        edges = [name for name in fit.undetermined if roles.of[name].kind == "edge"]
        self._decided = {name: float(self._decided_by(name, problem.inputs).max()) for name in edges}
        # Of costs that rows do not tell apart, the fit may have put some at their bound.
        held = {*fit.undetermined, *fit.at_bound} if fit.undetermined else ()
        self._unknown = [name for name in roles.costs if name in held]
        amounts = self._amounts(problem.inputs, len(problem.kernels))
        self._unit = np.linalg.norm(amounts, axis=0)
        self._unit[self._unit == 0] = 1.0
        self._seen = amounts / self._unit

    def _decided_by(self, edge: str, values: Mapping[str, Any]) -> Array:
        """Return the share of predictions by which those without an overlap differ, shape ``(r,)``."""
        found, added = (
            np.atleast_1d(np.asarray(self._model.evaluate(parameters, values), dtype=np.float64))
            for parameters in (self._fit, {**self._fit, edge: 0.0})
        )
        share: Array = np.divide(np.abs(added - found), np.abs(found), out=np.zeros_like(found), where=found != 0)
        return share

    def _amounts(self, values: Mapping[str, Any], count: int) -> Array:
        """Return what each cost in `_unknown` multiplies where costs are side by side, shape ``(r, k)``."""
        once, twice = (
            [self._additive({**values, name: value}, count) for name in self._unknown] for value in (1.0, 2.0)
        )
        return np.array(twice).reshape(-1, count).T - np.array(once).reshape(-1, count).T

    def _unlike_seen(self, values: Mapping[str, Any], count: int) -> NDArray[np.bool_]:
        """Return which costs in `_unknown` predictions have in proportions that no kernels have, shape ``(r, k)``."""
        if not self._unknown:
            return np.zeros((count, 0), dtype=bool)
        amounts = self._amounts(values, count) / self._unit
        rest = amounts - amounts @ np.linalg.pinv(self._seen, rcond=_ROUNDING) @ self._seen
        unlike: NDArray[np.bool_] = np.abs(rest) > _PROPORTION * np.abs(amounts).max(axis=1, keepdims=True)
        return unlike

    def _rows(self, gradient: Array, predicted: Array) -> Array:
        rows = gradient[:, self._columns]
        if not self._fit.problem.relative:
            return rows
        return np.divide(rows, predicted[:, None], out=np.zeros_like(rows), where=predicted[:, None] != 0)

    def _leverages(self, rows: Array) -> Array:
        leverages: Array = (((rows / self._length) @ self._inverse) ** 2).sum(axis=1)
        return leverages

    def of(self, values: Mapping[str, Any]) -> Extrapolation:
        """Return where predictions lie."""
        model = self._model
        values, shape = flattened(model, values)
        count = math.prod(shape)
        predicted = np.broadcast_to(np.asarray(model.evaluate(self._fit, values), dtype=np.float64), (count,))
        gradient = model.derivatives({**values, **self._fit}, count)
        doubts: list[str] = []
        outside, extrapolated_log = np.zeros(len(predicted), dtype=bool), np.zeros(len(predicted))
        clipped: dict[str, Any] = dict(values)
        beyond: list[tuple[float, str]] = []
        for name, largest in self._largest.items():
            value = values[name]
            if not largest > 0 or not (value > largest * (1 + _ROUNDING)).any():
                continue
            clipped[name] = np.minimum(value, largest)
            # What an overlap hides may come to light where it is larger than ever seen: all costs side by side count.
            costs, without = (self._additive(v, count) for v in (values, {**values, name: 0.0 * value}))
            matters = (np.abs(costs - without) > _MATTERS * np.abs(costs)) & (value > largest * (1 + _ROUNDING))
            if matters.any():
                outside |= matters
                times = float(value[matters].max()) / largest
                beyond.append((times, f"{name} is {times:.3g} times the largest"))
        if clipped and beyond:
            side_by_side = _log_ratio(self._additive(values, count), self._additive(clipped, count))
            extrapolated_log = np.maximum(side_by_side, 0.0)
            listed = [text for _, text in sorted(beyond, reverse=True)]
            more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
            doubts.append(f"larger than all measurement kernels: {', '.join(listed[:_LISTED])}{more}")
        leverage = self._leverages(self._rows(gradient, predicted))
        unlike = leverage > self._leverage * (1 + _SAME_MIXTURE)
        if unlike.any():
            outside |= unlike
            text = f"leverage {float(leverage.max()):.3g}, theirs at most {self._leverage:.2g}"
            doubts.append(f"a combination of costs that no measurement kernel has: {text}")
        depends_on = []
        for name, seen in self._decided.items():
            decided = np.broadcast_to(self._decided_by(name, values), (count,))
            unlike = decided > max(seen * (1 + _SAME_MIXTURE), _MATTERS)
            if unlike.any():
                outside |= unlike
                depends_on.append(name)
                text = f"up to {100 * float(decided.max()):.3g} %, of measurement kernels {100 * seen:.2g} %"
                doubts.append(
                    f"{name} is not determined, and its share is larger than in any measurement kernel: {text}"
                )
        unseen = self._unlike_seen(values, count)
        if unseen.any():
            outside |= unseen.any(axis=1)
            missing = [name for place, name in enumerate(self._unknown) if unseen[:, place].any()]
            depends_on += missing
            doubts.append(f"it depends on {', '.join(missing)}, which the measurement kernels do not determine")
        return Extrapolation(outside, extrapolated_log, tuple(doubts), tuple(depends_on))

    def _additive(self, values: Mapping[str, Any], count: int) -> Array:
        """Return the predictions of the model with overlaps replaced by sums, shape ``(r,)``."""
        return as_column(evaluate(self._side_by_side, {**self._fit, **values}), count)


def _log_ratio(predicted: Array, other: Array) -> Array:
    """Return the logarithm of predictions over others; zero where either is not positive."""
    known = (other > 0) & (predicted > 0)
    ratio: Array = np.log(np.divide(predicted, other, out=np.ones_like(predicted), where=known))
    return ratio
