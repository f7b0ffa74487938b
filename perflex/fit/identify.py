"""Which parameters the data determine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from perflex.fit.coordinates import Coordinates
    from perflex.fit.minimise import Solution

    Array = NDArray[np.float64]

# Of singular values of columns of length one, relative to the largest.
_RANK_TOLERANCE = 1e-10
# Of a column, relative to its reference.
_NEGLIGIBLE = 1e-9
# Relative change of a parameter that counts as another value.
_AMBIGUOUS = 1e-3
# Belsley, Kuh and Welsch's limits.
STRONG_DEPENDENCE = 30.0
_HALF = 0.5


@dataclass(frozen=True)
class Identification:
    """What a Jacobian determines."""

    without_effect: tuple[int, ...]
    # Sets of columns that are linearly dependent: only combinations of these parameters are determined.
    groups: tuple[tuple[int, ...], ...]
    # Orthonormal directions that change nothing, in parameters whose columns have length one; shape ``(n, k)``.
    null_space: NDArray[np.float64]
    # Of the determined columns, each of length one.
    condition_number: float

    @property
    def undetermined(self) -> tuple[int, ...]:
        """All columns concerned, ascending."""
        return tuple(sorted({*self.without_effect, *(i for group in self.groups for i in group)}))


def undecided(best: Solution, coordinates: Coordinates) -> list[int]:
    """Return the parameters that no bound clearly decides.

    Where the residual presses a parameter against its bound, its value is known, whatever its column looks like.
    """
    # The pull is the gradient of |r|**2 / 2: above zero where the fit would rather have a value beyond the bound.
    pull = best.jacobian.T @ best.residual * coordinates.sides(best.x)
    pressed = pull > 1e-9 * np.linalg.norm(best.jacobian, axis=0) * np.linalg.norm(best.residual)
    return np.flatnonzero(~(best.at_bound & pressed) & coordinates.moving).tolist()


def scaled_slopes(jacobian: Array) -> tuple[Array, Array]:
    """Return columns of length one, and their lengths; a `CalibrationError` where slopes are no numbers."""
    with np.errstate(all="ignore"):
        length = np.linalg.norm(jacobian, axis=0)
        length = np.where(length > 0, length, 1.0)
        columns = jacobian / length
    # A length may be infinite although all numbers are finite: squares have half the range of doubles.
    if not (np.isfinite(length).all() and np.isfinite(columns).all()):
        msg = "the model has no finite slopes at the calibration's kernels: values are out of range; calibrate again"
        raise CalibrationError(msg)
    return columns, length


def independent_slopes(jacobian: Array) -> tuple[Array, Array, Array]:
    """Return the QR factors of a Jacobian's columns of length one, and the lengths; its columns are independent."""
    columns, length = scaled_slopes(jacobian)
    q, r = np.linalg.qr(columns)
    # No diagonal is shorter than the least singular value, and fits refuse those below `_RANK_TOLERANCE`.
    if len(r) < len(length) or not (np.abs(np.diag(r)) > _RANK_TOLERANCE / 2).all():
        msg = "the calibration's kernels do not determine its parameters; calibrate again"
        raise CalibrationError(msg)
    return q, r, length


def identify(jacobian: Array, reference: Array, considered: Sequence[int]) -> Identification:
    """Find which considered columns a Jacobian leaves undetermined; shorter than 1e-9 of its reference, one is zero."""
    length = np.linalg.norm(jacobian, axis=0)
    without_effect = tuple(i for i in considered if length[i] <= _NEGLIGIBLE * reference[i])
    effective = [i for i in considered if i not in without_effect]
    null_space = np.zeros((jacobian.shape[1], 0))
    if not effective:
        return Identification(without_effect, (), null_space, float("nan"))
    # Columns of length one: otherwise the units of the parameters would decide what counts as dependent.
    # The thin SVD holds all directions only with at least as many rows as columns, which `pose` makes sure of.
    _, singular, directions = np.linalg.svd(jacobian[:, effective] / length[effective], full_matrices=False)
    rank = int(np.sum(singular > _RANK_TOLERANCE * singular[0]))
    null_space = np.zeros((jacobian.shape[1], len(effective) - rank))
    null_space[effective] = directions[rank:].T
    # The projector, unlike the basis of the null space, does not depend on which directions the SVD picks.
    groups = _groups(null_space @ null_space.T)
    return Identification(without_effect, groups, null_space, float(singular[0] / singular[rank - 1]))


def condition_without_bounds(jacobian: Array, determined: Sequence[int]) -> tuple[float, tuple[int, ...]]:
    """Return the condition number of columns of a Jacobian, of length one each, and those that make it large.

    Belsley, Kuh and Welsch, Regression Diagnostics (1980), section 3.2: above 30 columns are strongly dependent, and
    those are concerned half of whose variance, or more, comes from the weakest direction.
    """
    columns = jacobian[:, list(determined)]
    length = np.linalg.norm(columns, axis=0)
    if not len(length) or not (length > 0).all():
        return float("nan"), ()
    _, singular, directions = np.linalg.svd(columns / length, full_matrices=False)
    if not singular[-1] > 0:
        return float("inf"), ()
    number = float(singular[0] / singular[-1])
    parts = (directions / singular[:, None]) ** 2
    weak = parts[-1] / parts.sum(axis=0)
    concerned = tuple(i for i, share in zip(determined, weak, strict=True) if share >= _HALF)
    return number, concerned if number > STRONG_DEPENDENCE else ()


def _groups(projector: Array) -> tuple[tuple[int, ...], ...]:
    """Return the columns that take part in the null space, split into sets that do not mix."""
    from scipy.sparse.csgraph import connected_components

    # The diagonal holds squares: 1e-8 is a part of 1e-4 in a null direction.
    members = np.flatnonzero(np.diag(projector) > 1e-8)
    count, number = connected_components(np.abs(projector[np.ix_(members, members)]) > 1e-6, directed=False)
    return tuple(sorted((tuple(members[number == group].tolist()) for group in range(count)), key=max))


def ambiguous(
    best: Array, others: Sequence[Array], deviation: Array, norm_at: Callable[[Array], float], allowed: float
) -> tuple[int, ...]:
    """Return the parameters that may be changed a good deal without the fit getting worse.

    Where another start ended at other values, just as good, and the way between the two is just as good, the parameters
    that differ are not determined. Solutions that merely exchange equal terms have worse ones between them.
    """
    found: set[int] = set()
    for other in others:
        change = np.abs(other - best)
        # What lies within the standard error is no other value, only the same one less well known.
        # Negated rather than ``change > deviation``, which would be false for a deviation of nan.
        large = (change > _AMBIGUOUS * np.maximum(np.abs(other), np.abs(best))) & ~(change <= deviation)
        if large.any() and all(norm_at(best + part * (other - best)) <= allowed for part in (0.3, 0.5, 0.8)):
            found.update(map(int, np.flatnonzero(large)))
    return tuple(sorted(found))


def covariance(jacobian: Array, residual: Array, determined: Sequence[int]) -> Array:
    """Return the covariance of the parameters, shape ``(n, n)``; nan where there is none.

    ``s**2 * inv(J.T @ J)`` with ``s**2 = |r|**2 / (m - n)``, over the determined parameters.
    """
    rows, count = jacobian.shape
    result = np.full((count, count), np.nan)
    freedom = rows - len(determined)
    # A fit with as many parameters as rows can pass through every row: its residuals tell nothing of the noise.
    if freedom <= 0 or not determined:
        return result
    columns = jacobian[:, list(determined)]
    length = np.linalg.norm(columns, axis=0)
    # By singular values of scaled columns: J.T @ J would square the condition number.
    _, singular, directions = np.linalg.svd(columns / length, full_matrices=False)
    # For J = U S V' L, with the columns' lengths L: inv(J'J) = root root', root = inv(L) V inv(S).
    root = directions.T / singular / length[:, None]
    result[np.ix_(determined, determined)] = root @ root.T * (float(residual @ residual) / freedom)
    return result
