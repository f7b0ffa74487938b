"""Which parameters the data determine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

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
    """What a Jacobian determines.

    Attributes
    ----------
    without_effect
        Parameters on which the output does not depend.
    groups
        Sets of columns that are linearly dependent: only combinations of these parameters are determined.
    null_space
        Orthonormal directions that change nothing, in parameters whose columns have length one; shape
        ``(n, k)``.
    condition_number
        Of the determined columns, each of length one.
    """

    without_effect: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    null_space: NDArray[np.float64]
    condition_number: float

    @property
    def undetermined(self) -> tuple[int, ...]:
        """All columns concerned, ascending."""
        return tuple(sorted({*self.without_effect, *(i for group in self.groups for i in group)}))


def identify(jacobian: Array, reference: Array, considered: Sequence[int]) -> Identification:
    """Find the parameters that a Jacobian leaves undetermined.

    Parameters
    ----------
    jacobian
        Shape ``(m, n)``.
    reference
        Column lengths to compare with, shape ``(n,)``: a column shorter than 1e-9 of it counts as zero.
    considered
        Columns to look at; the others are held fixed.
    """
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
    """Return the condition number of a Jacobian with columns of length one, and the columns that make it large.

    Belsley, Kuh and Welsch, Regression Diagnostics (1980), section 3.2: above 30 columns are strongly dependent, and
    those are concerned half of whose variance, or more, comes from the weakest direction.

    Parameters
    ----------
    jacobian
        Shape ``(m, n)``.
    determined
        Columns to look at, whether bounds hold their parameters or not.
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
    # The diagonal holds squares: 1e-8 is a part of 1e-4 in a null direction.
    members = [i for i in range(len(projector)) if projector[i, i] > 1e-8]
    groups: list[set[int]] = []
    for i in members:
        linked = {i, *(j for j in members if abs(projector[i, j]) > 1e-6)}
        for group in [g for g in groups if g & linked]:
            groups.remove(group)
            linked |= group
        groups.append(linked)
    return tuple(tuple(sorted(group)) for group in groups)


def ambiguous(
    best: Array, others: Sequence[Array], deviation: Array, norm_at: Callable[[Array], float], allowed: float
) -> tuple[int, ...]:
    """Return the parameters that may be changed a good deal without the fit getting worse.

    A derivative sees only the neighbourhood. Where another start ended at other values, just as good, and the
    way between the two is just as good, the parameters that differ are not determined. Solutions that merely
    exchange equal terms have worse ones between them.

    Parameters
    ----------
    best, others
        Solutions with the same residual norm, shape ``(n,)`` each.
    deviation
        Standard errors at the best one, shape ``(n,)``; nan counts as zero.
    norm_at
        Residual norm at given parameter values.
    allowed
        Largest norm that counts as just as good.
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
