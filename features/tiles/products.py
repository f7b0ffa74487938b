"""Tile programs of matrix products as PyTorch's templates make them, from their sizes; they need no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from perflex.features.tiles.sharing import NEIGHBOURS, shared_tiles
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.features.tiles.tile_program import TileAccess, TileDot, TileLoop, TileOperand, TileProgram

_SECTOR = 32
_ROWS = 8  # Of tiles that programs work on before they go to the next columns
_BYTES = {"f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "f64": 8}


def power_of_two(number: float, most: int) -> int:
    """Return the largest power of two, `most` at most, that divides a positive integer."""
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

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _BYTES.get(self.dtype, 1)


class ProductKernel(TileKernel):
    """A product with tiles of m by n by k elements."""

    def __init__(self, matrices: Matrices, tile: tuple[int, int, int], warps: int, stages: int) -> None:
        self.matrices, self.tile, self.warps, self.stages = matrices, tile, warps, stages
        self.name, self.parameters = f"mm({matrices.m}x{matrices.k}, {matrices.k}x{matrices.n})", ()

    def program(self, sizes: Mapping[str, Any]) -> TileProgram:  # noqa: ARG002 - all are given
        """Return the tile program: programs in groups of eight rows of tiles, masks where k is no multiple."""
        given, (m, n, k), size = self.matrices, self.tile, self.matrices.itemsize
        rows, columns, steps = -(-given.m // m), -(-given.n // n), -(-given.k // k)
        programs = rows * columns
        along = given.first[1] == 1, given.second[1] == 1
        strides = given.first[0 if along[0] else 1] * size, given.second[0 if along[1] else 1] * size
        widest = given.k * size if given.k % k else 0  # A mask along k cuts the vectors
        vectors = [
            min(power_of_two(strides[0], 16), power_of_two(widest if along[0] else 0, 16)),
            min(power_of_two(strides[1], 16), power_of_two(0 if along[1] else widest, 16)),
        ]
        # Where a row is no longer than the matrix, PyTorch knows that tiles do not wrap around in the middle of one.
        if not along[0] and given.first[1] != given.m and given.m % 16:
            vectors[0] = min(vectors[0], power_of_two(given.m * size, 16))
        if along[1] and given.second[0] != given.n and given.n % 16:
            vectors[1] = min(vectors[1], power_of_two(given.n * size, 16))
        shared = _shared(rows, columns)
        loads = [
            self._load(side, strides[side], along[side], vectors[side], shared[side], (programs, steps))
            for side in (0, 1)
        ]
        store = TileAccess(
            array="c", direction="store", itemsize=size, shape=(m, n), executions=programs,
            elements=given.m * given.n, sectors=m * n * size / _SECTOR * programs, axis=1, stride=given.n * size,
            vector=power_of_two(given.n * size, 16),
        )  # fmt: skip
        dot = TileDot(
            shape=(m, n, k), types=(given.dtype, given.dtype, "f32"), loop=0, executions=programs * steps,
            operands=(TileOperand(access=0, along_k=along[0]), TileOperand(access=1, along_k=not along[1])),
        )  # fmt: skip
        return TileProgram(
            name=self.name, grid=(programs, 1, 1), warps=self.warps, stages=self.stages,
            loops=(TileLoop(entries=programs, iterations=programs * steps),), accesses=(*loads, store), dots=(dot,),
            exact=False,
        )  # fmt: skip

    def _load(
        self, side: int, stride: int, along: bool, vector: int, shared: Any, counts: tuple[int, int]
    ) -> TileAccess:
        given, (m, n, k), (programs, steps) = self.matrices, self.tile, counts
        shape = (m, k) if side == 0 else (k, n)
        inside = given.k / (steps * k)
        aligned, axis = power_of_two(stride, _SECTOR), 1 if along else 0

        def lines(length: int) -> float:
            """Return the sectors of a row of so many elements; rows begin at any multiple of their alignment."""
            return max(1.0, (length * given.itemsize + _SECTOR - aligned) / _SECTOR) if length else 0.0

        if axis == 1 - side:  # rows lie along k, and the last may be cut
            sectors = shape[side] * (lines(k) * (given.k // k) + lines(given.k % k)) / steps
            # Short rows share sectors.
            sectors = min(sectors, max(1.0, shape[side] * stride / _SECTOR))
        else:
            sectors = k * inside * lines(shape[axis])
        # Where a side is shorter than a tile, its indices return to their beginning.
        sectors *= min(1.0, given.m / m if side == 0 else given.n / n)
        return TileAccess(
            array="ab"[side], direction="load", itemsize=given.itemsize, shape=shape, loop=0,
            executions=programs * steps, elements=programs * steps * shape[0] * shape[1] * inside,
            sectors=sectors * programs * steps, tiles=steps, axis=axis, stride=stride,
            vector=vector, shared=shared,
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
