"""A tile program: what all programs of a launch access and compute, tile by tile."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from math import log2, prod

from msgspec import Struct

# Bytes of an element of a product's operands by type, a byte where it is none of them; a TF32 stands in 4.
OPERAND_BYTES = {"f64": 8, "f32": 4, "tf32": 4, "tf32x3": 4, "f16": 2, "bf16": 2}


class TileLoop(Struct, frozen=True, kw_only=True):
    """A loop: how often all programs enter it, and its iterations in all."""

    parent: int = -1  # Number of the loop around it; -1 where there is none
    entries: float
    iterations: float
    stages: int | None = None  # Iterations that are in flight at once, where the kernel's code says so


class TileAccess(Struct, frozen=True, kw_only=True):
    """A tile that is loaded, stored or updated atomically; counts are of all programs."""

    array: str  # Name of the argument
    direction: str  # "load", "store" or "atomic"
    itemsize: int  # Bytes of an element
    shape: tuple[int, ...]
    loop: int = -1  # Number of the innermost loop around it; -1 where there is none
    executions: float
    elements: float  # That no mask leaves out
    sectors: float  # Of 32 bytes, of each execution, added up
    tiles: float = 1  # Different ones that a program touches, on average
    again: float = 0  # Of these, tiles that other loads of the program touched before, on average
    axis: int = -1  # Along which neighbours in the tile are neighbours in memory; -1 where along none
    stride: float = 0  # Bytes between the tile's rows, which lie along that axis
    # Bytes of consecutive, aligned elements that one instruction of a work-item takes, as far as the compiler knows
    # that they are, and that a mask holds for all or none: at most 16.
    vector: int = 16
    # Pairs: so many consecutive programs, and how many different tiles they touch at once, on average.
    shared: tuple[tuple[int, float], ...] = ()

    @property
    def bytes(self) -> float:
        """Bytes of the elements that are accessed."""
        return self.elements * self.itemsize

    def different(self, programs: float) -> float:
        """Return how many different tiles so many consecutive programs touch at once, on average.

        Between the counted numbers of programs, and beyond them, it grows as a power.
        """
        if len(self.shared) < 2:
            return next((max(tiles, 1e-9) for count, tiles in self.shared if programs <= count), programs)
        place = max(programs, 1.0)
        last = bisect_left(self.shared, place, 1, len(self.shared) - 1, key=lambda pair: pair[0])
        (left, low), (right, high) = ((count, max(tiles, 1e-9)) for count, tiles in self.shared[last - 1 : last + 1])
        # Tiles become no fewer with more programs, and at most one more with each.
        slope = min(1.0, max(0.0, log2(high / low) / log2(right / left)))
        return float(low * (place / left) ** slope)


class TileOperand(Struct, frozen=True, kw_only=True):
    """Where an operand of a product comes from."""

    access: int = -1  # Number of the load; -1 where it is computed of no tile that is loaded
    direct: bool = True  # Whether it is just what is loaded
    along_k: bool = True  # Whether neighbours in memory are neighbours along k


class TileDot(Struct, frozen=True, kw_only=True):
    """A product of tiles, m by k and k by n, given as shape m, n, k: types of operands and sum, executions of all."""

    shape: tuple[int, int, int]
    types: tuple[str, str, str]
    operands: tuple[TileOperand, TileOperand] = (TileOperand(), TileOperand())
    loop: int = -1
    executions: float

    @property
    def flops(self) -> float:
        """Floating-point operations of all executions; a multiply-add is two."""
        return 2.0 * prod(self.shape) * self.executions


class TileOperations(Struct, frozen=True, kw_only=True):
    """Operations on elements of tiles, of all programs; those that addresses are made of do not count."""

    kind: str  # "elementwise", "special" (functions and divisions) or "reduction" (elements that are reduced)
    dtype: str
    loop: int = -1
    count: float


class TileResources(Struct, frozen=True, kw_only=True):
    """What compiled code takes: registers of a work-item, bytes that it spills of them, and bytes of local memory."""

    registers: int
    spilt_bytes: float = 0
    local_bytes: int


class TileProgram(Struct, frozen=True, kw_only=True, dict=True):
    """All that the programs of one launch access and compute; its parts refer to a loop by its number."""

    name: str  # Of the kernel
    grid: tuple[int, int, int]
    warps: int = 4  # Sub-groups of a program
    stages: int = 3  # Iterations of a loop whose loads are in flight at once
    registers: int | None = None  # That a work-item may have, where it is compiled with a limit of its own
    resources: TileResources | None = None  # Of a program, where its compiled code is known; otherwise formulas say it
    loops: tuple[TileLoop, ...] = ()
    accesses: tuple[TileAccess, ...] = ()
    dots: tuple[TileDot, ...] = ()
    operations: tuple[TileOperations, ...] = ()
    techniques: tuple[str, ...] = ()  # In words: what the code has that costs know nothing of
    exact: bool = True  # Whether all programs were counted; otherwise some stand for all of them

    @cached_property
    def programs(self) -> int:
        """Programs of the grid."""
        return prod(self.grid)
