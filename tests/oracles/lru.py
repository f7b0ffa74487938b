"""A cache simulated access by access: least recently used, write-allocate, write-back, of any associativity.

An oracle for cache volumes that knows nothing of reuse distances: loops are run, addresses are looked up.
"""

from dataclasses import dataclass

__all__ = ["Crossing", "lru_crossings", "steady_crossings"]


@dataclass(frozen=True)
class Crossing:
    """Lines that crossed a boundary: towards the core, and dirty ones away from it."""

    loads: int
    evicts: int


class _Cache:
    """Sets of lines; a dictionary keeps the order of use, the oldest first."""

    def __init__(self, capacity, line, ways):
        self._ways = capacity // line if ways is None else ways
        self._sets: list[dict[int, bool]] = [{} for _ in range(capacity // line // self._ways)]
        self.loads = self.evicts = 0

    def run(self, lines, stores):
        sets, ways, count = self._sets, self._ways, len(self._sets)
        loads = evicts = 0
        for address, store in zip(lines.tolist(), stores.tolist(), strict=True):
            held = sets[address % count]
            dirty = held.pop(address, None)
            if dirty is None:
                loads += 1
                if len(held) >= ways:
                    evicts += held.pop(next(iter(held)))
                dirty = False
            held[address] = dirty or store
        self.loads, self.evicts = self.loads + loads, self.evicts + evicts

    @property
    def dirty(self):
        return sum(sum(held.values()) for held in self._sets)


def lru_crossings(lines, stores, capacity, line=64, ways=None):
    """Return the lines that cross below a cache of so many bytes, for a cache that is empty at first.

    Dirty lines that are left at the end count as evicted. Without `ways`, the cache is fully associative; with them,
    line numbers modulo the number of sets choose the set.
    """
    cache = _Cache(capacity, line, ways)
    cache.run(lines, stores)
    return Crossing(cache.loads, cache.evicts + cache.dirty)


def steady_crossings(lines, stores, first, capacity, ways=None):
    """Return the lines of 64 B that cross after the first accesses of a trace, which fill the cache.

    Dirty lines that the rest of the trace leaves behind count as evicted, those that it found do not.
    """
    cache = _Cache(capacity, 64, ways)
    cache.run(lines[:first], stores[:first])
    loads, evicts = cache.loads, cache.evicts + cache.dirty
    cache.run(lines[first:], stores[first:])
    return Crossing(cache.loads - loads, cache.evicts + cache.dirty - evicts)
