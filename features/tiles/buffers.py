"""Products of a tile program, and its local memory as Triton's compiler gives it out."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex.features.tiles.costs import TileCosts
    from perflex.features.tiles.tile_program import TileAccess, TileDot

# Bytes of an element of a product's operands; a TF32 stands in 4.
_BYTES = {"f64": 8, "f32": 4, "tf32": 4, "tf32x3": 4, "f16": 2, "bf16": 2}


@dataclass(frozen=True)
class Product:
    """A product of tiles in the main loop: its shape, instructions, and how sub-groups share it."""

    dot: TileDot
    count: float  # In one iteration
    kind: str  # Of the rate of tensor cores; empty where they have none
    groups: bool  # Whether four sub-groups compute it together (wgmma)
    rows: int  # Sub-groups along m
    columns: int  # Sub-groups along n

    @property
    def itemsize(self) -> int:
        """Bytes of an operand's element."""
        return _BYTES.get(self.dot.types[0], 1)


def _size(access: TileAccess) -> int:
    return prod(access.shape) * access.itemsize


def local_bytes(costs: TileCosts) -> int:
    """Return the bytes of local memory that a program needs."""
    accesses, earlier = costs.program.accesses, max(costs.stages - 1, 1)
    beside = [number for number in costs.ahead if number not in costs.fed]
    mixed = [accesses[number] for number in beside if len(accesses[number].shape) > 1]
    total = sum(_size(accesses[number]) * earlier for number in beside if costs.ahead[number])
    passing = 0
    for one in costs.products:
        m, n, k = one.dot.shape
        alone = 0
        for side, operand in enumerate(one.dot.operands):
            number = operand.access
            if number >= 0 and costs.fed[number] == (one, side):
                if costs.ahead.get(number):
                    # wgmma reads a buffer while the next is filled; else registers hold what is being multiplied.
                    total += _size(accesses[number]) * (costs.stages if one.groups and operand.direct else earlier)
                elif accesses[number].loop != costs.loop:
                    total += _size(accesses[number])
                elif operand.direct:
                    alone += _size(accesses[number])
            # What is computed goes through local memory where other sub-groups, or wgmma, need it; what comes of one
            # tile is computed in place.
            through = one.columns > 1 and not one.groups if number < 0 else mixed or (one.groups and side)
            if not operand.direct and through:
                total += (n if side else m) * k * one.itemsize
        # Buffers of one step pass from a product to the next.
        passing = max(passing, alone)
    # Factors of rows and columns go to the sub-groups that need them, unless these load them all.
    flat = [accesses[number] for number in beside if len(accesses[number].shape) == 1] if costs.products else []
    return int(total + passing + max((_size(one) for one in flat if prod(one.shape) >= costs.items), default=0))
