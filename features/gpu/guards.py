"""What guards leave of each work-group of a launch: which statements run in it, and in which of its instances."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.computed_once import computed_once
from perflex.features.polynomials.connected import connected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perflex.features.gpu.forms import Form
    from perflex.features.gpu.resolved import ResolvedLaunch, ResolvedPiece

Points = dict[int, np.ndarray]
# Numbers for each work-group take up to 64 bytes at once: a gibibyte.
_MOST_GROUPS = 1 << 24
# Where a launch keeps its guards, beside what it computes once itself.
_KEPT = "guards"


@dataclass(frozen=True)
class Component:
    """Axes of the grid that guards couple, and the kinds of positions along them.

    Attributes
    ----------
    axes
        The axes, ascending.
    kinds
        Number of the kind at each position, one dimension for each axis.
    runs
        Whether guards on these axes let a piece run, shape (kinds, pieces).
    """

    axes: tuple[int, ...]
    kinds: np.ndarray
    runs: np.ndarray


def guards_of(launch: ResolvedLaunch) -> Guards:
    """Return what tells the work-groups of a launch apart; it is made once for each launch."""
    known: Guards | None = launch.__dict__.get(_KEPT)
    if known is None:
        known = launch.__dict__.setdefault(_KEPT, Guards(launch.kernel, launch.groups, launch.pieces))
    return known


class Guards:
    """Tells the work-groups of a launch apart by what guards leave of them.

    Work-groups of one kind execute the same instances of the same pieces.
    """

    def __init__(self, kernel: str, groups: Sequence[int], pieces: Sequence[ResolvedPiece]) -> None:
        self._kernel = kernel
        self.groups = tuple(groups)
        self._pieces = tuple(pieces)

    @computed_once
    def components(self) -> tuple[Component, ...]:
        """The components, which have no axis in common and each axis in one."""
        axes = range(len(self.groups))
        coupled = [self._axes_of(guard) for piece in self._pieces for guard in piece.constraints]
        parts = connected([part for part in coupled if part] + [frozenset([axis]) for axis in axes])
        return tuple(self._component(tuple(sorted(part))) for part in sorted(parts, key=min))

    @computed_once
    def even(self) -> bool:
        """Whether all pieces run in all work-groups, and the work-groups inside the grid are of one kind."""
        for component in self.components:
            if len(component.axes) > 1 or not component.runs.all():
                return False
            inner = component.kinds[1:-1]
            if len(component.runs) > 1 and inner.size and (inner != inner[0]).any():
                return False
        return True

    def running(self) -> np.ndarray:
        """Return whether anything runs in each work-group, in the order of their numbers.

        Raises
        ------
        UnsupportedKernelError
            There are too many work-groups.
        """
        self._check(range(len(self.groups)))
        # Axis 0 is the fastest, so it comes last.
        running = np.zeros(self.groups[::-1], dtype=bool)
        for number in range(len(self._pieces)):
            mine = np.ones((1,) * len(self.groups), dtype=bool)
            for component in self.components:
                mine = mine & self._spread(component, component.runs[component.kinds, number])
            running |= mine
        return running.ravel()

    def everywhere(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return one number for each combination of a value per kind of each component, in the work-groups' order."""
        total = np.zeros((1,) * len(self.groups), dtype=np.int64)
        for component, numbers in zip(self.components, values, strict=True):
            total = total * (int(numbers.max(initial=0)) + 1) + self._spread(component, numbers[component.kinds])
        return np.broadcast_to(total, self.groups[::-1]).ravel()

    def kinds_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the kinds of some work-groups, shape (work-groups, components); `positions` has a column per axis."""
        columns = [component.kinds[tuple(positions[:, a] for a in component.axes)] for component in self.components]
        return np.stack(columns, axis=1)

    def _spread(self, component: Component, values: np.ndarray) -> np.ndarray:
        axes = len(self.groups)
        shape = [self.groups[axis] if axis in component.axes else 1 for axis in reversed(range(axes))]
        spread: np.ndarray = values.transpose().reshape(shape)
        return spread

    def _axes_of(self, guard: Form) -> frozenset[int]:
        return frozenset(dim for dim in guard.dims if dim < len(self.groups))

    def _check(self, axes: Sequence[int]) -> None:
        count = prod(self.groups[axis] for axis in axes)
        if count > _MOST_GROUPS:
            msg = (
                f"guards of kernel {self._kernel!r} tell {count} work-groups apart, more than data volumes can look "
                "at; simplify them or give smaller sizes"
            )
            raise UnsupportedKernelError(msg, kernel=self._kernel)

    def _component(self, axes: tuple[int, ...]) -> Component:
        shape = tuple(self.groups[axis] for axis in axes)
        codes: list[np.ndarray] = []
        alive: list[np.ndarray] = []
        for piece in self._pieces:
            columns, runs = self._columns(piece, axes)
            alive.append(runs)
            # What does not run is of one kind, whatever the other guards say.
            codes += [runs.astype(np.int64), *(np.where(runs, column, 0) for column in columns)]
        code = np.zeros((1,) * len(axes), dtype=np.int64)
        for column in codes:
            code = _numbered(code * (int(column.max(initial=0)) + 1) + column)
        if code.size > 1:
            self._check(axes)
        whole = np.broadcast_to(code, shape)
        first = np.zeros(int(code.max()) + 1, dtype=np.int64)
        if code.size > 1:
            # Written backwards, so that the first position of each kind is what stays.
            first[whole.ravel()[::-1]] = np.arange(whole.size - 1, -1, -1)
        # Where there is one kind, its arrays have one element, and the grid may be larger than any array.
        runs_of = [np.broadcast_to(runs, shape if code.size > 1 else code.shape).ravel()[first] for runs in alive]
        return Component(axes, whole, np.stack(runs_of, axis=1) if runs_of else np.ones((1, 0), dtype=bool))

    def _columns(self, piece: ResolvedPiece, axes: tuple[int, ...]) -> tuple[list[np.ndarray], np.ndarray]:
        """Return numbers that differ where guards leave different instances, and where they leave any."""
        bounded = any(piece.ranges[axis] != (0, self.groups[axis] - 1) for axis in axes)
        if not bounded and not any(self._axes_of(guard) & set(axes) for guard in piece.constraints):
            return [], np.ones((1,) * len(axes), dtype=bool)
        points: Points = {}
        for place, axis in enumerate(axes):
            self._check([axis])
            shape = [1] * len(axes)
            shape[place] = -1
            points[axis] = np.arange(self.groups[axis], dtype=np.int64).reshape(shape)
        runs = np.ones((1,) * len(axes), dtype=bool)
        for axis in axes:
            low, high = piece.ranges[axis]
            if (low, high) != (0, self.groups[axis] - 1):
                runs = runs & (points[axis] >= low) & (points[axis] <= high)
        columns: list[np.ndarray] = []
        for guard in piece.constraints:
            mine = self._axes_of(guard)
            if not mine or not mine <= set(axes):
                continue
            if prod(self.groups[axis] for axis in mine) > _MOST_GROUPS:
                self._check(sorted(mine))
            split = _split(guard, points, piece, len(self.groups))
            runs = runs & (split.total + split.high >= 0)
            # A guard that always holds cuts nothing; another cuts what the work-group's part of it says.
            cut = split.total + split.low < 0
            columns += [_where(cut, part) for part in split.parts()]
        return columns, runs


@dataclass(frozen=True)
class _Split:
    """A form at some work-groups.

    Attributes
    ----------
    total
        What the group's position alone adds.
    low, high
        Limits of what the other dimensions add.
    rests
        What floors of both depend on beside the other dimensions.
    """

    total: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rests: tuple[np.ndarray, ...]

    def parts(self) -> Iterator[np.ndarray]:
        yield self.total
        yield from self.rests


def _split(form: Form, points: Points, piece: ResolvedPiece, axes: int) -> _Split:
    total = np.asarray(form.constant, dtype=np.int64)
    low: np.ndarray = np.zeros((), dtype=np.int64)
    high: np.ndarray = low
    rests: list[np.ndarray] = []
    for dim, coefficient in form.terms:
        if dim < axes:
            total = total + coefficient * points[dim]
        else:
            limits = [coefficient * end for end in piece.ranges[dim]]
            low, high = low + min(limits), high + max(limits)
    for inner, coefficient in form.floors:
        part = _split(inner, points, piece, axes)
        # The floor of a sum is the quotient of one part, and the floor of its rest and the other part.
        rest = part.total % inner.denominator
        total = total + coefficient * (part.total // inner.denominator)
        ends = [coefficient * ((rest + end) // inner.denominator) for end in (part.low, part.high)]
        low, high = low + np.minimum(*ends), high + np.maximum(*ends)
        if any(dim >= axes for dim in inner.dims):
            rests += [rest, *part.rests]
    return _Split(total, low, high, tuple(rests))


def _where(cut: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Return small positive numbers that tell values apart, and 0 elsewhere."""
    values = np.broadcast_to(part, np.broadcast_shapes(cut.shape, part.shape))
    lowest = values.min(where=cut, initial=np.iinfo(np.int64).max)
    return np.where(cut, values - lowest + 1, 0)


def _numbered(codes: np.ndarray) -> np.ndarray:
    """Return numbers from 0 up without gaps, equal where codes are."""
    highest = int(codes.max(initial=0))
    if highest < 4 * codes.size + 1024:
        # Small codes are numbered by counting, much faster than by sorting.
        present = np.zeros(highest + 1, dtype=bool)
        present[codes.ravel()] = True
        numbers: np.ndarray = (np.cumsum(present) - 1)[codes]
        return numbers
    inverse = np.unique(codes, return_inverse=True)[1]
    return np.asarray(inverse, dtype=np.int64).reshape(codes.shape)
