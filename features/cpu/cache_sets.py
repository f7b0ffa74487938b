"""Sets of caches: the lines that accesses touch in a window, one by one, and which of them crowd into few sets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from perflex.features.cpu.reuse import Reuse
from perflex.features.cpu.reuse_windows import Footprints, Window, outermost
from perflex.features.cpu.traced import select

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Windows begin at so many places of a line.
_PLACES = 4
_MOST_MARKS = 2**22


# What lines depend on: extents of loops inside a window, and strides.
Likeness: TypeAlias = tuple[int, ...]


class WindowLines:
    """The lines that the groups of a kernel touch in windows, each looked at once for all caches."""

    def __init__(self, footprints: Sequence[Footprints]) -> None:
        self.footprints = footprints
        self._known: dict[tuple[int, int, Window, Likeness, int], NDArray[Any]] = {}
        self._alike: dict[tuple[int, int, tuple[int, ...]], Likeness] = {}

    def lines(self, nest: int, place: int, window: Window, index: tuple[int, ...], start: int) -> NDArray[Any]:
        """Return the lines of a group of a nest; see `_lines_in`."""
        key = nest, place, window, self.likeness(nest, window, index), start
        if key not in self._known:
            self._known[key] = _lines_in(self.footprints[nest], place, window, index, start)
        return self._known[key]

    def likeness(self, nest: int, window: Window, index: tuple[int, ...]) -> Likeness:
        """Return numbers that are equal where the lines of all groups in a window are."""
        key = nest, outermost(window), index
        if key not in self._alike:
            self._alike[key] = tuple(
                number
                for footprints in self.footprints
                for number in footprints.within(key[1], index, all_loops=footprints is not self.footprints[nest])
            )
        return self._alike[key]

    def starts(self, nest: int, window: Window, index: tuple[int, ...]) -> list[int]:
        """Return by how many iterations windows begin later, so that rows begin at several places of a line."""
        footprints = self.footprints[nest]
        over = outermost(window)
        steps = [
            abs(_at(step, index) * _at(stride, index))
            for place, group in enumerate(footprints.nest.groups)
            for axis in range(len(group.axes))
            for stride, moved in [footprints.movement(place, axis)]
            for loop, step in moved
            if loop == over
        ]
        shortest = min((step for step in steps if step), default=footprints.line)
        positions = max(1, int(footprints.line // shortest))
        return sorted({positions * number // _PLACES for number in range(_PLACES)})


def most_in_a_set(footprints: Footprints, place: int, window: Window, period: int) -> Any:
    """Return a bound on the lines of a group that one set meets in a window: a number, or one for each size.

    Lines inside of one `period`, the bytes that sets and lines of a way make, are in different sets; so as many meet as
    periods that the group reaches over, and not more than it has rows of them.
    """
    group, over = footprints.nest.groups[place], outermost(window)
    most: Any = 1
    # What begins or ends inside a line takes all of it.
    span: Any = 2 * footprints.line + group.itemsize
    for axis in range(len(group.axes)):
        stride, steps = footprints.movement(place, axis)
        count: Any = len({stream.offset[axis] for stream in group.streams})
        reach: Any = group.halo[axis]
        for loop, step in steps:
            if loop >= over:
                times = window[over] if loop == over else np.ceil(footprints.extents[loop])
                count, reach = count * times, reach + step * (times - 1)
        span = span + reach * stride
        most = np.minimum(most * count, np.ceil(span / period))
    return most


def _lines_in(footprints: Footprints, place: int, window: Window, index: tuple[int, ...], start: int) -> NDArray[Any]:
    """Return the numbers of the lines that a group touches, each once, for an array that begins with line 0.

    Loops outside of the window, and its own, begin at their first iteration, the window `start` iterations later. Of
    extents, steps and strides that are arrays, the element at `index` counts.
    """
    group, line = footprints.nest.groups[place], footprints.line
    indices, strides = [], []
    for axis in range(len(group.axes)):
        stride, steps = footprints.movement(place, axis)
        indices.append(visited(footprints, steps, window, index, start))
        strides.append(round(float(_at(stride, index))))
    found = []
    for offset, width in _rows(group.streams, indices, strides, line):
        # Zero where the array is a scalar.
        addresses = np.zeros(1, np.int64)
        for axis in reversed(range(len(strides))):
            along = (indices[axis] + offset[axis]) * strides[axis]
            if axis == 0:
                along = _line_starts(along, width, group.itemsize, line)
            addresses = (addresses[:, None] + along[None, :]).ravel()
        found.append(addresses // line)
    return _distinct(np.concatenate(found))


def _distinct(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return some numbers in order, each once."""
    first = int(numbers.min())
    span = int(numbers.max()) - first + 1
    if span > _MOST_MARKS:
        distinct: NDArray[Any] = np.unique(numbers)
        return distinct
    # Marks take a byte each, but no sorting.
    marks = np.zeros(span, dtype=bool)
    marks[numbers - first] = True
    found: NDArray[Any] = np.flatnonzero(marks) + first
    return found


def _at(value: Any, index: tuple[int, ...]) -> Any:
    return value[index] if isinstance(value, np.ndarray) else value


def visited(
    footprints: Footprints, steps: list[tuple[int, Any]], window: Window, index: tuple[int, ...] = (), start: int = 0
) -> NDArray[Any]:
    """Return the indices of an axis that the loops of a window visit, in order."""
    over = outermost(window)
    found = np.zeros(1, np.int64)
    for loop, scaled in steps:
        step, extent = round(float(_at(scaled, index))), footprints.whole(loop, index)
        if loop >= over:
            count, first = (window[over], start) if loop == over else (extent, 0)
            found = _moved(found + step * first, step, count)
    return found


def _moved(found: NDArray[Any], step: int, count: int) -> NDArray[Any]:
    """Return all sums of a member and of 0, step, ..., each once."""
    differences = np.diff(found)
    unit = int(differences[0]) if differences.size else step
    # An evenly spaced range that the steps fit is extended, since most of the sums would repeat.
    if unit and np.all(differences == unit) and step % unit == 0 and step <= unit * len(found):
        return np.arange(found[0], found[-1] + step * (count - 1) + 1, unit, dtype=np.int64)
    return np.unique(found[:, None] + step * np.arange(count, dtype=np.int64))


def _rows(streams: Any, indices: list[NDArray[Any]], strides: list[int], line: int) -> Iterator[tuple[Any, int]]:
    """Return the first of the streams in each row, and by how many bytes the last one is ahead of it."""
    if not strides:
        yield (), 0
        return
    span = int(indices[0][-1] - indices[0][0]) * strides[0] + line
    before: list[int] = []
    width = 0
    for stream in sorted(streams, key=lambda one: (one.offset[1:], one.offset[0])):
        ahead = (stream.offset[0] - before[0]) * strides[0] if before else 0
        if before and list(stream.offset[1:]) == before[1:] and ahead - width <= span:
            width = ahead
            continue
        if before:
            yield tuple(before), width
        before, width = list(stream.offset), 0
    yield tuple(before), width


def _line_starts(addresses: NDArray[Any], width: int, itemsize: int, line: int) -> NDArray[Any]:
    """Return an address in each line that elements in a row touch, from each one to `width` bytes further."""
    width += itemsize - 1
    if addresses.size > 1 and int(np.diff(addresses).max()) <= line:
        width += int(addresses[-1] - addresses[0])
        addresses = addresses[:1]
    if not width:
        return addresses
    further = np.append(np.arange(0, width, line, dtype=np.int64), width)
    starts: NDArray[Any] = (addresses[:, None] + further[None, :]).ravel()
    return starts


# In a cache filled beyond the one part, where arrays begin decides which sets are too full by the other.
_FULL, _SLACK = 0.9, 0.25


@dataclass(frozen=True)
class Crowding:
    """How the lines of a group fall into the sets of a cache."""

    held: float  # the part of its lines that stay until they are used again
    lines: int  # lines that it touches in the window
    sets: int  # sets that these are in


class Sets:
    """A cache of sets, each of which keeps the lines last used.

    A line stays until its set has met as many other lines as it has ways: between two uses, only lines of its own set
    count. All arrays begin with the same set, as large allocations do, which begin with pages.
    """

    def __init__(self, reuse: Reuse, lines: WindowLines, count: int, ways: int) -> None:
        self._reuse = reuse
        self._lines = lines
        self.count = count  # of sets
        self.ways = ways  # lines of a set
        self.line = reuse.line  # bytes
        self._shape = reuse.shape
        self._crowding: dict[tuple[int, int, Window, Likeness], Crowding] = {}
        self._all: dict[tuple[int, ...], NDArray[Any]] = {}
        self._occupied: dict[tuple[int, Window, Likeness, int], NDArray[Any]] = {}

    def held(self, nest: int, place: int, window: Window, needed: Any, fits: Any) -> Any:
        """Return the part of a group's lines that a window (of `needed` bytes) between two uses leaves in the cache.

        It is 0 where a fully associative cache of this size does not hold the window (`fits`).
        """
        most: Any = 0
        for number, other, seen in self._present(nest, window):
            most = most + most_in_a_set(self._reuse.footprints[number], other, seen, self.count * self.line)
        certain = np.logical_or(most <= self.ways, needed <= self.line)
        uncertain = np.logical_and(fits, np.logical_not(certain))
        held = self._each(lambda index: self.crowding(nest, place, window, index).held, uncertain, 1.0)
        return select(fits, held, 0.0)

    def _each(self, part: Callable[[tuple[int, ...]], float], fits: Any, otherwise: float) -> Any:
        """Return the part at all sizes that fit, and another number at those that do not."""
        if not self._shape:
            return part(()) if fits else otherwise
        found = np.full(self._shape, otherwise)
        for index in np.argwhere(np.broadcast_to(fits, self._shape)):
            found[tuple(index)] = part(tuple(index))
        return found

    def lost_of_all(self, nest: int, place: int, fits: Any) -> Any:
        """Return the part of a group's lines that do not stay; 1 where the cache is too small for all data."""
        return self._each(lambda index: self._lost_of_all(nest, place, index), fits, 1.0)

    def _lost_of_all(self, nest: int, place: int, index: tuple[int, ...]) -> float:
        occupied = self._everything(index)
        own = self._all_lines(nest, place, index) % self.count
        return float(np.mean(occupied[own] > self._room(occupied)))

    def _everything(self, index: tuple[int, ...]) -> NDArray[Any]:
        """Return how many lines of all data each set meets."""
        if index not in self._all:
            arrays: dict[str, list[NDArray[Any]]] = defaultdict(list)
            for number, nest in enumerate(self._reuse.nests.nests):
                for place, group in enumerate(nest.groups):
                    arrays[group.array].append(self._all_lines(number, place, index))
            sets = [np.unique(np.concatenate(lines)) % self.count for lines in arrays.values()]
            self._all[index] = np.bincount(np.concatenate(sets), minlength=self.count)
        return self._all[index]

    def _all_lines(self, nest: int, place: int, index: tuple[int, ...]) -> NDArray[Any]:
        footprints = self._reuse.footprints[nest]
        loops = len(footprints.extents)
        # All iterations of the outermost loop.
        window = (footprints.whole(0, index), *(0 for _ in range(loops - 1))) if loops else ()
        return self._lines.lines(nest, place, window, index, 0)

    def _room(self, occupied: NDArray[Any]) -> float:
        """Return how many lines a set keeps, given how many each meets."""
        full = occupied.sum() > _FULL * self.ways * self.count
        return self.ways * (1 + _SLACK if full else 1.0)

    def crowding(self, nest: int, place: int, window: Window, index: tuple[int, ...] = ()) -> Crowding:
        """Return how the lines of a group fall into sets in a window."""
        # Of many block sizes, most are alike in the loops inside of a window.
        key = nest, place, window, self._lines.likeness(nest, window, index)
        if key not in self._crowding:
            self._crowding[key] = self._found(nest, place, window, index)
        return self._crowding[key]

    def _found(self, nest: int, place: int, window: Window, index: tuple[int, ...]) -> Crowding:
        held = []
        own: NDArray[Any] = np.zeros(0, np.int64)
        for start in self._lines.starts(nest, window, index):
            own = self._lines.lines(nest, place, window, index, start) % self.count
            occupied = self._occupation(nest, window, index, start)
            # The mean over lines, not sets: crowded sets have more of them.
            held.append(float(np.mean(occupied[own] <= self._room(occupied))))
        return Crowding(float(np.mean(held)), len(own), len(np.unique(own)))

    def _occupation(self, nest: int, window: Window, index: tuple[int, ...], start: int) -> NDArray[Any]:
        """Return how many lines each set meets in a window."""
        key = nest, window, self._lines.likeness(nest, window, index), start
        if key not in self._occupied:
            total = np.zeros(self.count, np.int64)
            for number, place, seen in self._present(nest, window):
                lines = self._lines.lines(number, place, seen, index, start)
                total += np.bincount(lines % self.count, minlength=self.count)
            self._occupied[key] = total
        return self._occupied[key]

    def _present(self, nest: int, window: Window) -> Iterator[tuple[int, int, Window]]:
        """Return the groups that touch lines in a window, those of the window's nest and of others in its loop."""
        over = outermost(window)
        for number, seen in self._reuse.seen(nest, window):
            for place, group in enumerate(self._reuse.nests.nests[number].groups):
                # What an earlier nest has touched in the same loop is counted with that one.
                if group.touched_before is None or over > group.touched_before:
                    yield number, place, seen
