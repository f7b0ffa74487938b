"""Accesses of a nest, grouped into streams that move alike."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError
from perflex.features.cpu.divided_loops import OUTER_SUFFIX
from perflex.features.cpu.nests import Axis, Stream, StreamGroup
from perflex.features.cpu.subscripts import Columns, Subscript, subscript_of, typical
from perflex.features.scop.address_maps import scattered_accesses
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from perflex.features.cpu.nests import Loop
    from perflex.features.scop.address_maps import Conjunction
    from perflex.features.scop.scop import Scop, Statement

# Elements of one row that are nearer than this lie in the same cache line.
_NEAR_BYTES = 64


def groups_of(
    scop: Scop, loops: Sequence[Loop], members: Sequence[tuple[Statement, Sequence[Conjunction]]]
) -> tuple[StreamGroup, ...]:
    """Return the groups of accesses of statements inside the same loops, each with what is not followed exactly."""
    alike: dict[object, list[Subscript]] = defaultdict(list)
    for statement, pieces in members:
        columns = _columns(scop, statement, loops)
        for subscript in _subscripts(pieces, loops, columns):
            parity = _parity(scop, subscript)
            alike[subscript.access.array, subscript.steps, subscript.rest, parity].append(subscript)
    regular = [_group(scop, loops, found) for found in alike.values()]
    return (*regular, *_scattered_groups(scop, [statement for statement, _ in members]))


def _scattered_groups(scop: Scop, statements: Iterable[Statement]) -> Iterator[StreamGroup]:
    """Return a group for each text of an access that data decide: reading and writing it is one."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    scattered = scattered_accesses(scop)
    for statement in statements:
        for access in scattered.get(statement.name, ()):
            found[access.array, access.text or access.array][access.direction == "store"] += 1
    for (name, text), counts in found.items():
        array = scop.array(name)
        note = "may be any element, taken as drawn at random"
        streams = (Stream((), *counts),)
        yield StreamGroup(name, array.space, array.itemsize, (), streams, (), (), None, text, scattered=True, note=note)


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


def _columns(scop: Scop, statement: Statement, loops: Sequence[Loop]) -> Columns:
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
        columns[dimension] = [(place, width * loops[place].stride) for place, width in columns[dimension]]
    return columns


def _subscripts(
    pieces: Sequence[Conjunction],
    loops: Sequence[Loop],
    columns: Columns,
) -> list[Subscript]:
    """Return the accesses of a statement; one that cases of its domain repeat is one.

    Of an access that differs from case to case, that which most loops move counts for all.
    """
    by_access: dict[tuple[str, str], list[tuple[int, dict[Subscript, int]]]] = defaultdict(list)
    for piece in pieces:
        here: dict[tuple[str, str], dict[Subscript, int]] = defaultdict(lambda: defaultdict(int))
        for access in piece.accesses:
            subscript = subscript_of(piece, access, loops, columns)
            here[access.direction, access.text][subscript] += 1
        for key, found in here.items():
            by_access[key].append((-len(piece.equalities), dict(found)))
    result = []
    for cases in by_access.values():
        _, chosen = max(cases, key=lambda case: (_moved_by(case[1]), case[0]))
        note = "is defined by cases" if any(case != chosen for _, case in cases) else ""
        for subscript, times in chosen.items():
            noted = replace(subscript, note=" and ".join(filter(None, (subscript.note, note))))
            result += [noted] * times
    return result


def _moved_by(case: dict[Subscript, int]) -> int:
    return sum(len(steps) for subscript in case for steps in subscript.steps)


def _near(scop: Scop, subscript: Subscript, axis: int) -> bool:
    stride = subscript.access.strides[axis]
    itemsize = scop.array(subscript.access.array).itemsize
    return not stride.parameters and int(stride.evaluate({})) * itemsize < _NEAR_BYTES


def _parity(scop: Scop, subscript: Subscript) -> tuple[int, ...]:
    """Return what keeps accesses apart for ever: on far axes, the offset modulo the smallest step."""
    found = []
    for axis, steps in enumerate(subscript.steps):
        if _near(scop, subscript, axis):
            found.append(0)
        else:
            step = max(1, round(abs(steps[0].factor))) if steps else 0
            found.append(subscript.offset[axis] % step if step else subscript.offset[axis])
    return tuple(found)


def _group(scop: Scop, loops: Sequence[Loop], found: Sequence[Subscript]) -> StreamGroup:
    first = found[0]
    array = scop.array(first.access.array)
    # Of equal strides (an axis of extent 1) the last axis counts as the contiguous one.
    order = sorted(range(len(first.steps)), key=lambda axis: (typical(first.access.strides[axis]), -axis))
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
        note=next((one.note for one in found if one.note), ""),
    )


def _begins(axes: Sequence[Axis], loops: Sequence[Loop]) -> int | None:
    begins = 0
    for step in axes[0].steps if axes else ():
        first = loops[step.loop].first
        # Steps in blocks have a factor that is known later, which only 0 does not need.
        if first is None or (first and step.scale is not None):
            return None
        begins += round(step.factor * first)
    return begins


def _near_bytes(axes: Sequence[Axis], itemsize: int) -> int | None:
    if not axes or not axes[0].steps or axes[0].stride.parameters or axes[0].steps[0].scale is not None:
        return None
    return round(abs(axes[0].steps[0].factor) * int(axes[0].stride.evaluate({})) * itemsize)


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


def _time(axes: Sequence[Axis], offset: Sequence[int], loops: int) -> tuple[int, ...]:
    """Return by how many iterations of each loop an offset is ahead."""
    ahead = [0] * loops
    for axis, value in zip(axes, offset, strict=True):
        if axis.steps:
            step = axis.steps[0]
            ahead[step.loop] = int(value // step.factor if step.factor > 0 else -(value // -step.factor))
    return tuple(ahead)


def halos_of(loops: Sequence[Loop], groups: Iterable[StreamGroup]) -> tuple[int, ...]:
    """Return the largest halo along each loop, in iterations."""
    halos = [0] * len(loops)
    for group in groups:
        for axis, halo in zip(group.axes, group.halo, strict=True):
            if axis.steps:
                loop = axis.steps[0].loop
                halos[loop] = max(halos[loop], int(halo // abs(axis.steps[0].factor)))
    return tuple(halos)
