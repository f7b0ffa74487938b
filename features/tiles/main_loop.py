"""The main loop of a tile program: its products and loads, and its local memory as Triton's compiler gives it out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from perflex.features.tiles.tile_program import TileAccess, TileDot, TileProgram
from perflex.machines.machine import Machine

LANES = 32
# Bytes of an element of a product's operands; a TF32 stands in 4.
_BYTES = {"f64": 8, "f32": 4, "tf32": 4, "tf32x3": 4, "f16": 2, "bf16": 2}
_RATES = {"tf32": "tf32", "tf32x3": "tf32", "f16": "fp16", "bf16": "fp16", "f64": "fp64", "i8": "int8"}


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


class MainLoop:
    """The loop of a tile program in which most is done, as Triton compiles it for a machine.

    Attributes
    ----------
    program, machine
        What they are of.
    loop
        Number of the loop in which most is done; -1 where there is none.
    steps
        Its iterations in a program, on average.
    """

    def __init__(self, program: TileProgram, machine: Machine) -> None:
        self.program, self.machine = program, machine
        self.capability = machine.need("compute_capability") if machine.compute_capability else 0.0
        self.cycle = 1 / machine.need("clock_hz")
        self.loop, self.all_loops = self._main_loop()
        iterations = program.loops[self.loop].iterations if self.loop >= 0 else float(program.programs)
        self.times = max(iterations, 1.0)
        self.steps = iterations / program.programs
        stages = program.loops[self.loop].stages if self.loop >= 0 else None
        # Of a single step nothing can be loaded ahead.
        self.stages = (stages or program.stages) if self.loop >= 0 and self.steps > 1 else 1
        self.items = LANES * program.warps

    def _main_loop(self) -> tuple[int, float]:
        """Return the loop in which most is done, and how many times as much is computed and loaded in all loops."""
        work = dict.fromkeys(range(-1, len(self.program.loops)), 0.0)
        for dot in self.program.dots:
            work[dot.loop] += dot.flops / 16
        fed = dict(work)
        for access in self.program.accesses:
            work[access.loop] += access.bytes
            fed[access.loop] += access.bytes if access.direction == "load" else 0.0
        # A loop that runs less than once a program is an exception, not the rule.
        main = max(work, key=lambda loop: (work[loop], loop))
        return main, (sum(fed.values()) - fed[-1]) / fed[main] if main >= 0 and fed[main] else 1.0

    def in_step(self, access: TileAccess) -> bool:
        """Return whether an access belongs to a step; without a loop, what is stored comes behind the only one."""
        return access.loop == self.loop and (self.loop >= 0 or access.direction == "load")

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The products of the main loop."""
        dots = [dot for dot in self.program.dots if dot.loop == self.loop]
        # Where one product follows another, as in attention, all lie as the last: along its longer side.
        return tuple(self._product(dot, dots[-1].shape if self.chained and len(dots) > 1 else None) for dot in dots)

    @cached_property
    def chained(self) -> bool:
        """Whether an operand is computed of no tile that is loaded: of another product."""
        dots = [dot for dot in self.program.dots if dot.loop == self.loop]
        return any(side.access < 0 and not side.direct for dot in dots for side in dot.operands)

    def _product(self, dot: TileDot, last: tuple[int, int, int] | None) -> Product:
        m, n, _ = dot.shape
        first, warps = dot.types[0], self.program.warps
        kind = "fp8" if first.startswith("f8") else _RATES.get(first, "")
        if not kind or getattr(self.machine, f"tensor_{kind}_per_cycle") is None:
            kind = "fp16" if kind in {"fp8", "int8"} else ""
        groups = bool(kind) and self.capability == 9 and warps % 4 == 0 and m >= 64
        if self.capability == 9 and not groups and kind == "fp8":
            kind = "fp16"  # Ampere's instructions have no such type; it is converted
        rows = columns = 1
        if last:
            rows, columns = (warps, 1) if last[0] >= last[1] else (1, warps)
        while rows * columns < warps:
            # The side that has more of the instruction's tiles is split.
            if m / 16 / rows >= n / 16 / columns and rows < m // 16:
                rows *= 2
            else:
                columns *= 2
        return Product(dot, dot.executions / self.times, kind, groups, rows, columns)

    @cached_property
    def loads(self) -> tuple[TileAccess, ...]:
        """What the main loop loads."""
        return tuple(one for one in self.program.accesses if one.loop == self.loop and one.direction == "load")

    @cached_property
    def fed(self) -> dict[int, tuple[Product, int]]:
        """The product, and which of its operands, that a load feeds, by the load's number."""
        found: dict[int, tuple[Product, int]] = {}
        for product in self.products:
            for side, operand in enumerate(product.dot.operands):
                if operand.access >= 0:
                    found.setdefault(operand.access, (product, side))
        return found

    def transposed(self, product: Product, side: int) -> bool:
        """Return whether an operand must be turned in registers: wgmma takes those not of 2 bytes along k only."""
        return product.groups and product.itemsize != 2 and not product.dot.operands[side].along_k

    def raw(self, access: TileAccess) -> float:
        """Return the bytes of an access's tile in one iteration."""
        return prod(access.shape) * access.itemsize * access.executions / self.times

    @cached_property
    def ahead(self) -> dict[int, bool]:
        """Whether each load of the main loop is copied ahead to local memory, by number."""
        found = {}
        for number, access in enumerate(self.program.accesses):
            if access.loop != self.loop or access.direction != "load" or not access.shape:
                continue
            feeds = self.fed.get(number)
            # What operands are computed of is copied ahead as they are; what products are scaled by is not.
            copied = feeds is not None or self.converted
            # Of a row of factors, a work-item copies 4 bytes at least.
            each = prod(access.shape) / self.items
            copied = copied and not (len(access.shape) == 1 and 1 <= each < 4 / access.itemsize)
            copied = copied and access.vector >= 4 and self.stages > 1 and self.loop >= 0
            found[number] = copied and not (feeds is not None and self.transposed(*feeds))
        return found

    @cached_property
    def converted(self) -> bool:
        """Whether an operand is computed of what the main loop loads."""
        return any(side.access >= 0 and not side.direct for one in self.products for side in one.dot.operands)

    @cached_property
    def scaled(self) -> bool:
        """Whether products of what was loaded are added up outside of tensor cores, such as those of scaled blocks."""
        work = sum(one.count for one in self.program.operations if one.loop == self.loop and one.dtype == "f32")
        sums = sum(prod(one.dot.shape[:2]) * one.count for one in self.products)
        return work / self.times >= sums > 0 and not self.chained and not self.converted

    @cached_property
    def local_bytes(self) -> int:
        """Bytes of local memory that a program needs."""
        if self.program.resources is not None:
            return self.program.resources.local_bytes
        accesses, earlier = self.program.accesses, max(self.stages - 1, 1)
        beside = [number for number in self.ahead if number not in self.fed]
        total = sum(_size(accesses[number]) * earlier for number in beside if self.ahead[number])
        passing = 0
        for one in self.products:
            m, n, k = one.dot.shape
            alone = 0
            for side, operand in enumerate(one.dot.operands):
                number = operand.access
                if number >= 0 and self.fed[number] == (one, side):
                    if self.ahead.get(number):
                        # wgmma reads a buffer while the next is filled; else registers hold what is being multiplied.
                        total += _size(accesses[number]) * (self.stages if one.groups and operand.direct else earlier)
                    elif accesses[number].loop != self.loop:
                        total += _size(accesses[number])
                    elif operand.direct:
                        alone += _size(accesses[number])
                # What is computed goes through local memory where other sub-groups, or wgmma, need it; what comes of
                # one tile alone is computed in place.
                through = one.columns > 1 and not one.groups if number < 0 else beside or (one.groups and side)
                if not operand.direct and through:
                    total += (n if side else m) * k * one.itemsize
            # Buffers of one step pass from a product to the next.
            passing = max(passing, alone)
        # Factors of a product's rows and columns go to the sub-groups that need them, unless these load them all.
        flat = [accesses[number] for number in beside if len(accesses[number].shape) == 1 and not self.ahead[number]]
        scratch = 0
        if self.products and not self.converted:
            scratch = max((_size(one) for one in flat if prod(one.shape) >= self.items), default=0)
        return int(total + passing + scratch)
