"""L1 caches of a GPU simulated load by load: one per compute unit, fully associative, least recently used.

An oracle for loads below the L1 that knows nothing of stack distances or footprints. Work-groups are given out in the
order of their ids, a unit takes the next one when one of its own has ended, and its sub-groups take turns, one load
each.
"""

from collections import OrderedDict
from itertools import product

import numpy as np

__all__ = ["loads_below_l1"]


class _Cache:
    def __init__(self, capacity, line, sector):
        self._room, self._ratio = capacity // line, line // sector
        self._lines: OrderedDict[int, set[int]] = OrderedDict()

    def misses(self, sectors):
        missed = 0
        for sector in sectors:
            held = self._lines.pop(sector // self._ratio, None)
            if held is None:
                held = set()
                if len(self._lines) >= self._room:
                    self._lines.popitem(last=False)
            missed += sector not in held
            held.add(sector)
            self._lines[sector // self._ratio] = held
        return missed


def loads_below_l1(grid, loads_of, *, units, resident, capacity, lanes=32, line=128, sector=32):
    """Return bytes that miss the L1 caches of so many units, each with so many work-groups resident at once.

    `loads_of` gives the byte addresses of a work-group's load instructions in program order, each of shape
    (work-items,); capacity, line and sector of a cache are in bytes.
    """
    waiting = iter([place[::-1] for place in product(*(range(extent) for extent in reversed(grid)))])

    def started():
        place = next(waiting, None)
        if place is None:
            return []
        steps = [np.unique(row) for load in loads_of(place) for row in (load // sector).reshape(-1, lanes)]
        count = len(loads_of(place)[0]) // lanes
        return [[one.tolist() for one in steps[begin : begin + count]] for begin in range(0, len(steps), count)]

    caches = [_Cache(capacity, line, sector) for _ in range(units)]
    running = [[] for _ in range(units)]
    for _, unit in product(range(resident), range(units)):
        running[unit].append(started())
    missed = 0
    while any(any(groups) for groups in running):
        for unit, groups in enumerate(running):
            for number, group in enumerate(groups):
                if group:
                    missed += sum(caches[unit].misses(sectors) for sectors in group.pop(0))
                if not group:
                    groups[number] = started()
    return missed * sector
