"""Products of matrices in closed form are what Triton's interpreter executes of a kernel with the same tiles."""

from __future__ import annotations

import pytest

from perflex.features.tiles.products import Matrices, ProductKernel
from perflex.features.tiles.sharing import shared_tiles
from support.triton_data import stored


@pytest.mark.parametrize("name", ["matmul_even", "matmul"])
def test_a_product_is_what_triton_executes(name: str) -> None:
    case = stored(name)
    given = {one["name"]: one.get("value") for one in case["arguments"]}
    tile = tuple(case["constexprs"][f"BLOCK_SIZE_{axis}"] for axis in "MNK")
    first, second = (given["stride_am"], given["stride_ak"]), (given["stride_bk"], given["stride_bn"])
    matrices = Matrices(given["M"], given["N"], given["K"], "f16", first, second)
    program = ProductKernel(matrices, (tile[0], tile[1], tile[2]), 4, 3).program({})
    truth = case["truth"]["arrays"]
    assert list(program.grid) == case["grid"]
    exact = 1e-9 if name == "matmul_even" else 0.3
    places = [("a_ptr", "load"), ("b_ptr", "load"), ("c_ptr", "store")]
    for access, (array, direction) in zip(program.accesses, places, strict=True):
        true = truth[array][direction]
        assert access.executions == true["executions"]
        assert access.elements == pytest.approx(true["elements"], rel=exact)
        # Of sizes that are no multiples of anything, sectors are those of rows that begin anywhere. The kernel stores
        # other types than it loads.
        if direction == "load":
            assert access.sectors == pytest.approx(true["sectors"], rel=exact)
    assert sum(dot.flops for dot in program.dots) == sum(dot["flops"] for dot in case["truth"]["dots"])


def test_windows_count_different_tiles() -> None:
    import numpy as np

    tiles = np.array([0, 1, 0, 1, 2, 2, 2, 3])
    for size, mean in shared_tiles(tiles):
        true = [len(set(tiles[start : start + size])) for start in range(len(tiles) - size + 1)]
        assert mean == pytest.approx(sum(true) / len(true))
    assert shared_tiles(np.array([5])) == ()
