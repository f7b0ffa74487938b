"""Least squares within bounds: a way to the neighbourhood of the minimum, then the digits of what no bound holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.fit.scaled import ROUGH_GRADIENT_TOLERANCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.fit.scaled import ScaledProblem, Solution

    Array = NDArray[np.float64]
    Mask = NDArray[np.bool_]

# Only to come near: MINPACK gives the digits.
_STEPS = 100
_SMALL_REDUCTION = 1e-8
_LEAST_DAMPING, _MOST_DAMPING = 1e-12, 1e12
# Share of the reduction that the linear model promises above which a step is taken.
_LEAST_GAIN = 1e-4


def minimise_bounded(problem: ScaledProblem, limit: int) -> Solution:
    """Return the minimum within the problem's bounds; `limit` is that of evaluations of each run of MINPACK.

    For a rough one the end of the way to its neighbourhood does, where it is flat: with tens of parameters, many of
    them at their bounds, settling which ones takes many times as long.
    """
    z = _approach(problem, np.clip(problem.z_start, problem.lower, problem.upper))
    pull = problem.jacobian(z).T @ problem.residual(z)
    held = ((z <= problem.lower) & (pull > 0)) | ((z >= problem.upper) & (pull < 0))
    if not problem.precise and problem.slope(z)[~held].max(initial=0.0) <= ROUGH_GRADIENT_TOLERANCE:
        return problem.solution(z, held, converged=True, reason="the residual is orthogonal to the model's derivatives")
    return _settle(problem, z, held, limit)


# Steps of Levenberg and Marquardt that are cut off at the bounds: C. Kanzow, N. Yamashita, M. Fukushima,
# Levenberg-Marquardt methods with strong local convergence properties for solving nonlinear equations with convex
# constraints (2004), with the parameters that a bound holds left out of each step.
def _approach(problem: ScaledProblem, z: Array) -> Array:
    """Return a point near the minimum within the bounds."""
    damping = 1e-3
    residual, jacobian = problem.residual(z), problem.jacobian(z)
    length = np.zeros(len(z))
    for _ in range(_STEPS):
        gradient = jacobian.T @ residual
        held = ((z <= problem.lower) & (gradient > 0)) | ((z >= problem.upper) & (gradient < 0))
        # As in MINPACK lengths never shrink: a parameter whose effect vanishes must not run away.
        length = np.maximum(length, np.linalg.norm(jacobian, axis=0))
        step = _downhill(problem, z, residual, jacobian, np.where(held, 0.0, length), damping)
        if step is None:
            break
        norm = float(residual @ residual)
        z, residual, damping = step
        jacobian = problem.jacobian(z)
        if norm - float(residual @ residual) <= _SMALL_REDUCTION * norm:
            break
    return z


def _downhill(
    problem: ScaledProblem, z: Array, residual: Array, jacobian: Array, length: Array, damping: float
) -> tuple[Array, Array, float] | None:
    """Return a point with a smaller residual, that residual, and the next damping; None if there is none near.

    Parameters of length zero do not move.
    """
    free = length > 0
    count = int(free.sum())
    # With Q R = J every damping costs a small problem only.
    q, r = np.linalg.qr(jacobian[:, free] / length[free])
    right = np.concatenate([-(q.T @ residual), np.zeros(count)])
    norm = float(residual @ residual)
    while count and damping <= _MOST_DAMPING:
        step = np.zeros_like(z)
        damped = np.vstack([r, np.sqrt(damping) * np.eye(count)])
        step[free] = np.linalg.lstsq(damped, right, rcond=None)[0] / length[free]
        trial = np.clip(z + step, problem.lower, problem.upper)
        expected = norm - float(np.sum((residual + jacobian @ (trial - z)) ** 2))
        found = problem.residual(trial)
        gained = norm - float(found @ found)
        if gained > _LEAST_GAIN * expected > 0:
            return trial, found, max(damping * (0.2 if gained > 0.75 * expected else 1.0), _LEAST_DAMPING)
        if 0 <= expected <= _SMALL_REDUCTION * norm:
            break
        damping *= 4.0
    return None


# An active-set method, as NNLS (Lawson and Hanson, Solving Least Squares Problems, 1974, Chapter 23).
def _settle(problem: ScaledProblem, z: Array, held: Mask, limit: int) -> Solution:
    """Move parameters onto and off their bounds until none has a reason to move."""
    held = held.copy()
    lower, upper = problem.lower, problem.upper
    tried: set[bytes] = set()
    # 3 n rounds are the customary limit of NNLS; scipy's has it too.
    for _ in range(3 * len(z) + 10):
        end, converged, reason = problem.levenberg_marquardt(z, ~held, limit)
        bound = np.where(end < lower, lower, upper)
        leaving = ~held & ((end < lower) | (end > upper))
        if leaving.any():
            # As far as the first bound; the parameters that reach it stay there.
            reach = np.full_like(z, np.inf)
            reach[leaving] = (bound - z)[leaving] / (end - z)[leaving]
            first = leaving & (reach <= reach.min())
            z = np.where(first, bound, np.clip(z + reach.min() * (end - z), lower, upper))
            held |= first
            continue
        polished = problem.polish(end, ~held)
        # Polishing knows no bounds.
        z = end if ((polished < lower) | (polished > upper)).any() else polished
        inward = _most_inward(problem, z, held)
        if inward is None:
            return problem.solution(z, held, converged, reason)
        # The same set a second time would go on for ever.
        if held.tobytes() in tried:
            break
        tried.add(held.tobytes())
        held[inward] = False
    return problem.solution(z, held, converged=False, reason="the set of active bounds did not converge")


def _most_inward(problem: ScaledProblem, z: Array, held: Mask) -> int | None:
    """Return the parameter at a bound that would lower the residual most by leaving it, if any."""
    residual, jacobian = problem.residual(z), problem.jacobian(z)
    length = np.linalg.norm(jacobian, axis=0)
    # The second summand is rounding: at an exact fit the residual, and with it the first, is next to nothing.
    threshold = (1e-9 if problem.precise else 1e-5) * np.linalg.norm(residual) + 1e-13 * float(
        np.linalg.norm(length * z)
    )
    inward = np.where(z <= problem.lower, 1.0, -1.0)
    # Per length of column: the scale of a parameter must not decide which one leaves its bound.
    pull = np.divide(-inward * (jacobian.T @ residual), length, out=np.zeros_like(z), where=length > 0)
    pull = np.where(held, pull, -np.inf)
    index = int(np.argmax(pull))
    return index if pull[index] > threshold else None
