"""Accesses of a nest, grouped into streams that move alike."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError
from perflex.features.cpu.divided_loops import OUTER_SUFFIX, divided_dimension
from perflex.features.cpu.nests import Axis, Step, Stream, StreamGroup
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perflex.features.cpu.nests import Loop
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
    from perflex.features.scop.address_maps import AccessMap, Column, Conjunction, Row
    from perflex.features.scop.scop import Scop, Statement

# Elements of one row that are nearer than this lie in the same cache line.
_NEAR_BYTES = 64
# In place of every size, large and prime: only the order of strides matters.
_SAMPLE = 1009


@dataclass(frozen=True)
class _Subscript:
    """An access: per axis, its steps, constant offset, and what else is added to the index."""

    access: AccessMap
    steps: tuple[tuple[Step, ...], ...]
    offset: tuple[int, ...]
    rest: tuple[object, ...]


def groups_of(
    scop: Scop, loops: Sequence[Loop], members: Iterable[tuple[Statement, Sequence[Conjunction]]]
) -> tuple[StreamGroup, ...]:
    """Return the groups of accesses of statements inside the same loops.

    Raises
    ------
    UnsupportedKernelError
        An access is too irregular.
    """
    alike: dict[object, list[_Subscript]] = defaultdict(list)
    for statement, pieces in members:
        columns = _columns(scop, statement, loops)
        for subscript in _subscripts(scop, pieces, loops, columns):
            parity = _parity(scop, subscript)
            alike[subscript.access.array, subscript.steps, subscript.rest, parity].append(subscript)
    return tuple(_group(scop, loops, found) for found in alike.values())


def dimension_names(scop: Scop, statement: Statement) -> list[str]:
    """Return the name of each instance dimension of a statement.

    Raises
    ------
    UnsupportedKernelError
        Its schedule names fewer loops than its domain has.
    """
    launch = scop.launches[statement.launch]
    groups = [f"gid{axis}" for axis in range(len(launch.groups))]
    names = [*groups, *(f"lid{axis}" for axis in range(len(launch.items))), *statement.loops]
    dims = int(statement.domain.dim(isl.dim_type.set))
    if dims > len(names):
        msg = (
            f"the domain of statement {statement.name!r} has {dims} dimensions, of which its schedule and launch name "
            f"{len(names)}; name its loops in the schedule"
        )
        raise UnsupportedKernelError(msg, kernel=scop.name, statement=statement.name)
    return names


def _columns(scop: Scop, statement: Statement, loops: Sequence[Loop]) -> dict[int, list[tuple[int, int]]]:
    """Return, for each instance dimension, the loops that move it, and by how much: the innermost loop first."""
    places = {loop.name: position for position, loop in enumerate(loops)}
    columns = {}
    for dimension, name in enumerate(dimension_names(scop, statement)):
        columns[dimension] = [(places[name], 1)]
        inner = "lane" if name == "lid0" and "lane" in places else name
        outer = name if inner == "lane" else f"{name}{OUTER_SUFFIX}"
        if outer in places and (inner == "lane" or outer != name):
            width = int(str(loops[places[inner]].extent))
            columns[dimension] = [(places[inner], 1), (places[outer], width)]
    return columns


def _subscripts(
    scop: Scop,
    pieces: Sequence[Conjunction],
    loops: Sequence[Loop],
    columns: dict[int, list[tuple[int, int]]],
) -> list[_Subscript]:
    """Return the accesses of a statement; one that cases of its domain repeat is one."""
    by_access: dict[tuple[str, str], list[dict[_Subscript, int]]] = defaultdict(list)
    for piece in pieces:
        here: dict[tuple[str, str], dict[_Subscript, int]] = defaultdict(lambda: defaultdict(int))
        for access in piece.accesses:
            subscript = _subscript(scop, piece, access, loops, columns)
            here[access.direction, access.text][subscript] += 1
        for key, found in here.items():
            by_access[key].append(dict(found))
    result = []
    for (_, text), cases in by_access.items():
        if any(case != cases[0] for case in cases):
            msg = f"access {text} of kernel {scop.name!r} is defined by cases, for which no reuse distance is known"
            raise UnsupportedKernelError(msg, kernel=scop.name, access=text)
        result += [subscript for subscript, times in cases[0].items() for _ in range(times)]
    return result


def _subscript(
    scop: Scop,
    piece: Conjunction,
    access: AccessMap,
    loops: Sequence[Loop],
    columns: dict[int, list[tuple[int, int]]],
) -> _Subscript:
    steps, offsets, rests = [], [], []
    used: set[int] = set()
    for row, denominator in access.axes:
        if denominator != 1 or any(_irregular(piece, loops, columns, column) for column, _ in row):
            msg = f"access {access.text} of kernel {scop.name!r} has // or % of a loop; no reuse is known"
            raise UnsupportedKernelError(msg, kernel=scop.name, access=access.text)
        moved = _steps(piece, row, loops, columns)
        # A diagonal touches no box, and windows are boxes.
        if used & {step.loop for step in moved}:
            msg = f"access {access.text} of kernel {scop.name!r} has a loop in two subscripts; no reuse is known"
            raise UnsupportedKernelError(msg, kernel=scop.name, access=access.text)
        used |= {step.loop for step in moved}
        steps.append(moved)
        offsets.append(sum(value for column, value in row if column == ("c", 0)))
        rests.append(
            tuple(
                (piece.floors[column[1]] if column[0] == "f" else column, value)
                for column, value in row
                if column[0] == "p" or (column[0] == "f" and not _moves(piece, column))
            )
        )
    return _Subscript(access, tuple(steps), tuple(offsets), tuple(rests))


def _moves(piece: Conjunction, column: Column) -> bool:
    row = piece.floors[column[1]].row
    return any(inner[0] == "d" or (inner[0] == "f" and _moves(piece, inner)) for inner, _ in row)


def _irregular(
    piece: Conjunction, loops: Sequence[Loop], columns: dict[int, list[tuple[int, int]]], column: Column
) -> bool:
    """Return whether an index has a part that no loop moves evenly."""
    if column[0] != "f" or not _moves(piece, column):
        return False
    dimension = divided_dimension(piece.floors[column[1]])
    return dimension is None or not loops[columns[dimension][-1][0]].name.endswith(OUTER_SUFFIX)


def _steps(
    piece: Conjunction, row: Row, loops: Sequence[Loop], columns: dict[int, list[tuple[int, int]]]
) -> tuple[Step, ...]:
    moved: dict[int, int] = defaultdict(int)
    for column, value in row:
        if column[0] == "d":
            for loop, factor in columns[column[1]]:
                moved[loop] += value * factor
        elif column[0] == "f" and _moves(piece, column):
            dimension = divided_dimension(piece.floors[column[1]])
            if dimension is not None:
                moved[columns[dimension][-1][0]] += value
    steps = [Step(loop, factor) for loop, factor in moved.items() if factor]
    factors = {loops[step.loop].name: step.factor for step in steps}
    for position, step in enumerate(steps):
        around = loops[step.loop]
        unit = factors.get("lane", factors.get(around.base)) if around.base == "lid0" else factors.get(around.base)
        # Groups follow one another without gaps: the step is the work-group's extent, whatever that is.
        if (
            around.part == "outer"
            and unit is not None
            and around.block is not None
            and step.factor == unit * around.block
        ):
            steps[position] = Step(step.loop, unit, around.base)
    return tuple(sorted(steps, key=lambda step: (step.scale is not None, abs(step.factor), -step.loop)))


def _near(scop: Scop, subscript: _Subscript, axis: int) -> bool:
    stride = subscript.access.strides[axis]
    itemsize = scop.array(subscript.access.array).itemsize
    return not stride.parameters and int(stride.evaluate({})) * itemsize < _NEAR_BYTES


def _parity(scop: Scop, subscript: _Subscript) -> tuple[int, ...]:
    """Return what keeps accesses apart for ever: on far axes, the offset modulo the smallest step."""
    found = []
    for axis, steps in enumerate(subscript.steps):
        if _near(scop, subscript, axis):
            found.append(0)
        else:
            found.append(subscript.offset[axis] % abs(steps[0].factor) if steps else subscript.offset[axis])
    return tuple(found)


def _group(scop: Scop, loops: Sequence[Loop], found: Sequence[_Subscript]) -> StreamGroup:
    first = found[0]
    array = scop.array(first.access.array)
    # Of equal strides (an axis of extent 1) the last axis counts as the contiguous one.
    order = sorted(range(len(first.steps)), key=lambda axis: (_typical(first.access.strides[axis]), -axis))
    counts: dict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0])
    for subscript in found:
        offset = tuple(subscript.offset[axis] for axis in order)
        counts[offset][subscript.access.direction == "store"] += 1
    axes = tuple(Axis(first.access.strides[axis], first.steps[axis]) for axis in order)
    found_streams = [Stream(offset, *count) for offset, count in counts.items()]
    streams, gaps, halo = ordered_streams(axes, found_streams, len(loops))
    # A part that depends on sizes may begin a row anywhere in a line.
    placed = array.alignment % _NEAR_BYTES == 0 and not any(first.rest)
    return StreamGroup(
        array.name,
        array.space,
        array.itemsize,
        axes,
        streams,
        gaps,
        halo,
        None,
        first.access.text,
        begins=_begins(axes, loops) if placed else None,
        near=_near_bytes(axes, array.itemsize),
    )


def _begins(axes: Sequence[Axis], loops: Sequence[Loop]) -> int | None:
    begins = 0
    for step in axes[0].steps if axes else ():
        first = loops[step.loop].first
        # Steps in blocks have a factor that is known later, which only 0 does not need.
        if first is None or (first and step.scale is not None):
            return None
        begins += step.factor * first
    return begins


def _near_bytes(axes: Sequence[Axis], itemsize: int) -> int | None:
    if not axes or not axes[0].steps or axes[0].stride.parameters or axes[0].steps[0].scale is not None:
        return None
    return abs(axes[0].steps[0].factor) * int(axes[0].stride.evaluate({})) * itemsize


def ordered_streams(
    axes: Sequence[Axis], streams: Sequence[Stream], loops: int
) -> tuple[tuple[Stream, ...], tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Return streams in the order in which they come to an element, the gaps between them, and the halo per axis.

    Each offset occurs once among the streams; `loops` is the number of loops around them.
    """
    times = {stream.offset: _time(axes, stream.offset, loops) for stream in streams}
    ordered = sorted(streams, key=lambda stream: (times[stream.offset], stream.offset), reverse=True)
    gaps = tuple(
        tuple(one - two for one, two in zip(times[before.offset], times[after.offset], strict=True))
        for before, after in pairwise(ordered)
    )
    halo = tuple(
        max(stream.offset[axis] for stream in streams) - min(stream.offset[axis] for stream in streams)
        for axis in range(len(axes))
    )
    return tuple(ordered), gaps, halo


def _typical(stride: QuasiPolynomial) -> float:
    return float(stride.evaluate(dict.fromkeys(stride.parameters, _SAMPLE)))


def _time(axes: Sequence[Axis], offset: Sequence[int], loops: int) -> tuple[int, ...]:
    """Return by how many iterations of each loop an offset is ahead."""
    ahead = [0] * loops
    for axis, value in zip(axes, offset, strict=True):
        if axis.steps:
            step = axis.steps[0]
            ahead[step.loop] = value // step.factor if step.factor > 0 else -(value // -step.factor)
    return tuple(ahead)


def halos_of(loops: Sequence[Loop], groups: Iterable[StreamGroup]) -> tuple[int, ...]:
    """Return the largest halo along each loop, in iterations."""
    halos = [0] * len(loops)
    for group in groups:
        for axis, halo in zip(group.axes, group.halo, strict=True):
            if axis.steps:
                loop = axis.steps[0].loop
                halos[loop] = max(halos[loop], halo // abs(axis.steps[0].factor))
    return tuple(halos)
