"""Which kernels tell most about a model's parameters for their time: a greedy D-optimal choice.

A kernel tells what its row of the scaled Jacobian says. The determinant of the information matrix (of the chosen rows)
is the inverse square of the volume of the parameters' confidence ellipsoid. Its logarithm grows ever less as rows are
added (it is submodular), so that a greedy choice by gain for cost is near the optimum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.expression.roles import find_roles
from perflex.expression.tree import as_column, evaluate
from perflex.fit.identify import identify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.expression.roles import Monomial
    from perflex.fit.table import FeatureInfo, FeatureTable

    Array = NDArray[np.float64]

# How much of a row must point in a new direction to count: clear cases first, doubtful ones only where needed.
_NEW = (1e-2, 1e-4, 1e-6, 1e-8)
# Information in every direction to begin with, in terms of the strongest row's: makes the first gains finite.
_RIDGE = 1e-8
# Below it a gain is rounding.
_LEAST_GAIN = 1e-9


def elasticities(model: Model, params: Mapping[str, float], table: FeatureTable) -> tuple[Array, Array]:
    """Return each kernel's predicted output and its relative change per relative change of each parameter.

    A fit of relative errors (paper Section 7.2) has the Jacobian ``(df_i/dp_j) / f_i``; with its columns times
    ``p_j`` the entries have no units. For a cost at zero the derivative itself is returned: a choice does not
    depend on how long columns are. Shapes ``(m,)``, in the output's unit, and ``(m, n)``.
    """
    names = model.params()
    values = table.columns(model.input_features()) | {name: float(params[name]) for name in names}
    with np.errstate(all="ignore"):
        predicted = as_column(evaluate(model.tree, values), len(table))
        derivatives = model.derivatives(values, len(table))
        scale = np.array([abs(params[name]) or 1.0 for name in names])
        rows: Array = derivatives * scale / predicted[:, None]
    bad = np.flatnonzero(~(np.isfinite(rows).all(axis=1) & np.isfinite(predicted) & (predicted > 0)))
    if len(bad):
        msg = (
            f"the model gives {table.kernels[bad[0]]} no positive time with finite derivatives at the parameters "
            "guessed so far; calibrate without a budget"
        )
        raise CalibrationError(msg, kernel=table.kernels[bad[0]], model=model)
    return predicted, rows


def undetermined(rows: Array) -> list[int]:
    """Return the columns that rows, shape ``(m, n)``, leave undetermined."""
    count = rows.shape[1]
    # With as many rows as columns at least: a fit has no fewer, and `identify` expects none.
    together = np.concatenate([_scaled(rows), np.zeros((count, count))])
    return list(identify(together, np.ones(count), range(count)).undetermined)


def choose(rows: Array, cost: Array, budget: float, known: Array) -> list[int]:
    """Return the rows that determine the parameters best within a budget, in the order of choice.

    First come the cheapest rows that, with the known ones, determine every parameter; if the budget does not suffice
    for these, as many of them as it does. Then those with the largest gain for their cost.
    """
    scaled = _scaled(np.concatenate([rows, known]))
    rows, known = scaled[: len(rows)], scaled[len(rows) :]
    # The clearest basis that can be paid for: rows that are only just independent determine parameters badly.
    bases = [cheapest_basis(rows, cost, known, clear) for clear in _NEW]
    basis = next((basis for basis in bases if cost[basis].sum() <= budget), bases[-1])
    chosen = [index for place, index in enumerate(basis) if cost[basis[: place + 1]].sum() <= budget]
    if len(chosen) < len(basis) or not len(rows):
        return chosen
    taken = np.concatenate([known, rows[chosen]])
    product = rows @ np.linalg.inv(_RIDGE * np.eye(rows.shape[1]) + taken.T @ taken)
    left = budget - float(cost[chosen].sum())
    candidates = np.ones(len(rows), dtype=bool)
    candidates[chosen] = False
    while True:
        # Matrix determinant lemma: det(M + x x') = det(M) (1 + x' inv(M) x).
        gain = np.log1p(np.maximum(np.einsum("ij,ij->i", product, rows), 0.0))
        score = np.where(candidates & (cost <= left), gain / cost, 0.0)
        best = int(np.argmax(score))
        if not (score[best] > 0 and gain[best] > _LEAST_GAIN):
            return chosen
        chosen.append(best)
        candidates[best] = False
        left -= float(cost[best])
        # Sherman and Morrison's formula for the inverse after a row was added.
        leverage = product @ rows[best]
        product = product - np.outer(leverage, product[best] / (1.0 + leverage[best]))


def _scaled(rows: Array) -> Array:
    """Return rows with each column divided by its largest entry."""
    largest = np.abs(rows).max(axis=0, initial=0.0)
    return rows / np.where(largest > 0, largest, 1.0)


def cheapest_basis(rows: Array, cost: Array, known: Array, clear: float = _NEW[-1]) -> list[int]:
    """Return the cheapest rows that, with the known ones, have the rank of all rows together.

    Independent sets of rows are a matroid, so that taking the cheapest row that is independent of those taken
    before gives the cheapest basis, not merely a cheap one. Rows of which less than the part `clear` points in a new
    direction are taken only when no others are left.
    """
    scaled = _scaled(np.concatenate([rows, known]))
    rows, known = scaled[: len(rows)], scaled[len(rows) :]
    directions = np.zeros((0, rows.shape[1]))
    # Known rows come first: what they determine need not be paid for again.
    for row in known:
        directions = _extended(directions, row, _NEW[-1])
    chosen: list[int] = []
    for threshold in _NEW[_NEW.index(clear) :]:
        # Stable, so that rows of equal cost are taken in the same order on every machine.
        for index in map(int, np.argsort(cost, kind="stable")):
            if len(directions) == rows.shape[1]:
                return chosen
            if index not in chosen:
                extended = _extended(directions, rows[index], threshold)
                if len(extended) > len(directions):
                    directions = extended
                    chosen.append(index)
    return chosen


def _extended(directions: Array, row: Array, threshold: float) -> Array:
    length = np.linalg.norm(row)
    if length == 0 or len(directions) == len(row):
        return directions
    rest = row / length
    for _ in range(2):  # once more, for rounding leaves some of the old directions in
        rest = rest - directions.T @ (directions @ rest)
    size = np.linalg.norm(rest)
    return directions if size <= threshold else np.vstack([directions, rest / size])


# Seconds; the first prefix that fits counts. Operations and bytes are those of a whole device.
_PER_UNIT = (
    ("f_sync_kernel_launch", 1e-5),
    ("f_chain", 1e-9),
    ("f_sync_barrier", 1e-8),
    ("f_thread_groups", 1e-8),
    ("f_sub_groups", 1e-9),
    ("f_thread_items", 1e-10),
)
# 100 Gop/s, 50 GB/s and 200 GB/s.
_PER_OPERATION = 1e-11
_PER_BYTE = 2e-11
_PER_LOCAL_BYTE = 5e-12
# A cost of unknown kind makes a typical kernel take this long, in seconds.
_TYPICAL = 1e-4
# tanh(3) is 0.995: a difference of costs as large as a typical time then selects the larger.
_EDGE = 3.0


def rough_parameters(model: Model, table: FeatureTable) -> dict[str, float]:
    """Return a rough value for each parameter of a model of times in seconds, from what its features count."""
    roles = find_roles(model.tree)
    values = table.columns(model.input_features())

    def additive(parameters: Mapping[str, float]) -> np.ndarray:
        """Return the magnitudes of the kernels' costs without overlap, as far as they are above zero."""
        with np.errstate(all="ignore"):
            column = np.abs(as_column(evaluate(roles.additive, {**values, **parameters}), len(table)))
        return column[np.isfinite(column) & (column > 0)]

    found = {name: role.starts[0] if role.starts else 1.0 for name, role in roles.of.items()}
    nothing = found | dict.fromkeys(roles.costs, 0.0)
    for name in roles.costs:
        monomials = roles.of[name].monomials or ()
        rates = [rate for monomial in monomials if (rate := _rate(monomial, table.info)) is not None]
        if monomials and len(rates) == len(monomials):
            found[name] = min(rates)
        else:
            column = additive({**nothing, name: 1.0})
            found[name] = _TYPICAL / float(np.median(column)) if column.size else _TYPICAL
    times = additive(found)
    return found | dict.fromkeys(roles.kinds("edge"), _EDGE / (float(np.median(times)) if times.size else _TYPICAL))


def _rate(monomial: Monomial, info: Mapping[str, FeatureInfo]) -> float | None:
    """Return what one unit of a product of features costs in seconds; None where that is not known."""
    if not monomial.powers or any(exponent != 1.0 for exponent in monomial.powers.values()):
        return None
    known = [rate for feature in monomial.powers if (rate := _unit_cost(feature, info.get(feature))) is not None]
    # Of a product, such as barriers per work-item times work-groups, the cheaper factor sets the cost.
    return min(known) / abs(monomial.coefficient) if known else None


def _unit_cost(feature: str, info: FeatureInfo | None) -> float | None:
    for prefix, seconds in _PER_UNIT:
        if feature.startswith(prefix):
            return seconds
    if info is None or not info.amount:
        return None
    if info.amount_unit == "op":
        return info.amount * _PER_OPERATION
    if info.amount_unit == "B":
        local = feature.startswith(("f_mem_access_local", "f_lmem"))
        return info.amount * (_PER_LOCAL_BYTE if local else _PER_BYTE)
    return None
