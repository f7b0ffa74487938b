"""The cache simulation against cases worked out by hand."""

import numpy as np
import pytest

from oracles.lru import Crossing, lru_crossings, steady_crossings


def crossings(lines, capacity, ways, stores=None):
    flags = np.zeros(len(lines), dtype=bool) if stores is None else np.array(stores, dtype=bool)
    return lru_crossings(np.array(lines), flags, 64 * capacity, ways=ways)


@pytest.mark.parametrize(("lines", "ways", "loads"), [
    # Four lines of capacity. 0 and 4 share set 0 of four direct-mapped ones, and push each other out.
    ([0, 4, 0, 4], 1, 4),
    # Two sets of two ways: both fit set 0.
    ([0, 4, 0, 4], 2, 2),
    # Three lines of set 0 in turn, two ways: each is gone when it comes again. Together they would fit.
    ([0, 2, 4, 0, 2, 4], 2, 6),
    ([0, 2, 4, 0, 2, 4], None, 3),
    # The least recently used goes: 2, not 0, which was touched again.
    ([0, 2, 0, 4, 0, 2], 2, 4),
    # Odd and even lines do not meet.
    ([0, 2, 1, 3, 5, 0, 2], 2, 5),
])  # fmt: skip
def test_loads(lines, ways, loads):
    assert crossings(lines, 4, ways).loads == loads


def test_dirty_lines_are_evicted_once():
    # 0 is stored, pushed out by 2 and 4 and comes back clean; 4 is stored and left at the end.
    assert crossings([0, 2, 4, 0], 4, 2, [1, 0, 1, 0]) == Crossing(loads=4, evicts=2)


def test_a_steady_state_leaves_out_the_first_touches():
    lines, stores = np.tile(np.arange(4), 3), np.zeros(12, dtype=bool)
    assert steady_crossings(lines, stores, 4, 4 * 64, 2) == Crossing(0, 0)
    assert steady_crossings(lines, stores, 4, 2 * 64, 1) == Crossing(8, 0)
