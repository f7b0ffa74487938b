"""The minimum near a known one: cheap steps for many refits to almost the same rows.

Steps of Levenberg and Marquardt from normal equations, which lose half of the digits that `perflex.fit.bounded` keeps:
enough to predict with, not for parameters that are handed out.

For `general_cpu`, predictions of left-out generators were compared with those of full refits on two runtimes: of 448
kernels of 37 generators none and 0.9 % differ by more than 5 %, by 12 % at most, in a tenth to a thirtieth of the time
(``tests/bench/general_coverage.py refits``). Two generators have no full refit, because the others leave a parameter
undetermined; here it stays where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.fit.coordinates import Coordinates
    from perflex.fit.problem import Problem

    Array = NDArray[np.float64]

_STEPS = 12
_TRIALS = 12
_SMALL_REDUCTION = 1e-4
_DAMPING = 1e-3


def minimum_near(problem: Problem, coordinates: Coordinates, x: Array, rows: NDArray[np.bool_]) -> Array:
    """Return parameters near `x` that minimise the residuals of some rows, within the bounds.

    Parameters
    ----------
    problem
        What was fitted, with its loss.
    coordinates
        What moves, and its bounds.
    x
        Parameters of the fit to all rows, shape ``(n,)``.
    rows
        Which rows count, shape ``(m,)``. Parameters that they do not determine stay near `x`.

    Raises
    ------
    ArithmeticError
        The residuals or their derivatives are not finite.
    """
    lower, upper = coordinates.bounds()
    u = coordinates.inner(x)
    residual, jacobian = _linearised(problem, coordinates, u, rows)
    # Lengths never shrink: a parameter whose effect vanishes must not run away.
    length, damping = np.zeros(len(u)), _DAMPING
    for _ in range(_STEPS):
        gradient = jacobian.T @ residual
        length = np.maximum(length, np.linalg.norm(jacobian, axis=0))
        free = (length > 0) & ~(((u <= lower) & (gradient > 0)) | ((u >= upper) & (gradient < 0)))
        if not free.any():
            break
        columns = jacobian[:, free] / length[free]
        gram, right = columns.T @ columns, -gradient[free] / length[free]
        norm, trial = float(residual @ residual), u
        for _ in range(_TRIALS):
            trial = u.copy()
            trial[free] += np.linalg.solve(gram + damping * np.eye(len(gram)), right) / length[free]
            trial = np.clip(trial, lower, upper)
            found = problem.residual(coordinates.outer(trial))[rows]
            if float(found @ found) < norm:
                break
            damping *= 4.0
        else:
            break
        u, damping = trial, damping * 0.2
        residual, jacobian = _linearised(problem, coordinates, u, rows)
        if norm - float(residual @ residual) <= _SMALL_REDUCTION * norm:
            break
    return coordinates.outer(u)


def _linearised(problem: Problem, coordinates: Coordinates, u: Array, rows: NDArray[np.bool_]) -> tuple[Array, Array]:
    x = coordinates.outer(u)
    residual = problem.residual(x)[rows]
    jacobian = problem.jacobian(x)[np.ix_(rows, coordinates.moving)] * coordinates.slopes(u)
    if not (np.isfinite(residual).all() and np.isfinite(jacobian).all()):
        msg = "residuals or their derivatives are not finite"
        raise ArithmeticError(msg)
    return residual, jacobian
