"""What a cache must hold for reuse in windows of a kernel, at given sizes, and for all of its data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import reduce
from math import prod
from operator import add
from typing import Any

import numpy as np

from perflex.features.cpu.nests import Nests, Samples, shared_loops
from perflex.features.cpu.reuse_windows import Footprints, Window, outermost
from perflex.features.cpu.traced import NestValues, smaller

# A nest, and a window in it.
Place = tuple[int, Window]


class Reuse:
    """The cache that windows of reuse need, in bytes, at given sizes.

    `samples` are the iterations of drivers along which the last axis of the sizes runs. Of the cores of `numbers`, so
    many share the cache, `together`; they go through their parts at the same pace.
    """

    def __init__(
        self, nests: Nests, numbers: NestValues, line: int, samples: Samples | None = None, together: Any = 1
    ) -> None:
        self.nests = nests
        self.numbers = numbers
        self.line = line
        self.together = together
        # Shapes count elements as written, a folded group's item size is that of all elements in a fold.
        itemsizes = {group.array: group.itemsize // group.fold for nest in nests.nests for group in nest.groups}
        self.whole = {
            name: prod((numbers.size(extent) for extent in shape), start=itemsizes[name])
            for name, shape in nests.shapes
            if name in itemsizes
        }
        self.footprints = tuple(Footprints(nest, numbers, line, self.whole, samples, together) for nest in nests.nests)
        self._needed: dict[Place, Any] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the sizes and block sizes; empty for numbers."""
        return np.broadcast_shapes(*(np.shape(value) for part in self.footprints for value in part.numbers()))

    def needed(self, place: Place) -> Any:
        """Return the bytes that are touched in a window: what the cache must hold for reuse over it."""
        if place not in self._needed:
            where, window = place
            self._needed[place] = self.footprints[where].mean_in_window(window, self._touched(place))
        return self._needed[place]

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
                yield number, (*window[:shared], *([0] * (len(nest.loops) - shared)))

    def everything(self) -> Any:
        """Return the bytes of all data of the cores that share the cache: of each array, what they access of it."""
        if np.any(self.together != 1):
            union = Reuse(self.nests, self.numbers.of_parts(self.together), self.line)
            return union.touched_in_all(self.together)
        return self.touched_in_all(1)

    def touched_in_all(self, copies: Any) -> Any:
        """Return the bytes of all data of a core, with so many copies of local memory."""
        total: Any = 0
        for array, whole in self.whole.items():
            touched: Any = 0
            own: Any = 1
            for number, nest in enumerate(self.nests.nests):
                for place, group in enumerate(nest.groups):
                    # What an earlier nest has touched is counted with that one.
                    if group.array == array and group.touched_before is None:
                        touched = touched + self.footprints[number].reached(place)
                        own = copies if group.space == "local" else 1
            total = total + smaller(whole, touched) * own
        return total
