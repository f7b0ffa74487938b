"""Windows of reuse of a kernel, and the cache that each needs."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from math import prod
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.cpu.footprints import Footprints, Window, outermost
from perflex.features.cpu.touched_before import shared_loops
from perflex.features.cpu.traced import smaller
from perflex.features.cpu.window_lines import WindowLines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perflex.features.cpu.nest_values import NestValues
    from perflex.features.cpu.nests import Nests

# A nest, and a window in it.
Place = tuple[int, Window]


def unit_window(nest_loops: int, loop: int) -> Window:
    """Return the window of one iteration of a loop."""
    return tuple(int(position == loop) for position in range(nest_loops))


class Reuse:
    """The cache that windows of reuse need, in bytes, at given sizes.

    Parameters
    ----------
    nests
        The kernel's nests.
    numbers
        Its sizes.
    line
        Bytes of a cache line.
    drivers
        Names of the loops along whose iterations the last axis of the sizes runs, each in as many steps, the last one
        fastest (`sampled`).
    """

    def __init__(self, nests: Nests, numbers: NestValues, line: int, drivers: Sequence[str] = ()) -> None:
        self._drivers = tuple(drivers)
        self.nests = nests
        self.numbers = numbers
        self.line = line
        # Shapes count elements as written, a folded group's item size is that of all elements in a fold.
        itemsizes = {group.array: group.itemsize // group.fold for nest in nests.nests for group in nest.groups}
        self.whole = {
            name: prod((numbers.size(extent) for extent in shape), start=itemsizes[name])
            for name, shape in nests.shapes
            if name in itemsizes
        }
        self.footprints = tuple(Footprints(nest, numbers, line, self.whole) for nest in nests.nests)
        self.lines = WindowLines(self.footprints)
        self._needed: dict[Place, Any] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the sizes and block sizes; empty for numbers."""
        return np.broadcast_shapes(*(np.shape(value) for part in self.footprints for value in part.numbers()))

    def needed(self, place: Place) -> Any:
        """Return the bytes that are touched in a window: what the cache must hold for reuse over it."""
        if place not in self._needed:
            self._needed[place] = self._mean(place, self._touched(place))
        return self._needed[place]

    def _mean(self, place: Place, touched: Any) -> Any:
        """Return what a window touches, as the mean over the iterations of those drivers that run inside of it."""
        if not self._drivers:
            return touched
        where, window = place
        names = [loop.name for loop in self.nests.nests[where].loops]
        inside = [name in names[outermost(window) + 1 :] for name in self._drivers]
        if not any(inside):
            return touched
        shape = self.shape
        each = round(shape[-1] ** (1 / len(inside)))
        grid = np.broadcast_to(touched, shape).reshape(*shape[:-1], *[each] * len(inside))
        axes = tuple(len(shape) - 1 + number for number, there in enumerate(inside) if there)
        return np.broadcast_to(grid.mean(axis=axes, keepdims=True), grid.shape).reshape(shape)

    def _touched(self, place: Place) -> Any:
        where, window = place
        over = outermost(window)
        found: dict[str, list[Any]] = defaultdict(list)
        for number, seen in self.seen(where, window):
            for array, touched in self.footprints[number].touched_of_arrays(seen, over):
                found[array].append(touched)
        total: Any = 0
        for array, parts in found.items():
            # Groups of one array may touch the same: together they touch no more than there is.
            touched = reduce(add, parts)
            total = total + (smaller(touched, self.footprints[0].most(array)) if len(parts) > 1 else touched)
        return total

    def seen(self, where: int, window: Window) -> Iterator[tuple[int, Window]]:
        """Return the nests that run in a window of a nest, and what the window is in their loops."""
        mine, over = self.nests.nests[where], outermost(window)
        for number, nest in enumerate(self.nests.nests):
            shared = shared_loops(mine, nest)
            # The window passes inside a loop that the other nest is not in: nothing of that runs meanwhile.
            if number == where:
                yield number, window
            elif over < shared:
                yield number, _projected(window, shared, len(nest.loops))

    def everything(self) -> Any:
        """Return the bytes of all data: of each array, what is accessed of it."""
        total: Any = 0
        for array, whole in self.whole.items():
            touched: Any = 0
            for number, nest in enumerate(self.nests.nests):
                for place, group in enumerate(nest.groups):
                    # What an earlier nest has touched is counted with that one.
                    if group.array == array and group.touched_before is None:
                        touched = touched + self.footprints[number].reached(place)
            total = total + smaller(whole, touched)
        return total


def _projected(window: Window, shared: int, loops: int) -> Window:
    return (*window[:shared], *([0] * (loops - shared)))
