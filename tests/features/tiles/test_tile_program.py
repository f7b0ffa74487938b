"""How many tiles neighbours share."""

import pytest

from perflex.features.tiles.tile_program import TileAccess


def test_tiles_of_neighbours_grow_as_a_power_between_what_is_known() -> None:
    access = TileAccess(
        array="a", direction="load", itemsize=2, shape=(16,), executions=1, elements=1, sectors=1,
        shared=((1, 1.0), (4, 2.0), (16, 2.0)),
    )  # fmt: skip
    assert access.different(1) == 1
    assert access.different(2) == pytest.approx(2**0.5)
    assert access.different(4) == pytest.approx(2)
    assert access.different(16) == access.different(64) == pytest.approx(2)
    # Nothing is known: programs share no tiles.
    alone = TileAccess(array="a", direction="load", itemsize=2, shape=(16,), executions=1, elements=1, sectors=1)
    assert alone.different(7) == 7
