"""From a problem to the best of its minima: several starts, of which the best end is refined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.fit.minimise import minimise_in
from perflex.fit.robust import solve_robustly
from perflex.fit.starts import start_points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.expression.roles import Roles
    from perflex.fit.coordinates import Coordinates
    from perflex.fit.problem import Problem
    from perflex.fit.scaled import Solution

    Array = NDArray[np.float64]

# Residual norms that differ by less than this share are of the same minimum.
_SAME_OPTIMUM = 1e-6
# Below this size of residual relative to the output, fits differ by rounding only.
_EXACT = 1e-10


def all_starts(problem: Problem, roles: Roles, given: Sequence[Mapping[str, float]], count: int) -> list[Array]:
    """Return at most `count` automatic starts, best residual first, and the given ones.

    Raises
    ------
    CalibrationError
        A given start names what is no parameter.
    """
    # A linear least-squares problem has one minimum, which every start leads to.
    linear = len(roles.costs) == len(problem.parameters) and roles.relaxed == roles.tree
    points = start_points(problem, roles, 1 if linear else count)
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
    """Return where rough minimisations from each point ended.

    Raises
    ------
    CalibrationError
        The model is not finite at any of them.
    """
    solutions, causes = [], []
    # Roughly first: of all these ends only the best is refined to the last digits.
    for point in points:
        try:
            solutions.append(minimise_in(problem, coordinates, point, precise=False))
        except ArithmeticError as error:
            causes.append(str(error))
    if not solutions:
        raise _no_beginning(problem, causes[0] if causes else "the model is not finite at any automatic start")
    return solutions


def solve_under_loss(
    problem: Problem, coordinates: Coordinates, ends: Sequence[Solution], points: Sequence[Array]
) -> tuple[Problem, list[Solution]]:
    """Return the problem under the robust loss, and its rough solutions; see `solve_robustly`."""
    try:
        return solve_robustly(problem, ends, points, coordinates)
    except ArithmeticError as error:
        raise _no_beginning(problem, str(error)) from error


def refined(problem: Problem, coordinates: Coordinates, rough: Solution) -> Solution:
    """Return the minimum near the best start's end, to the last digits."""
    try:
        precise = minimise_in(problem, coordinates, rough.x)
    except ArithmeticError:
        return rough
    # With bounds, the search may settle on another set of held parameters and end higher; the rough end then stays.
    return precise if precise.norm <= rough.norm * (1 + _EXACT) + _EXACT * problem.size else rough


def as_good(problem: Problem, best: Solution) -> float:
    """Return the largest residual norm that counts as the same optimum."""
    return best.norm * (1 + _SAME_OPTIMUM) + _EXACT * problem.size


def _no_beginning(problem: Problem, cause: str) -> CalibrationError:
    msg = f"the fit of {problem.model.expression!r} cannot begin: {cause}; give starts=[{{parameter: value}}]"
    return CalibrationError(msg, model=problem.model)
