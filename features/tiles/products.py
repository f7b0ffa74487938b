"""Tile programs of matrix products as PyTorch's templates make them, from their sizes; they need no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from perflex.features.tiles.sharing import NEIGHBOURS, shared_tiles
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.features.tiles.tile_program import OPERAND_BYTES, TileAccess, TileDot, TileLoop, TileOperand, TileProgram

_SECTOR = 32
_ROWS = 8  # Of tiles that programs work on before they go to the next columns


def power_of_two(number: float, most: int) -> int:
    """Return the largest power of two, `most` at most, that divides an integer; `most` for 0."""
    whole = int(number)
    return min(whole & -whole, most) if whole else most


@dataclass(frozen=True)
class Matrices:
    """A product of an m by k and a k by n matrix, with the strides of both in elements, along rows and columns.

    ``dtype`` is that of the operands: ``f16``, ``bf16``, ``tf32``, ``f32`` or ``f8E4M3FN``.
    """

    m: int
    n: int
    k: int
    dtype: str
    first: tuple[int, int]
    second: tuple[int, int]


class ProductKernel(TileKernel):
    """A product with tiles of m by n by k elements."""

    def __init__(self, matrices: Matrices, tile: tuple[int, int, int], warps: int, stages: int) -> None:
        self.matrices, self.tile, self.warps, self.stages = matrices, tile, warps, stages
        self.name, self.parameters = f"mm({matrices.m}x{matrices.k}, {matrices.k}x{matrices.n})", ()
        self.itemsize = OPERAND_BYTES.get(matrices.dtype, 1)

    def program(self, sizes: Mapping[str, Any]) -> TileProgram:  # noqa: ARG002 - all are given
        """Return the tile program: programs in groups of eight rows of tiles, masks where k is no multiple.

        Sizes are constants of the code: there is no loop where there is a single step.
        """
        given, (m, n, k), size = self.matrices, self.tile, self.itemsize
        rows, columns, steps = -(-given.m // m), -(-given.n // n), -(-given.k // k)
        programs = rows * columns
        loops = (TileLoop(entries=programs, iterations=programs * steps),) if steps > 1 else ()
        loads = [self._load(side, shared, programs, steps) for side, shared in enumerate(_shared(rows, columns))]
        store = TileAccess(
            array="c", direction="store", itemsize=size, shape=(m, n), executions=programs,
            elements=given.m * given.n, sectors=m * n * size / _SECTOR * programs, axis=1, stride=given.n * size,
            vector=power_of_two(given.n * size, 16),
        )  # fmt: skip
        first, second = (TileOperand(access=side, along_k=load.axis == 1 - side) for side, load in enumerate(loads))
        dot = TileDot(
            shape=(m, n, k), types=(given.dtype, given.dtype, "f32"), operands=(first, second), loop=len(loops) - 1,
            executions=programs * steps,
        )  # fmt: skip
        return TileProgram(
            name=self.name, grid=(programs, 1, 1), warps=self.warps, stages=self.stages,
            loops=loops, accesses=(*loads, store), dots=(dot,),
            exact=False,
        )  # fmt: skip

    def _load(self, side: int, shared: tuple[tuple[int, float], ...], programs: int, steps: int) -> TileAccess:
        given, (m, n, k), size = self.matrices, self.tile, self.itemsize
        # Beside k, an operand has an axis of so many elements in a tile, and in the whole matrix.
        strides, shape, across, whole = (
            (given.second, (k, n), n, given.n) if side else (given.first, (m, k), m, given.m)
        )
        axis = 1 if strides[1] == 1 else 0
        stride = strides[1 - axis] * size
        aligned = power_of_two(stride, _SECTOR)
        runs, depth, loop = programs * steps, given.k / steps, 0 if steps > 1 else -1

        def lines(length: int) -> float:
            # Rows begin at any multiple of their alignment.
            return max(1.0, (length * size + _SECTOR - aligned) / _SECTOR) if length else 0.0

        if axis == 1 - side:  # rows lie along k, and the last may be cut
            # The mask cuts vectors, too.
            cut = given.k * size if given.k % k else 0
            sectors = across * (lines(k) * (given.k // k) + lines(given.k % k)) / steps
            # Short rows share sectors.
            sectors = min(sectors, max(1.0, across * stride / _SECTOR))
        else:
            # Where a row is no longer than the matrix, PyTorch knows that tiles do not wrap around within one.
            cut = whole * size if strides[1 - axis] != whole else 0
            sectors = depth * lines(across)
        # Where a side is shorter than a tile, its indices return to their beginning.
        sectors *= min(1.0, whole / across)
        return TileAccess(
            array="ab"[side], direction="load", itemsize=size, shape=shape, loop=loop, executions=runs,
            elements=runs * across * depth, sectors=sectors * runs, tiles=steps, axis=axis, stride=stride,
            vector=min(power_of_two(stride, 16), power_of_two(cut, 16)), shared=shared,
        )  # fmt: skip


@lru_cache(maxsize=4096)
def _shared(rows: int, columns: int) -> tuple[tuple[tuple[int, float], ...], tuple[tuple[int, float], ...]]:
    """Return how many rows and columns of tiles consecutive programs touch, in groups of eight rows."""
    programs, group = rows * columns, _ROWS * columns
    near = min(programs, NEIGHBOURS)
    numbers = (programs - near) // 2 + np.arange(near)
    first = numbers // group * _ROWS
    size = np.minimum(rows - first, _ROWS)
    return shared_tiles(first + numbers % group % size), shared_tiles(numbers % group // size)
