"""Kernels whose work-groups sweep through data or share it, with their loads as plain addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import islpy as isl
import numpy as np

from perflex.features import Access, Array, Launch, QuasiPolynomial, Scop, Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Described = tuple[Scop, tuple[int, ...], Callable[[tuple[int, ...]], list[np.ndarray]]]


def _constant(value: int) -> QuasiPolynomial:
    return QuasiPolynomial.constant(value)


def sweep(offsets: Sequence[tuple[int, ...]], domain: tuple[int, int, int], items: tuple[int, int]) -> Described:
    """B[z, y, x] from A at offsets, where work-groups of the x-y plane go through all z; doubles."""
    reach = max(max(map(abs, offset)) for offset in offsets)
    nx, ny, nz = domain
    width, height = nx + 2 * reach, ny + 2 * reach
    grid = (nx // items[0], ny // items[1])
    where = "[g0, g1, l0, l1, z]"
    limits = (
        f"0 <= g0 < {grid[0]} and 0 <= g1 < {grid[1]} and 0 <= l0 < {items[0]} and 0 <= l1 < {items[1]} "
        f"and 0 <= z < {nz}"
    )

    def access(array: str, direction: str, offset: tuple[int, ...]) -> Access:
        x, y, z = (step + reach for step in offset)
        index = f"z + {z}, {items[1]} g1 + l1 + {y}, {items[0]} g0 + l0 + {x}"
        return Access(array, direction, isl.Map(f"{{ {where} -> [{index}] }}"), text=f"{array}[{offset}]")

    shape = tuple(map(_constant, (nz + 2 * reach, height, width)))
    strides = tuple(map(_constant, (height * width, width, 1)))
    scop = Scop(
        "sweep",
        (),
        isl.Set("{ : }"),
        (Launch(tuple(map(_constant, grid)), items),),
        tuple(Array(name, "global", "float64", shape, strides) for name in "AB"),
        (
            Statement(
                "update",
                isl.Set(f"{{ {where} : {limits} }}"),
                (*(access("A", "load", offset) for offset in offsets), access("B", "store", (0, 0, 0))),
                schedule=(0, "z", 0),
            ),
        ),
    )
    ordered = sorted(offsets, key=lambda offset: offset[::-1])

    def loads_of(group: tuple[int, ...]) -> list[np.ndarray]:
        item = np.arange(items[0] * items[1])
        x, y = group[0] * items[0] + item % items[0], group[1] * items[1] + item // items[0]
        return [
            8 * ((z + dz + reach) * height * width + (y + dy + reach) * width + x + dx + reach)
            for z in range(nz)
            for dx, dy, dz in ordered
        ]

    return scop, grid, loads_of
