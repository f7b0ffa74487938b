"""From TTIR and a launch to a tile program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from msgspec import structs

from perflex.errors import UnsupportedKernelError
from perflex.features.from_triton.interpreter import Interpreter, Launch
from perflex.features.from_triton.slices import (
    Source,
    needed_values,
    operand_sources,
    read_arrays,
    techniques,
    written_arrays,
)
from perflex.features.from_triton.tallies import Tally
from perflex.features.from_triton.ttir import Function, parse_ttir
from perflex.features.from_triton.values import TooLargeError
from perflex.features.tiles.sharing import NEIGHBOURS, shared_tiles
from perflex.features.tiles.tile_program import TileAccess, TileDot, TileLoop, TileOperand, TileOperations, TileProgram

# Numbers of programs.
_Programs = Sequence[int] | np.ndarray[Any, Any]
# So many times more programs stand for all where data decide what they do, such as which of them have nothing to do.
_BY_DATA = 16
# Programs that are interpreted together.
_TOGETHER = 64
# Tile programs of one TTIR.
_MOST_KEPT = 256
# Steps of sequences that fill intervals evenly (powers of the reciprocal of the root of x**4 = x + 1), of z, x and y.
_IRRATIONAL = np.array([0.5497004779, 0.8191725134, 0.6710436067])


@dataclass(frozen=True)
class TileCode:
    """The TTIR of a kernel; names of its arguments, which TTIR without locations lacks."""

    text: str
    names: tuple[str, ...] = ()
    _programs: dict[Any, TileProgram] = field(default_factory=dict, init=False, repr=False, compare=False)
    # What compiled code has, whether it runs or not: its loops and products, and vectors and rows of its accesses.
    _has: Tally = field(default_factory=Tally, init=False, repr=False, compare=False)

    @cached_property
    def parsed(self) -> tuple[Function, dict[str, Function]]:
        """The kernel, and all functions by name."""
        kernel, functions = parse_ttir(self.text)
        if self.names and len(self.names) != len(kernel.names):
            msg = f"kernel {kernel.name!r} has {len(kernel.names)} arguments in its TTIR, not {len(self.names)}"
            raise UnsupportedKernelError(msg)
        return replace(kernel, names=self.names or kernel.names), functions

    @cached_property
    def _written(self) -> set[str]:
        return written_arrays(*self.parsed)

    @cached_property
    def _techniques(self) -> tuple[str, ...]:
        return techniques(self.parsed[1])

    @cached_property
    def read(self) -> set[str]:
        """Arguments whose contents decide addresses, masks, conditions or bounds, less those that it changes itself."""
        return read_arrays(*self.parsed) - self._written

    @cached_property
    def _known(self) -> tuple[set[int], dict[int, tuple[tuple[Source, ...], tuple[Source, ...]]]]:
        # Values that must be known, and where operands of products come from.
        return needed_values(self.parsed[1]), operand_sources(self.parsed[1])

    def program(
        self, launch: Launch, *, warps: int = 4, stages: int = 3, most: int | None = None, order: int = NEIGHBOURS
    ) -> TileProgram:
        """Return the tile program of a launch; counts do not depend on `warps` and `stages`.

        At most `most` programs are interpreted, spread over the grid; the others are taken to be as these on average.
        None stands for all: counts are exact. Of `order` consecutive programs it is counted what tiles they share.

        Raises
        ------
        UnsupportedKernelError
            The text is no TTIR, holds what perflex cannot interpret, or data decide what must be known.
        """
        count = launch.programs
        if count < 1 or max(launch.grid) >= 1 << 31:
            msg = f"kernel {self.parsed[0].name!r}: the grid {launch.grid} has no programs, or too many"
            raise UnsupportedKernelError(msg)
        # Configurations of equal tiles are one program.
        contents = tuple((name, held.shape, held.tobytes()) for name, held in sorted(launch.arrays.items()))
        key = (tuple(sorted(launch.arguments.items())), launch.grid, hash(contents), most, order)
        if key not in self._programs:
            most = count if most is None else most * (_BY_DATA if launch.arrays else 1)
            chosen: _Programs = _spread(launch.grid, most) if most < count else range(count)
            tally = self._run(launch, chosen, Tally())
            near = min(count, order)
            first = (count - near) // 2
            neighbours = self._run(launch, range(first, first + near), Tally(sharing=True))
            # Code is the same at all sizes; accesses that no earlier size came to are added.
            if tally.accesses.keys() - self._has.widths.keys():
                found = self._compiled(launch)
                for name in ("loops", "dots", "widths", "rows"):
                    getattr(self._has, name).update(getattr(found, name))
            if len(self._programs) >= _MOST_KEPT:
                self._programs.clear()
            self._programs[key] = self._put_together(launch, tally, neighbours, count / len(chosen))
        return structs.replace(self._programs[key], warps=warps, stages=stages)

    def _compiled(self, launch: Launch) -> Tally:
        """Return what is in the code, with vectors as Triton chooses them, which knows no numbers of the launch.

        It knows which arguments are multiples of 16; the others are odd here, as are numbers of programs.
        """
        kernel = self.parsed[0]
        known = {name for name, divisible in zip(kernel.names, kernel.divisible, strict=True) if divisible}
        arguments = {
            # Sizes and strides of descriptors are checked by the hardware.
            name: value | 1 if type(value) is int and name not in known and "." not in name else value
            for name, value in launch.arguments.items()
        }
        x, y, z = (max(extent, 2) for extent in launch.grid)
        places = np.array([(1, 1, 1), [extent // 2 | 1 for extent in launch.grid], [one - 1 for one in launch.grid]])
        programs = np.unique(places @ (1, x, x * y))
        try:
            return self._run(Launch(arguments, launch.arrays, (x, y, z)), programs, Tally(vectors=True))
        except UnsupportedKernelError:  # of these numbers, which are not those of the launch
            return Tally()

    def _run(self, launch: Launch, programs: _Programs, tally: Tally) -> Tally:
        """Interpret programs, as many at once as memory allows; return what is tallied then."""
        kernel, functions = self.parsed
        start, size, in_order = 0, len(programs) if tally.sharing else _TOGETHER, False
        while start < len(programs):
            run = Interpreter(kernel, functions, launch, programs[start : start + size])
            run.in_order, run.first_only, run.compiled = in_order, tally.sharing, tally.vectors
            run.tally = tally.begun()
            try:
                run.needed = self._known[0]
                if launch.arrays:  # what it stores there itself is not what the user gave
                    run.arrays = {name: held for name, held in launch.arrays.items() if name not in self._written}
                tally = run.run()
                start += size
            except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
                msg = f"kernel {kernel.name!r}: line {run.line} of its TTIR is not as Triton writes it ({error})"
                raise UnsupportedKernelError(msg) from error
            except TooLargeError:
                if size == 1 and in_order:
                    msg = f"kernel {kernel.name!r}: a tile has too many elements to compute their addresses"
                    raise UnsupportedKernelError(msg) from None
                in_order, size = size == 1, max(1, size // 4)
        return tally

    def _with_idle_loops(self, tally: Tally) -> Tally:
        """Return the tally with loops that never run, and what is in them, none of which is done."""
        idle = {(*around, line) for (line, around), counts in tally.loops.items() if not counts[1]}

        def within(loops: tuple[int, ...]) -> bool:
            return any(loops[:depth] in idle for depth in range(1, len(loops) + 1))

        has = self._has
        loops = {key: (0, 0, counts[2]) for key, counts in has.loops.items() if within(key[1])}
        accesses = {key: np.zeros(6) for key in has.widths if within(key.loops)}
        dots = Counter({**tally.dots, **{key: 0 for key in has.dots if within(key[1])}})
        return replace(
            tally, loops=tally.loops | loops, accesses=tally.accesses | accesses, dots=dots,
            widths=tally.widths | has.widths, rows=has.rows | tally.rows,
        )  # fmt: skip

    def _put_together(self, launch: Launch, tally: Tally, neighbours: Tally, weight: float) -> TileProgram:
        """Return the tile program of which programs were tallied that stand for `weight` times as many."""
        tally = self._with_idle_loops(tally)
        # Loops stand behind those around them.
        order = sorted(tally.loops.items(), key=lambda item: (len(item[0][1]), item[0]))
        numbers = {(): -1, **{(*around, line): number for number, ((line, around), _) in enumerate(order)}}
        loops = tuple(
            TileLoop(parent=numbers[around], entries=entries * weight, iterations=iterations * weight, stages=stages)
            for (_, around), (entries, iterations, stages) in order
        )
        accesses = []
        for key, counts in tally.accesses.items():
            executions, elements, sectors = (counts[:3] * weight).tolist()
            tiles, again = (counts[3:5] / max(1, counts[5])).tolist()
            axis, stride = tally.rows[key]
            accesses.append(TileAccess(
                array=key.array, direction=key.direction, itemsize=key.itemsize, shape=key.shape,
                loop=numbers[key.loops], executions=executions, elements=elements, sectors=sectors, tiles=tiles,
                again=again, axis=axis, stride=stride, vector=tally.widths[key],
                shared=shared_tiles(np.concatenate(neighbours.first[key])) if key in neighbours.first else (),
            ))  # fmt: skip
        loads = {key.line: (place, accesses[place]) for place, key in enumerate(tally.accesses)}
        dots = []
        for (line, around, shape, types), count in tally.dots.items():
            left, right = self._known[1][line]
            operands = _operand(left, 1, loads), _operand(right, 0, loads)
            dots.append(TileDot(
                shape=shape, types=types, operands=operands, loop=numbers[around], executions=count * weight,
            ))  # fmt: skip
        operations = tuple(
            TileOperations(kind=kind, dtype=dtype, loop=numbers[around], count=count * weight)
            for (around, kind, dtype), count in tally.operations.items()
        )
        return TileProgram(
            name=self.parsed[0].name, grid=launch.grid, loops=loops, accesses=tuple(accesses), dots=tuple(dots),
            operations=operations, techniques=self._techniques, exact=weight == 1,
        )  # fmt: skip


def _spread(grid: tuple[int, int, int], count: int) -> np.ndarray[Any, Any]:
    """Return numbers of programs: one in each of as many equal parts of each axis, wherever in it.

    At equal distances they would all have the same place within rows, where the work of programs often differs.
    """
    places = np.arange(count)
    points = (places[:, None] + 1) * _IRRATIONAL % 1
    parts = np.argsort(np.argsort(np.roll(points, -1, axis=1), axis=0), axis=0)
    parts[:, 0] = places
    x, y, _ = grid
    return np.asarray(((parts + points) * grid // count).astype(np.int64) @ (1, x, x * y))


def _operand(sources: Sequence[Source], k_axis: int, loads: Mapping[int, tuple[int, TileAccess]]) -> TileOperand:
    """Return where an operand comes from, whose axis k is the first or the second: the largest tile that is loaded."""
    there = [(*loads[source.line], source) for source in sources if source.line in loads]
    if not there:
        return TileOperand(direct=False)
    place, access, source = max(there, key=lambda one: prod(one[1].shape))
    along_k = access.axis == len(access.shape) - 2 + k_axis
    return TileOperand(access=place, direct=source.direct, along_k=along_k != source.transposed)
