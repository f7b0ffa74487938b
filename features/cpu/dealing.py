"""How work is dealt to cores, and what that does to reuse between their parts."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from perflex.features.cpu.nests import Nest
from perflex.features.cpu.traced import NestValues, as_number, at_least, select, smaller


class Dealing:
    """Contiguous parts of a nest's iterations on cores, so many of which share a cache (`together`)."""

    def __init__(self, nest: Nest, numbers: NestValues, together: Any) -> None:
        own, whole = numbers.extents(nest), numbers.whole_extents(nest)
        alone = not np.any(numbers.cores != 1)
        self._own = {} if alone else {loop: as_number(own[loop]) for loop in nest.dealt_loops}
        self._whole = {loop: as_number(whole[loop]) for loop in self._own}
        # Of cores that have parts of the same iteration of an outer loop, all are next to each other.
        self._together: dict[int, Any] = {}
        for loop in reversed(self._own):
            self._together[loop] = smaller(together, self.parts(loop))
            together = together / self._together[loop]

    @property
    def shares(self) -> bool:
        """Whether cores share the cache."""
        return any(np.any(number > 1) for number in self._together.values())

    def parts(self, loop: int) -> Any:
        """Return into how many parts a loop is cut."""
        return self._whole[loop] / self._own[loop] if loop in self._own else 1.0

    def copies(self, moves: Callable[[int], bool]) -> Any:
        """Return how many of the cores that share the cache touch different data, given which loops move these."""
        return prod((cores for loop, cores in self._together.items() if moves(loop)), start=1.0)

    def share(self, moves: Callable[[int], bool]) -> Any:
        """Return what part of its lines a shared cache fetches: none that another core has just fetched."""
        return self.copies(moves) / prod(self._together.values(), start=1.0)

    def lost(self, loop: int, distance: int) -> Any:
        """Return the part of a reuse over so many iterations of a loop that begins on another core."""
        if loop not in self._own:
            return 0.0
        # As at the ends of whole loops, what the first iterations touch is left out.
        lost = smaller(distance * (self.parts(loop) - 1) / at_least(self._whole[loop] - 1, 1.0), 1.0)
        return lost / self.at_a_time(loop)

    def at_a_time(self, loop: int, most: Any = 1) -> Any:
        """Return how many cores that share a cache have their parts at a time: 1 where these are more iterations."""
        return select(self._own[loop] <= most, self._together[loop], 1.0) if loop in self._own else 1.0
