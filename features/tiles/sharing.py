"""How many different tiles consecutive programs touch."""

from __future__ import annotations

from typing import Any

import numpy as np

# Consecutive programs of which is counted what they share.
NEIGHBOURS = 512


def shared_tiles(tiles: np.ndarray[Any, Any]) -> tuple[tuple[int, float], ...]:
    """Return pairs: so many consecutive programs, and how many different tiles they touch on average.

    `tiles` has a number for each program, equal for equal tiles. Numbers of programs are powers of two, and all.
    """
    count = len(tiles)
    if count < 2:
        return ()
    places, before = np.arange(count), np.full(count, -1)
    order = np.argsort(tiles, kind="stable")
    same = np.diff(tiles[order]) == 0
    before[order[1:][same]] = order[:-1][same]
    found = []
    for size in (*(1 << power for power in range((count - 1).bit_length())), count):
        # A program adds a tile to the windows that begin after the last program with the same one.
        starts = np.minimum(places, count - size) - np.maximum(before, places - size)
        found.append((size, float(np.maximum(starts, 0).sum() / (count - size + 1))))
    return tuple(found)
