"""D-optimal choice of rows within a budget: greedy by gain per cost, then exchange.

The determinant of the information matrix (of the scaled Jacobian's chosen rows) is the inverse square of the volume
of the parameters' confidence ellipsoid. Its logarithm grows ever less as rows are added (it is submodular), so a
greedy choice is near the optimum, and exchanging rows one for one (Fedorov 1972) comes nearer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.budget.basis import NEW, cheapest_basis, require_affordable, undetermined
from perflex.calibration.budget.search import Search, always

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Where the exchanges to consider are so few, there is time to start again from changed choices.
_THOROUGH = 4000
_ROUNDS = 40


@dataclass(frozen=True)
class ChosenRows:
    """The rows chosen.

    Attributes
    ----------
    rows
        Their numbers, ascending.
    cost
        What they cost together.
    gain
        By how much they raise the logarithm of the information matrix's determinant; where the known rows alone
        determine nothing, against an information of 1e-8 of the strongest row in every direction.
    """

    rows: tuple[int, ...]
    cost: float
    gain: float


def choose(
    rows: Array,
    cost: Array,
    budget: float,
    *,
    known: Array | None = None,
    parameters: Sequence[str] = (),
    in_time: Callable[[], bool] = always,
) -> ChosenRows:
    """Choose rows that determine the parameters best within a budget.

    Parameters
    ----------
    rows
        The scaled Jacobian of all candidates, each row times the square root of its weight; shape ``(m, n)``.
    cost
        Of each row, above zero; shape ``(m,)``.
    budget
        What the chosen rows may cost together, in the unit of `cost`.
    known
        Rows that are there already and cost nothing, shape ``(k, n)``.
    parameters
        Names of the columns, for messages.
    in_time
        Whether there is time to improve the first choice, by gain per cost; is asked before each exchange.

    Returns
    -------
    ChosenRows
        Rows that, with the known ones, determine every parameter.

    Raises
    ------
    CalibrationError
        The rows do not determine every parameter, or none do within the budget; the parameters are named.
    """
    names = list(parameters) or [f"column {index}" for index in range(rows.shape[1])]
    fixed = np.zeros((0, rows.shape[1])) if known is None else known
    # The clearest basis that can be paid for: rows that are only just independent determine parameters badly.
    bases = (cheapest_basis(rows, cost, fixed, clear) for clear in NEW)
    basis = next((basis for basis in bases if cost[basis].sum() <= budget), cheapest_basis(rows, cost, fixed))
    require_affordable(rows, cost, budget, fixed, basis, names)
    search = Search(rows, cost, budget, fixed, in_time)
    # A further row never lowers the determinant.
    if float(cost.sum()) <= budget:
        everything = list(range(len(rows)))
        return _choice(search, everything)
    found = [search.greedy(basis, per_cost=True)]
    starts: list[list[int]] = [basis, []]
    if len(rows) ** 2 <= _THOROUGH:
        # A few expensive rows may be better than the many cheap ones that a gain per cost begins with.
        starts += [[row] for row in range(len(rows)) if cost[row] <= budget]
    for start, per_cost in product(starts, (True, False)):
        if not search.in_time():
            break
        found.append(search.exchange(search.greedy(list(start), per_cost=per_cost)))
    best = max(found, key=search.log_det)
    if len(best) * len(rows) <= _THOROUGH:
        found.append(search.perturb(best, _ROUNDS))
    # A choice may spend its budget elsewhere when a parameter is only just determined; the first one cannot.
    complete = [chosen for chosen in found if not undetermined(rows, fixed, chosen, names)]
    return _choice(search, max(complete or found[:1], key=search.log_det))


def _choice(search: Search, chosen: list[int]) -> ChosenRows:
    gain = search.log_det(chosen) - search.log_det([])
    return ChosenRows(tuple(sorted(chosen)), float(search.cost[chosen].sum()), gain)
