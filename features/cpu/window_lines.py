"""Cache lines that a group of accesses touches in a window of time, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from perflex.features.cpu.footprints import outermost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from perflex.features.cpu.footprints import Footprints, Window

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
        """Return the lines of a group of a nest; see `lines_in`."""
        key = nest, place, window, self.likeness(nest, window, index), start
        if key not in self._known:
            self._known[key] = lines_in(self.footprints[nest], place, window, index, start)
        return self._known[key]

    def likeness(self, nest: int, window: Window, index: tuple[int, ...]) -> Likeness:
        """Return numbers that are equal where the lines of all groups in a window are."""
        key = nest, outermost(window), index
        if key not in self._alike:
            self._alike[key] = tuple(
                number
                for footprints in self.footprints
                for number in footprints.inside(key[1], index, all_loops=footprints is not self.footprints[nest])
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


def lines_in(footprints: Footprints, place: int, window: Window, index: tuple[int, ...], start: int) -> NDArray[Any]:
    """Return the numbers of the lines that a group touches, each once, for an array that begins with line 0.

    Parameters
    ----------
    footprints
        The nest, with extents, steps and strides as numbers or arrays.
    place
        Index of the group in the nest.
    window
        The window. Loops outside of it, and its own, begin at their first iteration.
    index
        Which element of arrays counts.
    start
        Iterations that the window begins after that.
    """
    group, line = footprints.nest.groups[place], footprints.line
    indices, strides = [], []
    for axis in range(len(group.axes)):
        stride, steps = footprints.movement(place, axis)
        indices.append(_indices(footprints, steps, window, index, start))
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


def _indices(
    footprints: Footprints, steps: list[tuple[int, Any]], window: Window, index: tuple[int, ...], start: int
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
