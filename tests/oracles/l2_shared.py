"""An L2 cache of a GPU simulated chunk by chunk: fully associative, least recently used or random replacement.

An oracle for loads from DRAM that knows nothing of waves, sets or footprints. Work-groups start in the order of their
numbers, the next one where one has ended. They advance fairly, each one step before any takes the next, or at random
paces, which drift apart as far as the square root of their steps: real schedulers lie between.
"""

import random
from collections import OrderedDict
from operator import length_hint

__all__ = ["chunks_loaded"]


class _Cache:
    def __init__(self, room, lru, turn):
        self._room, self._lru, self._turn = room, lru, turn
        self._held: OrderedDict[object, int] = OrderedDict()
        self._places: list[object] = []

    def touch(self, chunk):
        """Return whether a chunk was there, and keep it."""
        if chunk in self._held:
            if self._lru:
                self._held.move_to_end(chunk)
            return True
        if len(self._held) < self._room:
            self._held[chunk] = len(self._places)
            self._places.append(chunk)
        else:
            lost = next(iter(self._held)) if self._lru else self._places[self._turn.randrange(self._room)]
            place = self._held.pop(lost)
            self._held[chunk], self._places[place] = place, chunk
        return False


def chunks_loaded(groups, resident, room, *, lru, fair, stored="out"):
    """Return how many chunks come from DRAM; each work-group touches some in order, by array and number.

    `room` is the capacity in chunks. Those of array `stored` are written: they take room, and are not loaded.
    """
    turn = random.Random(1)  # noqa: S311
    cache, missed = _Cache(room, lru, turn), 0
    waiting = iter(groups)
    active = [iter(group) for group, _ in zip(waiting, range(resident), strict=False)]
    while active:
        # Of those that run, all in random order, or any as many times.
        order = (
            turn.sample(range(len(active)), len(active)) if fair else turn.choices(range(len(active)), k=len(active))
        )
        for at in order:
            touched = next(active[at], None)
            if touched is None:
                active[at] = iter(next(waiting, ()))
            elif not cache.touch(touched):
                missed += touched[0] != stored
        active = [one for one in active if length_hint(one)] if not length_hint(waiting) else active
    return missed
