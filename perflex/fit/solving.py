"""From a problem to the best of its minima: several starts, of which the best end is refined.

Where a device does not overlap (the paper's K40c and C2070, Section 7.4), the overlap of Eqs. 5 and 6 fits the sum of
costs as well as the sum itself does: at an edge near zero it is half of the sum, with every cost at twice its value.
The sum, ``overlap`` with an edge of zero here, is a nested model with one parameter less, and is kept unless the
overlap explains the measurements better beyond chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.fit.coordinates import start_points
from perflex.fit.minimise import minimise_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.fit.coordinates import Coordinates
    from perflex.fit.minimise import Solution
    from perflex.fit.problem import Problem

    Array = NDArray[np.float64]

# Residual norms that differ by less than this share are of the same minimum.
_SAME_OPTIMUM = 1e-6
# Below this size of residual relative to the output, fits differ by rounding only.
_EXACT = 1e-10
# Solutions whose parameters differ by less than this share are one.
_SAME_POINT = 1e-5


def all_starts(problem: Problem, given: Sequence[Mapping[str, float]], count: int) -> list[Array]:
    """Return at most `count` automatic starts, best residual first, and the given ones."""
    # A linear least-squares problem has one minimum, which every start leads to.
    points = start_points(problem, 1 if problem.roles.linear else count)
    fallback = points[0] if points else np.ones(len(problem.parameters))
    for start in given:
        unknown = [name for name in start if name not in problem.parameters]
        if unknown:
            msg = f"a start contains {unknown[0]}, which is not a parameter; they are {', '.join(problem.parameters)}"
            raise CalibrationError(msg, parameter=unknown[0])
        points.append(
            np.array([start.get(name, value) for name, value in zip(problem.parameters, fallback, strict=True)])
        )
    return points


def solve(problem: Problem, coordinates: Coordinates, points: Sequence[Array]) -> list[Solution]:
    """Return where rough minimisations from each point ended."""
    # Roughly first: of all these ends only the best is refined to the last digits.
    solutions, causes = _ends(problem, coordinates, points)
    if not solutions:
        raise _no_beginning(problem, causes[0] if causes else "the model is not finite at any automatic start")
    return solutions


def refined(problem: Problem, coordinates: Coordinates, solutions: Sequence[Solution]) -> Solution:
    """Return the minimum near the best of rough solutions, to the last digits."""
    rough = min(solutions, key=lambda solution: solution.norm)
    try:
        precise = minimise_in(problem, coordinates, rough.x)
    except ArithmeticError:
        return rough
    # With bounds, the search may settle on another set of held parameters and end higher; the rough end then stays.
    return precise if precise.norm <= rough.norm * (1 + _EXACT) + _EXACT * problem.size else rough


def as_good(problem: Problem, best: Solution) -> float:
    """Return the largest residual norm that counts as the same optimum."""
    return best.norm * (1 + _SAME_OPTIMUM) + _EXACT * problem.size


def _ends(problem: Problem, coordinates: Coordinates, points: Sequence[Array]) -> tuple[list[Solution], list[str]]:
    """Return where rough minimisations ended, and why others could not begin."""
    solutions, causes = [], []
    for point in points:
        try:
            solutions.append(minimise_in(problem, coordinates, point, precise=False))
        except ArithmeticError as error:
            causes.append(str(error))
    return solutions, causes


def _no_beginning(problem: Problem, cause: str) -> CalibrationError:
    msg = f"the fit of {problem.model.expression!r} cannot begin: {cause}; give starts=[{{parameter: value}}]"
    return CalibrationError(msg, model=problem.model)


# Risk of taking costs that are added for overlapping. Small, since overlaps that matter exceed it by far: with 50
# kernels of 3 % noise by factors of hundreds.
_RISK = 1e-3
# Difference in Akaike's criterion up to which sum and maximum, with as many parameters, are both supported (Burnham and
# Anderson, Model Selection and Multimodel Inference, 2002, section 2.6: beyond 10 there is essentially no support).
_SUPPORTED = 10.0
# Automatic starts of each fit with an edge held.
_STARTS = 4


def without_needless_overlaps(
    problem: Problem, coordinates: Coordinates, points: Sequence[Array], best: Solution
) -> tuple[Solution, Coordinates, tuple[int, ...]]:
    """Return the fit with the sum of costs wherever an overlap is not needed.

    Where the measurements support sum and maximum alike, the fit has the maximum, and the edge is not identified.
    """
    unidentified = []
    for name in problem.roles.kinds("edge"):
        index = problem.parameters.index(name)
        added = _held_at(problem, coordinates, points, best, index, 0.0)
        if added is None or _explains_more(problem, best, added):
            continue
        abrupt = _held_at(problem, coordinates, points, best, index, float(coordinates.upper[index]))
        if abrupt is None or _against(problem, added, abrupt) > _SUPPORTED:
            best, coordinates = added, coordinates.with_fixed(index, 0.0)
        else:
            best, coordinates = abrupt, coordinates.with_fixed(index, float(coordinates.upper[index]))
            unidentified.append(index)
    return best, coordinates, tuple(unidentified)


def _against(problem: Problem, model: Solution, other: Solution) -> float:
    """Return by how much Akaike's criterion prefers one fit to another with as many parameters."""
    scatter = max(as_good(problem, model) ** 2, np.finfo(np.float64).tiny)  # squares of times of 1e-300 are zero
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
    return refined(problem, held, solutions)


def _explains_more(problem: Problem, model: Solution, nested: Solution) -> bool:
    """Return whether a fit is better than that of a nested model, beyond what its further parameters do by chance.

    The F test of nested models (Bates and Watts, Nonlinear Regression Analysis and Its Applications, 1988, section
    3.10). The edge is at its limit under the nested model, where the risk is at most the nominal one.
    """
    from scipy.stats import f as fisher

    if nested.norm <= as_good(problem, model):
        return False
    freedom = len(model.residual) - int(np.sum(~model.at_bound))
    if freedom <= 0:
        return False
    further = max(1, int(np.sum(~model.at_bound)) - int(np.sum(~nested.at_bound)))
    gained = (nested.norm**2 - model.norm**2) / further
    return bool(gained > float(fisher.isf(_RISK, further, freedom)) * model.norm**2 / freedom)
