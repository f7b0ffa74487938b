"""A tile program: what all programs of a launch access and compute, tile by tile; made of Triton's code or a file."""

from __future__ import annotations

from functools import cached_property
from math import log2, prod
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from perflex.yaml_file import Fields, read_yaml

SCHEMA = "perflex-tiles/1"
# More than any launch has: products of such numbers are still finite.
_Count = Annotated[float, Meta(ge=0, le=1e30)]
_Whole = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]


class TileLoop(Fields, frozen=True, kw_only=True):
    """A loop: how often all programs enter it, and its iterations in all.

    Attributes
    ----------
    parent
        Number of the loop around it; -1 where there is none.
    stages
        Iterations that are in flight at once, where the kernel's code says so.
    """

    parent: int = -1
    entries: _Count
    iterations: _Count
    stages: int | None = None


class TileAccess(Fields, frozen=True, kw_only=True):
    """A tile that is loaded, stored or updated atomically.

    Attributes
    ----------
    array, direction
        Name of the argument; ``load``, ``store`` or ``atomic``.
    itemsize, shape
        Bytes of an element, and extents of the tile.
    loop
        Number of the innermost loop around it; -1 where there is none.
    executions, elements, sectors
        Of all programs: how often it is executed, elements that no mask leaves out, and 32-byte sectors of each
        execution, added up.
    tiles
        Different tiles that a program touches, on average.
    again
        Of these, tiles that other loads of the program touched before, on average.
    axis
        Along which axis of the tile neighbours are neighbours in memory; -1 where along none.
    stride
        Bytes between the tile's rows, which lie along that axis.
    vector
        Bytes of consecutive, aligned elements that one instruction of a work-item takes, as far as the compiler knows
        that they are, and that a mask holds for all or none: at most 16.
    shared
        Pairs: so many consecutive programs, and how many different tiles they touch at once, on average.
    """

    array: str
    direction: str
    itemsize: _Whole
    shape: tuple[_Whole, ...]
    loop: int = -1
    executions: _Count
    elements: _Count
    sectors: _Count
    tiles: _Count = 1
    again: _Count = 0
    axis: int = -1
    stride: _Count = 0
    vector: _Whole = 16
    shared: tuple[tuple[_Whole, _Count], ...] = ()

    @property
    def bytes(self) -> float:
        """Bytes of the elements that are accessed."""
        return self.elements * self.itemsize

    def different(self, programs: float) -> float:
        """Return how many different tiles so many consecutive programs touch at once, on average.

        Between the counted numbers of programs, and beyond them, it grows as a power.
        """
        if not self.shared:
            return programs
        points = [(log2(count), log2(max(tiles, 1e-9))) for count, tiles in self.shared]
        place = log2(max(programs, 1.0))
        if len(points) == 1:
            return float(2 ** points[0][1]) if place <= points[0][0] else programs
        last = next((number for number, point in enumerate(points) if point[0] >= place and number), len(points) - 1)
        (left, low), (right, high) = points[last - 1], points[last]
        # Tiles become no fewer with more programs, and at most one more with each.
        slope = min(1.0, max(0.0, (high - low) / (right - left)))
        return float(2 ** (low + slope * (place - left)))


class TileOperand(Fields, frozen=True, kw_only=True):
    """Where an operand of a product comes from.

    Attributes
    ----------
    access
        Number of the load; -1 where it is computed of no tile that is loaded.
    direct
        Whether the operand is just what is loaded.
    along_k
        Whether neighbours in memory are neighbours along k.
    """

    access: int = -1
    direct: bool = True
    along_k: bool = True


class TileDot(Fields, frozen=True, kw_only=True):
    """A product of tiles, m by k and k by n, given as shape m, n, k: types of operands and sum, executions of all."""

    shape: tuple[_Whole, _Whole, _Whole]
    types: tuple[str, str, str]
    operands: tuple[TileOperand, TileOperand] = (TileOperand(), TileOperand())
    loop: int = -1
    executions: _Count

    @property
    def flops(self) -> float:
        """Floating-point operations of all executions; a multiply-add is two."""
        return 2.0 * prod(self.shape) * self.executions


class TileOperations(Fields, frozen=True, kw_only=True):
    """Operations on elements of tiles, of all programs; those that addresses are made of do not count.

    ``kind`` is ``elementwise``, ``special`` (functions and divisions) or ``reduction`` (elements that are reduced).
    """

    kind: str
    dtype: str
    loop: int = -1
    count: _Count


class TileResources(Fields, frozen=True, kw_only=True):
    """What compiled code takes: registers of a work-item, bytes that it spills of them, and bytes of local memory."""

    registers: _Whole
    spilt_bytes: _Count = 0
    local_bytes: Annotated[int, Meta(ge=0)]


class TileProgram(Fields, frozen=True, kw_only=True, dict=True):
    """All that the programs of one launch access and compute.

    Attributes
    ----------
    name, grid
        Of the kernel, and programs along its axes.
    warps, stages
        Sub-groups of a program, and iterations of a loop whose loads are in flight at once.
    registers
        Registers that a work-item may have, where it is compiled with a limit of its own.
    resources
        What a program takes, where its compiled code is known; otherwise formulas say it.
    loops, accesses, dots, operations
        Each refers to a loop by its number.
    exact
        Whether all programs were counted; otherwise some stand for all of them.
    """

    name: str
    grid: tuple[_Whole, _Whole, _Whole]
    warps: _Whole = 4
    stages: _Whole = 3
    registers: _Whole | None = None
    resources: TileResources | None = None
    loops: tuple[TileLoop, ...] = ()
    accesses: tuple[TileAccess, ...] = ()
    dots: tuple[TileDot, ...] = ()
    operations: tuple[TileOperations, ...] = ()
    exact: bool = True

    @cached_property
    def programs(self) -> int:
        """Programs of the grid."""
        return prod(self.grid)


def read_tile_program(path: str | Path) -> TileProgram:
    """Return the tile program that a YAML file describes, whose keys are the fields of `TileProgram`.

    Raises
    ------
    FileFormatError
        The file is wrong; the message says in which line.
    """
    section = read_yaml(path, SCHEMA)
    program = section.read(TileProgram)
    for what in ("loops", "accesses", "dots", "operations"):
        for place, part in enumerate(getattr(program, what)):
            loop = part.parent if isinstance(part, TileLoop) else part.loop
            # A loop stands behind those around it.
            if not -1 <= loop < (place if isinstance(part, TileLoop) else len(program.loops)):
                key = "parent" if isinstance(part, TileLoop) else "loop"
                msg = f"there is no loop {loop} before it; loops count from 0"
                raise section.error(msg, what, place, key)
    for place, access in enumerate(program.accesses):
        counts = [count for count, _ in access.shared]
        if counts != sorted(set(counts)):
            msg = "the numbers of programs must ascend"
            raise section.error(msg, "accesses", place, "shared")
    for place, dot in enumerate(program.dots):
        for side, operand in enumerate(dot.operands):
            if not -1 <= operand.access < len(program.accesses):
                msg = f"there is no access {operand.access}; accesses count from 0"
                raise section.error(msg, "dots", place, "operands", side, "access")
    return program
