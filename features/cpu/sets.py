"""Conflict misses: which part of a reuse is lost because its lines crowd into few sets of a cache."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.cpu.footprints import outermost
from perflex.features.cpu.traced import select
from perflex.features.cpu.window_lines import most_in_a_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from perflex.features.cpu.footprints import Window
    from perflex.features.cpu.reuse import Reuse
    from perflex.features.cpu.window_lines import Likeness

# In a cache filled beyond the one part, where arrays begin decides which sets are too full by the other.
_FULL, _SLACK = 0.9, 0.25


@dataclass(frozen=True)
class Crowding:
    """How the lines of a group fall into the sets of a cache.

    Attributes
    ----------
    held
        The part of its lines that stay until they are used again.
    lines
        Lines that it touches in the window.
    sets
        Sets that these are in.
    """

    held: float
    lines: int
    sets: int


class Sets:
    """A cache of sets, each of which keeps the lines last used.

    A line stays until its set has met as many other lines as it has ways: between two uses, only lines of its own set
    count. All arrays begin with the same set, as large allocations do, which begin with pages.

    Parameters
    ----------
    reuse
        The kernel at given sizes.
    count
        Number of sets.
    ways
        Lines of a set.

    Attributes
    ----------
    count, ways, line
        Sets, lines of each, and bytes of a line.
    """

    def __init__(self, reuse: Reuse, count: int, ways: int) -> None:
        self._reuse = reuse
        self.count = count
        self.ways = ways
        self.line = reuse.line
        self._shape = reuse.shape
        self._crowding: dict[tuple[int, int, Window, Likeness], Crowding] = {}
        self._all: dict[tuple[int, ...], NDArray[Any]] = {}
        self._occupied: dict[tuple[int, Window, Likeness, int], NDArray[Any]] = {}

    def reached(self, stride: int) -> int:
        """Return how many sets accesses reach that are so many bytes apart, however many they are."""
        whole = self.count * self.line
        return min(self.count, whole // gcd(stride, whole))

    def held(self, nest: int, place: int, window: Window, needed: Any, fits: Any) -> Any:
        """Return the part of a group's lines that a window leaves in the cache; 0 where the cache does not hold it.

        Parameters
        ----------
        nest, place
            The group.
        window
            The window between two uses of its lines.
        needed
            Bytes of the window.
        fits
            Whether a fully associative cache of this size holds it.
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
        if index not in self._all:
            self._all[index] = self._everything(index)
        occupied = self._all[index]
        own = self._all_lines(nest, place, index) % self.count
        return float(np.mean(occupied[own] > self._room(occupied)))

    def _everything(self, index: tuple[int, ...]) -> NDArray[Any]:
        arrays: dict[str, list[NDArray[Any]]] = defaultdict(list)
        for number, nest in enumerate(self._reuse.nests.nests):
            for place, group in enumerate(nest.groups):
                arrays[group.array].append(self._all_lines(number, place, index))
        sets = [np.unique(np.concatenate(lines)) % self.count for lines in arrays.values()]
        return np.bincount(np.concatenate(sets), minlength=self.count)

    def _all_lines(self, nest: int, place: int, index: tuple[int, ...]) -> NDArray[Any]:
        footprints = self._reuse.footprints[nest]
        loops = len(footprints.extents)
        # All iterations of the outermost loop.
        window = (footprints.whole(0, index), *(0 for _ in range(loops - 1))) if loops else ()
        return self._reuse.lines.lines(nest, place, window, index, 0)

    def _room(self, occupied: NDArray[Any]) -> float:
        """Return how many lines a set keeps, given how many each meets."""
        full = occupied.sum() > _FULL * self.ways * self.count
        return self.ways * (1 + _SLACK if full else 1.0)

    def crowding(self, nest: int, place: int, window: Window, index: tuple[int, ...] = ()) -> Crowding:
        """Return how the lines of a group fall into sets in a window."""
        # Of many block sizes, most are alike in the loops inside of a window.
        key = nest, place, window, self._reuse.lines.likeness(nest, window, index)
        if key not in self._crowding:
            self._crowding[key] = self._found(nest, place, window, index)
        return self._crowding[key]

    def _found(self, nest: int, place: int, window: Window, index: tuple[int, ...]) -> Crowding:
        held = []
        own: NDArray[Any] = np.zeros(0, np.int64)
        for start in self._reuse.lines.starts(nest, window, index):
            own = self._reuse.lines.lines(nest, place, window, index, start) % self.count
            occupied = self._occupation(nest, window, index, start)
            # The mean over lines, not sets: crowded sets have more of them.
            held.append(float(np.mean(occupied[own] <= self._room(occupied))))
        return Crowding(float(np.mean(held)), len(own), len(np.unique(own)))

    def _occupation(self, nest: int, window: Window, index: tuple[int, ...], start: int) -> NDArray[Any]:
        """Return how many lines each set meets in a window."""
        key = nest, window, self._reuse.lines.likeness(nest, window, index), start
        if key not in self._occupied:
            total = np.zeros(self.count, np.int64)
            for number, place, seen in self._present(nest, window):
                lines = self._reuse.lines.lines(number, place, seen, index, start)
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
