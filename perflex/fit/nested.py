"""Whether the measurements need an overlap, or the sum of its costs does.

Where a device does not overlap (the paper's K40c and C2070, Section 7.4), the overlap of Eqs. 5 and 6 fits the sum of
costs as well as the sum itself does: at an edge near zero it is half of the sum, with every cost at twice its value.
The sum, ``overlap`` with an edge of zero here, is a nested model with one parameter less, and is kept unless the
overlap explains the measurements better beyond chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.fit.solving import as_good, refined, solve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.expression.roles import Roles
    from perflex.fit.coordinates import Coordinates
    from perflex.fit.problem import Problem
    from perflex.fit.scaled import Solution

    Array = NDArray[np.float64]

# Risk of taking costs that are added for overlapping. Small, since overlaps that matter exceed it by far: with 50
# kernels of 3 % noise by factors of hundreds.
_RISK = 1e-3
# Difference in Akaike's criterion up to which sum and maximum, with as many parameters, are both supported (Burnham and
# Anderson, Model Selection and Multimodel Inference, 2002, section 2.6: beyond 10 there is essentially no support).
_SUPPORTED = 10.0
# Automatic starts of each fit with an edge held.
_STARTS = 4


def without_needless_overlaps(
    problem: Problem, roles: Roles, coordinates: Coordinates, points: Sequence[Array], best: Solution
) -> tuple[Solution, Coordinates, tuple[int, ...]]:
    """Return the fit with the sum of costs wherever an overlap is not needed.

    Where the measurements support sum and maximum alike, the fit has the maximum, and nothing tells the edge.

    Returns
    -------
    tuple
        The fit, coordinates with the edges concerned fixed, and the parameters that are edges which nothing tells.

    Parameters
    ----------
    problem
        The problem, under its loss.
    roles
        What each parameter is.
    coordinates
        What moves, and its bounds.
    points
        Starts of the minimisation.
    best
        The fit with all overlaps.
    """
    untold = []
    for name in roles.edges:
        index = problem.parameters.index(name)
        added = _held_at(problem, coordinates, points, best, index, 0.0)
        if added is None or explains_more(problem, best, added):
            continue
        abrupt = _held_at(problem, coordinates, points, best, index, float(coordinates.upper[index]))
        if abrupt is None or _against(problem, added, abrupt) > _SUPPORTED:
            best, coordinates = added, coordinates.with_fixed(index, 0.0)
        else:
            best, coordinates = abrupt, coordinates.with_fixed(index, float(coordinates.upper[index]))
            untold.append(index)
    return best, coordinates, tuple(untold)


def _against(problem: Problem, model: Solution, other: Solution) -> float:
    """Return by how much Akaike's criterion prefers one fit to another with as many parameters."""
    scatter = problem.scatter(model.x) + as_good(problem, model) ** 2 - model.norm**2
    return len(model.residual) * float(np.log(max(1 + (other.norm**2 - model.norm**2) / scatter, 1e-300)))


def _held_at(
    problem: Problem, coordinates: Coordinates, points: Sequence[Array], best: Solution, index: int, value: float
) -> Solution | None:
    """Return the best fit with one parameter at a value; None if there is none."""
    if not np.isfinite(value):
        return None
    held = coordinates.with_fixed(index, value)
    # Costs of half a sum are twice those of the sum.
    try:
        solutions = solve(problem, held, [*points[:_STARTS], best.x, best.x / 2])
    except CalibrationError:
        return None
    return refined(problem, held, min(solutions, key=lambda solution: solution.norm))


def explains_more(problem: Problem, model: Solution, nested: Solution) -> bool:
    """Return whether a fit is better than that of a nested model, beyond what its further parameters do by chance.

    The F test of nested models, ``(S0 - S1) / (p1 - p0) / (S1 / (m - p1))`` for sums of squares S and numbers of
    parameters p (Bates and Watts, Nonlinear Regression Analysis and Its Applications, 1988, section 3.10); under a
    robust loss the tau test, with sums of the loss and the squared influence over the mean slope in place of the
    variance (Hampel et al., Robust Statistics, 1986, chapter 7). The edge is at its limit under the nested model, where
    the risk is at most the nominal one.
    """
    from scipy.stats import f as fisher

    if nested.norm <= as_good(problem, model):
        return False
    freedom = len(model.residual) - int(np.sum(~model.at_bound))
    if freedom <= 0:
        return False
    scatter = problem.scatter(model.x) / freedom
    further = max(1, int(np.sum(~model.at_bound)) - int(np.sum(~nested.at_bound)))
    gained = (nested.norm**2 - model.norm**2) / further
    return bool(gained > float(fisher.isf(_RISK, further, freedom)) * scatter)
