"""The cheapest rows that determine every parameter, and the error where a budget is too small for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.fit.identify import identify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# How much of a row must point in a new direction to count: clear cases first, doubtful ones only where needed.
NEW = (1e-2, 1e-4, 1e-6, 1e-8)


def scaled_columns(rows: Array, known: Array) -> tuple[Array, Array]:
    """Return both sets of rows with each column divided by its largest entry in either."""
    largest = np.abs(np.concatenate([rows, known])).max(axis=0, initial=0.0)
    largest = np.where(largest > 0, largest, 1.0)
    return rows / largest, known / largest


def cheapest_basis(rows: Array, cost: Array, known: Array, clear: float = NEW[-1]) -> list[int]:
    """Return the cheapest rows that, with the known ones, have the rank of all rows together.

    Independent sets of rows are a matroid, so that taking the cheapest row that is independent of those taken
    before gives the cheapest basis, not merely a cheap one.

    Parameters
    ----------
    rows, known
        Shapes ``(m, n)`` and ``(k, n)``.
    cost
        Shape ``(m,)``.
    clear
        Which part of a row must point in a new direction. Less clear rows are taken only when no others are left.
    """
    scaled, fixed = scaled_columns(rows, known)
    length = np.linalg.norm(scaled, axis=1)
    directions = np.zeros((0, rows.shape[1]))
    # Known rows come first: what they determine need not be paid for again.
    for row in fixed:
        directions = _extended(directions, row, NEW[-1])
    chosen: list[int] = []
    for threshold in (new for new in NEW if new <= clear):
        # Stable, so that rows of equal cost are taken in the same order on every machine.
        for index in map(int, np.argsort(cost, kind="stable")):
            if len(directions) == rows.shape[1]:
                return chosen
            if index not in chosen and length[index] > 0:
                extended = _extended(directions, scaled[index], threshold)
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


def require_affordable(
    rows: Array, cost: Array, budget: float, known: Array, basis: Sequence[int], names: Sequence[str]
) -> None:
    """Make sure that the basis determines every parameter and is within the budget.

    Raises
    ------
    CalibrationError
        It does not, or is not; the parameters concerned are named.
    """
    missing = undetermined(rows, known, range(len(rows)), names)
    if missing:
        msg = f"no choice of kernels determines {', '.join(missing)}; add kernels that vary them independently"
        raise CalibrationError(msg, parameters=tuple(missing))
    needed = float(cost[list(basis)].sum())
    if needed <= budget:
        return
    # Which parameters the money is short for: those that the cheapest rows within the budget leave open.
    affordable: list[int] = []
    for index in basis:
        if cost[[*affordable, index]].sum() <= budget:
            affordable.append(index)
    missing = undetermined(rows, known, affordable, names)
    msg = (
        f"{budget:.3g} s of device time do not suffice to determine {', '.join(missing)}: the cheapest kernels that do "
        f"take about {needed:.3g} s; give a larger budget, smaller kernels, or fewer trials"
    )
    raise CalibrationError(msg, parameters=tuple(missing), needed=needed)


def undetermined(rows: Array, known: Array, chosen: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return the parameters that the known and the chosen rows leave undetermined."""
    scaled, fixed = scaled_columns(rows, known)
    # With as many rows as columns at least: a fit has no fewer, and `identify` expects none.
    together = np.concatenate([scaled[list(chosen)], fixed, np.zeros((rows.shape[1], rows.shape[1]))])
    reference = np.ones(rows.shape[1])
    return [names[i] for i in identify(together, reference, range(rows.shape[1])).undetermined]
