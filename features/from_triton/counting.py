"""From TTIR and a launch to a tile program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from msgspec import structs

from perflex.errors import UnsupportedKernelError
from perflex.features.from_triton.interpreter import Interpreter, Launch
from perflex.features.from_triton.slices import Source, needed_values, operand_sources, written_arrays
from perflex.features.from_triton.tallies import AccessTally, Tally
from perflex.features.from_triton.ttir import Function, parse_ttir
from perflex.features.from_triton.values import TooLargeError
from perflex.features.tiles.sharing import NEIGHBOURS, shared_tiles
from perflex.features.tiles.tile_program import TileAccess, TileDot, TileLoop, TileOperand, TileOperations, TileProgram

# So many times more programs stand for all where data decide what they do, such as which of them have nothing to do.
_BY_DATA = 16
# Programs that are interpreted together.
_TOGETHER = 64
# Tile programs of one TTIR.
_MOST_KEPT = 256
# Steps of sequences that fill intervals evenly (powers of the reciprocal of the root of x**4 = x + 1).
_IRRATIONAL = np.array([0.8191725134, 0.6710436067, 0.5497004779])


@dataclass(frozen=True)
class TileCode:
    """The TTIR of a kernel; names of its arguments, which TTIR without locations lacks."""

    text: str
    names: tuple[str, ...] = ()

    @cached_property
    def parsed(self) -> tuple[Function, dict[str, Function]]:
        """The kernel, and all functions by name."""
        kernel, functions = parse_ttir(self.text)
        if self.names and len(self.names) != len(kernel.names):
            msg = f"kernel {kernel.name!r} has {len(kernel.names)} arguments in its TTIR, not {len(self.names)}"
            raise UnsupportedKernelError(msg)
        return replace(kernel, names=self.names or kernel.names), functions

    @cached_property
    def _programs(self) -> dict[Any, TileProgram]:
        return {}

    @cached_property
    def _vectors(self) -> dict[Any, int]:
        return {}

    @cached_property
    def _needed(self) -> set[int]:
        return needed_values(self.parsed[1])

    @cached_property
    def _written(self) -> set[str]:
        return written_arrays(*self.parsed)

    @cached_property
    def _sources(self) -> dict[int, tuple[tuple[Source, ...], tuple[Source, ...]]]:
        return operand_sources(self.parsed[1])

    def program(
        self, launch: Launch, *, warps: int = 4, stages: int = 3, most: int | None = None, order: int = NEIGHBOURS
    ) -> TileProgram:
        """Return the tile program of a launch.

        Parameters
        ----------
        launch
            What the kernel is called with.
        warps, stages
            Of the configuration; counts do not depend on them.
        most
            Programs to interpret at most, spread over the grid; the others are taken to be as these on average.
            None for all: counts are exact.
        order
            Consecutive programs of which is counted how many different tiles they touch.

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
        found = self._programs.get(key)
        if found is None:
            if most is not None and launch.arrays:
                most *= _BY_DATA
            chosen: Sequence[int] | np.ndarray[Any, Any] = range(count)
            if most is not None and most < count:
                chosen = _spread(launch.grid, most)
            tally, neighbours = Tally(), Tally(sharing=True)
            self._run(launch, chosen, tally)
            near = min(count, order)
            first = (count - near) // 2
            self._run(launch, np.arange(first, first + near), neighbours)
            # Vectors are the same at all sizes; accesses that no earlier size came to are added.
            if tally.accesses.keys() - self._vectors.keys():
                self._vectors.update((where, one.vector) for where, one in self._compiled(launch).accesses.items())
            for where, access in tally.accesses.items():
                access.vector = self._vectors.get(where, access.vector)
            found = _program(self.parsed[0].name, launch, (tally, neighbours), count / len(chosen), self._sources)
            if len(self._programs) >= _MOST_KEPT:
                self._programs.clear()
            self._programs[key] = found
        return structs.replace(found, warps=warps, stages=stages)

    def _compiled(self, launch: Launch) -> Tally:
        """Return the accesses with their vectors as Triton chooses them, which knows no numbers of the launch.

        It knows which arguments are multiples of 16; the others are odd here, as are numbers of programs.
        """
        kernel, tally = self.parsed[0], Tally(vectors=True)
        known = {name for name, divisible in zip(kernel.names, kernel.divisible, strict=True) if divisible}
        arguments = {
            # Sizes and strides of descriptors are checked by the hardware.
            name: value | 1 if type(value) is int and name not in known and "." not in name else value
            for name, value in launch.arguments.items()
        }
        x, y, z = (max(extent, 2) for extent in launch.grid)
        places = [(1, 1, 1), tuple(extent // 2 | 1 for extent in launch.grid), tuple(one - 1 for one in launch.grid)]
        programs = np.unique([i + x * (j + y * k) for i, j, k in places])
        try:
            self._run(Launch(arguments, launch.arrays, (x, y, z)), programs, tally)
        except UnsupportedKernelError:  # of these numbers, which are not those of the launch
            return Tally()
        return tally

    def _run(self, launch: Launch, programs: Sequence[int] | np.ndarray[Any, Any], tally: Tally) -> None:
        """Interpret programs, as many at once as memory allows."""
        kernel, functions = self.parsed
        start, size, in_order = 0, len(programs) if tally.sharing else _TOGETHER, False
        while start < len(programs):
            part = tally.begun()
            run = Interpreter(kernel, functions, launch, programs[start : start + size])
            run.tally, run.in_order, run.first_only, run.compiled = part, in_order, tally.sharing, tally.vectors
            try:
                run.needed = self._needed
                # What it stores there itself is not what the user gave.
                run.arrays = {name: held for name, held in launch.arrays.items() if name not in self._written}
                run.run()
            except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
                msg = f"kernel {kernel.name!r}: line {run.line} of its TTIR is not as Triton writes it ({error})"
                raise UnsupportedKernelError(msg) from error
            except TooLargeError:
                if size == 1 and in_order:
                    msg = f"kernel {kernel.name!r}: a tile has too many elements to compute their addresses"
                    raise UnsupportedKernelError(msg) from None
                in_order, size = size == 1, max(1, size // 4)
                continue
            tally.add(part)
            start += size


def _spread(grid: tuple[int, int, int], count: int) -> np.ndarray[Any, Any]:
    """Return numbers of programs: one in each of as many equal parts of each axis, wherever in it.

    At equal distances they would all have the same place within rows, where the work of programs often differs.
    """
    points = np.arange(1, count + 1)[:, None] * _IRRATIONAL % 1
    found, places = np.zeros(count, np.int64), np.argsort(np.argsort(points, axis=0), axis=0)
    places[:, 0] = np.arange(count)
    for axis in (2, 1, 0):
        found = found * grid[axis] + ((places[:, axis] + points[:, axis - 1]) * grid[axis] // count).astype(np.int64)
    return found


def _operand(
    sources: Sequence[Source], k_axis: int, accesses: Sequence[TileAccess], places: Mapping[int, int]
) -> TileOperand:
    """Return where an operand comes from, whose axis k is the first or the second: the largest tile that is loaded."""
    there = [source for source in sources if source.line in places]
    if not there:
        return TileOperand(direct=False)
    source = max(there, key=lambda one: prod(accesses[places[one.line]].shape))
    access = accesses[places[source.line]]
    last = access.axis - (len(access.shape) - 2)
    return TileOperand(
        access=places[source.line],
        direct=source.direct,
        along_k=(last != k_axis) if source.transposed else last == k_axis,
    )


def _access(access: AccessTally, near: AccessTally | None, loop: int, weight: float) -> TileAccess:
    return TileAccess(
        array=access.array,
        direction=access.direction,
        itemsize=access.itemsize,
        shape=access.shape,
        loop=loop,
        executions=access.executions * weight,
        elements=access.elements * weight,
        sectors=access.sectors * weight,
        tiles=access.tiles / max(1, access.programs),
        again=access.again / max(1, access.programs),
        axis=access.axis,
        stride=access.stride,
        vector=access.vector,
        shared=() if near is None or near.first is None else shared_tiles(near.first),
    )


def _program(
    name: str,
    launch: Launch,
    tallies: tuple[Tally, Tally],
    weight: float,
    sources: Mapping[int, tuple[Sequence[Source], Sequence[Source]]],
) -> TileProgram:
    tally, neighbours = tallies
    # Loops stand behind those around them.
    order = sorted(tally.loops, key=lambda place: (len(place[1]), place))
    numbers = {(): -1, **{(*around, line): number for number, (line, around) in enumerate(order)}}
    loops = []
    for line, around in order:
        one = tally.loops[line, around]
        stages = one.attributes.get("tt.num_stages", "").split(" ")[0]
        loops.append(
            TileLoop(
                parent=numbers[around],
                entries=one.entries * weight,
                iterations=one.iterations * weight,
                stages=int(stages) if stages else None,
            )
        )
    accesses = [
        _access(access, neighbours.accesses.get(where), numbers[where[1]], weight)
        for where, access in tally.accesses.items()
    ]
    places = {line: place for place, (line, *_) in enumerate(tally.accesses)}
    dots = [
        TileDot(
            shape=shape,
            types=types,
            operands=(
                _operand(sources[where[0]][0], 1, accesses, places),
                _operand(sources[where[0]][1], 0, accesses, places),
            ),
            loop=numbers[where[1]],
            executions=count * weight,
        )
        for (where, shape, types), count in tally.dots.items()
    ]
    operations = [
        TileOperations(kind=kind, dtype=dtype, loop=numbers[where], count=count * weight)
        for (where, kind, dtype), count in tally.operations.items()
    ]
    return TileProgram(
        name=name, grid=launch.grid, loops=tuple(loops), accesses=tuple(accesses), dots=tuple(dots),
        operations=tuple(operations), exact=weight == 1,
    )  # fmt: skip
