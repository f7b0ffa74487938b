"""Minimising a robust loss, whose scale comes from the residuals themselves.

The sum of squares is minimised first, from all starts. From its best end the loss is minimised and its scale renewed
in turns, until the scale stays. Other ends of the sum of squares and other starts follow under that scale, since a
loss of this kind may have several minima even where the model is linear.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.fit.loss import SoftL1, robust_loss
from perflex.fit.minimise import minimise_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.fit.coordinates import Coordinates
    from perflex.fit.problem import Problem
    from perflex.fit.scaled import Solution

    Array = NDArray[np.float64]

# Renewals of the scale, and the relative change below which it stays. With all but a few rows exact it shrinks to the
# least scale by a factor each time.
_RENEWALS = 25
_SETTLED = 1e-3
# Standard deviation relative to the outputs that a scale is made of at least: rows known better than that are few.
_LEAST_DEVIATION = 1e-4
# Solutions whose parameters differ by less than this share are one.
_SAME_POINT = 1e-5
# Automatic starts that are tried beside the ends of the sum of squares.
_FURTHER_STARTS = 2


def solve_robustly(
    problem: Problem, ends: Sequence[Solution], points: Sequence[Array], coordinates: Coordinates
) -> tuple[Problem, list[Solution]]:
    """Minimise the robust loss of a problem.

    Parameters
    ----------
    problem
        The problem, under the sum of squares.
    ends
        Where its minimisation ended, at least one.
    points
        Where it started.
    coordinates
        What moves, and its bounds.

    Returns
    -------
    tuple
        The problem under the loss with its final scale, and a rough solution of it from each start that led to one.

    Raises
    ------
    ArithmeticError
        The residuals have no finite derivatives at the best end.
    """
    first = min(ends, key=lambda end: end.norm)
    posed, best = _settled(problem, first.x, coordinates)
    # What the sum of squares took belongs to the fit.
    found = [replace(best, evaluations=best.evaluations + sum(end.evaluations for end in ends))]
    ranked = sorted(points, key=lambda point: _norm(posed, point))[:_FURTHER_STARTS]
    for start in _distinct([first.x, *(end.x for end in sorted(ends, key=lambda end: end.norm)), *ranked])[1:]:
        try:
            found.append(minimise_in(posed, coordinates, start, precise=False))
        except ArithmeticError:
            continue
    return posed, found


def _freedom(solution: Solution) -> int:
    """Return how many rows are to spare at a solution, at least one."""
    return max(len(solution.residual) - int(np.sum(~solution.at_bound)), 1)


def _settled(problem: Problem, x: Array, coordinates: Coordinates) -> tuple[Problem, Solution]:
    """Return the problem under the loss with a settled scale, and its solution near `x`."""
    least = _LEAST_DEVIATION * problem.size / np.sqrt(len(problem.kernels))
    # What the loss is taken of does not depend on its scale.
    residual = problem.under(SoftL1(1.0)).plain_residual(x)
    loss, _ = robust_loss(residual, len(residual) - len(x), least)
    evaluations = 0
    for _ in range(_RENEWALS):
        posed = problem.under(loss)
        solution = minimise_in(posed, coordinates, x, precise=False)
        x, evaluations = solution.x, evaluations + solution.evaluations
        renewed, _ = robust_loss(posed.plain_residual(x), _freedom(solution), least)
        if abs(renewed.scale - loss.scale) <= _SETTLED * loss.scale:
            break
        loss = renewed
    return posed, replace(solution, evaluations=evaluations)


def _norm(problem: Problem, point: Array) -> float:
    norm = float(np.linalg.norm(problem.residual(point)))
    return norm if np.isfinite(norm) else np.inf


def _distinct(points: Sequence[Array]) -> list[Array]:
    kept: list[Array] = []
    for point in points:
        if not any(np.allclose(point, other, rtol=_SAME_POINT, atol=0.0) for other in kept):
            kept.append(point)
    return kept
