"""Kinds of work-groups of a launch: of those with guards and addresses that look alike, one stands for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import gcd, prod

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.gpu.launch_footprints import instances
from perflex.features.gpu.resolved_launch import ResolvedLaunch, ResolvedPiece
from perflex.features.polynomials.affine import Affine
from perflex.features.polynomials.cardinality import connected
from perflex.isl import computed_once

Points = dict[int, np.ndarray]
# Numbers for each work-group take up to 64 bytes at once: a gibibyte.
_MOST_GROUPS = 1 << 24
# Where a launch caches its guards, beside what it computes once itself.
_CACHED = "guards"


@dataclass(frozen=True)
class Component:
    """Axes of the grid that guards couple, and the kinds of positions along them."""

    axes: tuple[int, ...]  # ascending
    kinds: np.ndarray  # number of the kind at each position, one dimension for each axis
    runs: np.ndarray  # whether guards on these axes let a piece run, shape (kinds, pieces)


def guards_of(launch: ResolvedLaunch) -> Guards:
    """Return what tells the work-groups of a launch apart; it is made once for each launch."""
    known: Guards | None = launch.__dict__.get(_CACHED)
    return known if known is not None else launch.__dict__.setdefault(_CACHED, Guards(launch))


class Guards:
    """Tells the work-groups of a launch apart by what guards leave of them.

    Work-groups of one kind execute the same instances of the same pieces.
    """

    def __init__(self, launch: ResolvedLaunch) -> None:
        self._kernel, self.groups, self._pieces = launch.kernel, launch.groups, launch.pieces

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
        """Return whether anything runs in each work-group, in the order of their numbers."""
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

    def _axes_of(self, guard: Affine) -> frozenset[int]:
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
            code = numbered(code * (int(column.max(initial=0)) + 1) + column)
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
        for axis in axes:
            self._check([axis])
        points = dict(zip(axes, np.ix_(*(np.arange(self.groups[axis], dtype=np.int64) for axis in axes)), strict=True))
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
            columns += [_where(cut, part) for part in (split.total, *split.rests)]
        return columns, runs


@dataclass(frozen=True)
class _Split:
    """A form at some work-groups."""

    total: np.ndarray  # what the group's position alone adds
    # low, high: limits of what the other dimensions add
    low: np.ndarray
    high: np.ndarray
    rests: tuple[np.ndarray, ...]  # what floors of both depend on beside the other dimensions


def _split(form: Affine, points: Points, piece: ResolvedPiece, axes: int) -> _Split:
    total = np.asarray(form.constant, dtype=np.int64)
    low: np.ndarray = np.zeros((), dtype=np.int64)
    high: np.ndarray = low
    rests: list[np.ndarray] = []
    for dim, coefficient in form.dim_terms:
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


def numbered(codes: np.ndarray) -> np.ndarray:
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


Group = tuple[int, ...]
# Kinds of positions along an axis of the grid that are looked at; of more, neighbouring ones are taken for each other.
MOST_KINDS = 256


def whole_grid(launch: ResolvedLaunch, line: int) -> dict[Group, int]:
    """Return work-groups with weights that add up to those of the grid in which anything runs.

    Addresses modulo a line repeat along each axis after a number of work-groups; of each kind that guards leave
    (`Guards`), work-groups of one such period from the middle stand for all.
    """
    guards = guards_of(launch)
    order = [axis for component in guards.components for axis in component.axes]
    parts = [
        _classes(component, [_period(launch, axis, line) for axis in component.axes]) for component in guards.components
    ]
    chosen: dict[Group, int] = {}
    for members in product(*parts):
        runs = [component.runs[one.kind] for component, one in zip(guards.components, members, strict=True)]
        if np.logical_and.reduce(runs).any():
            place = dict(zip(order, (position for one in members for position in one.position), strict=True))
            chosen[tuple(place[axis] for axis in sorted(place))] = prod(one.count for one in members)
    return chosen


def _period(launch: ResolvedLaunch, axis: int, line: int) -> int:
    """Return after how many work-groups along an axis addresses repeat modulo a line."""
    period = 1
    for piece in launch.pieces:
        for access in piece.accesses:
            form = access.address
            if axis in form.floor_dims:
                period = max(period, line)
            # Lines are powers of two, so periods are too, and the largest is a multiple of all.
            period = max(period, line // gcd(line, form.coefficient(axis)))
    return period


@dataclass(frozen=True)
class _Class:
    """A kind of positions along coupled axes, the one of them that is looked at, and how many there are."""

    kind: int
    position: Group
    count: int


def _classes(component: Component, periods: Sequence[int]) -> list[_Class]:
    kinds = component.kinds
    if kinds.ndim == 1:
        breaks = np.flatnonzero(np.diff(kinds)) + 1 if len(component.runs) > 1 else np.zeros(0, dtype=np.int64)
        if len(breaks) < MOST_KINDS:
            return _along(kinds, [0, *breaks.tolist(), len(kinds)], periods[0])
    code = kinds
    for place, period in zip(np.ix_(*map(np.arange, kinds.shape)), periods, strict=True):
        code = code * period + place % period
    order = np.argsort(code, axis=None, kind="stable")
    ends = np.cumsum(np.unique(code, return_counts=True)[1])
    found = []
    for start, end in pairwise([0, *ends.tolist()]):
        middle = np.unravel_index(order[(start + end) // 2], kinds.shape)
        found.append(_Class(int(kinds[middle]), tuple(map(int, middle)), end - start))
    return _fewer(found)


def _along(kinds: np.ndarray, edges: Sequence[int], period: int) -> list[_Class]:
    """Return the classes of positions between edges, where neither kind nor alignment tells them apart."""
    found: dict[tuple[int, int], _Class] = {}
    for start, end in pairwise(edges):
        for first in range(start, min(end, start + period)):
            count = (end - first + period - 1) // period
            one = _Class(int(kinds[start]), (first + period * (count // 2),), count)
            known = found.get((one.kind, first % period))
            # The longest run of a kind has its position, all of its runs their part of the number.
            if known is not None:
                longest = max(known, one, key=lambda one: one.count)
                one = replace(longest, count=known.count + count)
            found[one.kind, first % period] = one
    return list(found.values())


def _fewer(classes: list[_Class]) -> list[_Class]:
    """Return at most about `MOST_KINDS` classes: those of many positions, and of others one for several in a row."""
    if len(classes) <= MOST_KINDS:
        return classes
    many = sum(one.count for one in classes) // (MOST_KINDS // 2)
    kept = [one for one in classes if one.count > many]
    rest = sorted((one for one in classes if one.count <= many), key=lambda one: one.position[::-1])
    while rest:
        total = length = 0
        while length < len(rest) and (not length or total + rest[length].count <= many):
            total += rest[length].count
            length += 1
        kept.append(replace(rest[length // 2], count=total))
        rest = rest[length:]
    return kept


def alike(launch: ResolvedLaunch, groups: Iterable[Group], period: int) -> list[list[Group]]:
    """Return work-groups by kind: addresses that differ by multiples of a period, in bytes, and guards are alike."""
    groups = list(groups)
    if not groups:
        return []
    # Constants shift an access in all work-groups alike: only slopes tell work-groups apart.
    forms = [access.address for piece in launch.pieces for access in piece.accesses]
    axes = range(len(launch.groups))
    slopes = np.array(sorted({tuple(form.coefficient(axis) for axis in axes) for form in forms}), dtype=np.int64)
    # A floor of a group id follows no slope, so each position along that axis is a kind of its own.
    floors = sorted({axis for form in forms for axis in form.floor_dims if axis in axes})
    positions = np.array(groups, dtype=np.int64)
    phases = (positions @ slopes.reshape(-1, len(axes)).T) % period
    marks = np.concatenate([phases, guards_of(launch).kinds_at(positions), positions[:, floors]], axis=1)
    kinds: dict[bytes, list[Group]] = {}
    for mark, group in zip(marks, groups, strict=True):
        kinds.setdefault(mark.tobytes(), []).append(group)
    return list(kinds.values())


def representatives(launch: ResolvedLaunch, groups: Mapping[Group, int], period: int) -> list[tuple[Group, int]]:
    """Return one work-group for each kind among some (`alike`), with the sum of their weights."""
    kinds = alike(launch, groups, period)
    return [(members[0], sum(groups[group] for group in members)) for members in kinds]


def launch_instances(launch: ResolvedLaunch) -> int:
    """Return how many instances of statements a launch executes."""
    chosen = representatives(launch, whole_grid(launch, 1), 1)
    return sum(weight * instances(launch, tuple((place, place) for place in group)) for group, weight in chosen)


def shifts(launch: ResolvedLaunch) -> dict[str, tuple[int, ...]] | None:
    """Return by how many bytes each array's accesses move from one work-group to the next along each axis.

    None where accesses of one array move differently, so that no distance holds for all of them.
    """
    axes = range(len(launch.groups))
    found: dict[str, tuple[int, ...]] = {}
    for piece in launch.pieces:
        for access in piece.accesses:
            slope = tuple(access.address.coefficient(axis) for axis in axes)
            known = found.setdefault(access.array, slope)
            if known != slope or any(axis in axes for axis in access.address.floor_dims):
                return None
    return found
