"""Accesses of a nest, grouped into streams that move alike."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from perflex.errors import UnsupportedKernelError
from perflex.features.cpu.nests import LANE, Axis, Loop, Nest, Nests, Step, Stream, StreamGroup
from perflex.features.cpu.subscripts import OUTER_SUFFIX, Columns, Subscript, subscript_of, typical
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.address_maps import Conjunction, scattered_accesses
from perflex.features.scop.scop import Scop, Statement

# Elements of one row that are nearer than this lie in the same cache line.
_NEAR_BYTES = 64


def groups_of(
    scop: Scop, loops: Sequence[Loop], members: Sequence[tuple[int, Sequence[Conjunction]]]
) -> tuple[StreamGroup, ...]:
    """Return the groups of accesses of statements in the same loops, by place, with what is not followed exactly."""
    alike: dict[object, list[Subscript]] = defaultdict(list)
    for place, pieces in members:
        names = own_names_of(scop, scop.statements[place])
        for subscript in _subscripts(pieces, loops, _columns(names, loops), names):
            parity = _parity(scop, subscript)
            alike[subscript.access.array, subscript.steps, subscript.rest, parity].append(subscript)
    regular = [_group(scop, loops, near) for found in alike.values() for near in _meeting(scop, loops, found)]
    return (*regular, *_scattered_groups(scop, [place for place, _ in members]))


def _meeting(scop: Scop, loops: Sequence[Loop], found: Sequence[Subscript]) -> list[list[Subscript]]:
    """Return accesses in parts that never meet: rows written side by side, such as ``c[i]`` and ``c[i + 512]``.

    They are rows of one axis, further apart than all loops reach along it, and not in one cache line.
    """
    steps = found[0].steps
    if len(steps) != 1 or any(loops[step.loop].extent.parameters for step in steps[0]):
        return [list(found)]
    # Groups that follow one another along the axis: their loop has the extent of all work-items, and stands for theirs.
    joined = {step.scale for step in steps[0] if step.scale is not None}
    inside = joined | ({LANE} if "lid0" in joined else set())
    reach = 1 + sum(
        abs(step.factor) * (float(loops[step.loop].extent.evaluate({})) - 1)
        for step in steps[0]
        if step.scale is not None or loops[step.loop].base not in inside
    )
    apart = max(reach, _NEAR_BYTES / scop.array(found[0].access.array).itemsize)
    parts: list[list[Subscript]] = []
    for subscript in sorted(found, key=lambda one: one.offset):
        if not parts or subscript.offset[0] - parts[-1][-1].offset[0] >= apart:
            parts.append([])
        parts[-1].append(subscript)
    return parts


def _scattered_groups(scop: Scop, places: Iterable[int]) -> Iterator[StreamGroup]:
    """Return a group for each text of an access that data decide: reading and writing it is one."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    scattered = scattered_accesses(scop)
    for place in places:
        for access in scattered.get(place, ()):
            found[access.array, access.text or access.array][access.direction == "store"] += 1
    for (name, text), counts in found.items():
        array = scop.array(name)
        note = "may be any element, taken as drawn at random"
        streams = (Stream((), *counts),)
        yield StreamGroup(name, array.space, array.itemsize, (), streams, (), (), None, text, scattered=True, note=note)


def own_names_of(scop: Scop, statement: Statement) -> list[str]:
    """Return names of a statement's instance dimensions that tell loops from all others, whatever they are called."""
    launch = scop.launches[statement.launch]
    if statement.lanes > 1 or any(loop.kind == "interleaved" for loop in scop.loops_of(statement)):
        msg = f"statement {statement.name!r} works on vectors, or copies of it stand side by side: no nest of loops"
        raise UnsupportedKernelError(msg, kernel=scop.name, statement=statement.name)
    axes = [f"gid{axis}" for axis in range(len(launch.groups))] + [f"lid{axis}" for axis in range(len(launch.items))]
    return [*axes, *(f"{statement.launch}_{loop}" for loop in statement.loops)]


def _columns(names: Sequence[str], loops: Sequence[Loop]) -> Columns:
    """Return, for each instance dimension by its own name, the loops that move it, and by how much: innermost first."""
    places = {loop.driver: position for position, loop in enumerate(loops)}
    columns = {}
    for dimension, name in enumerate(names):
        columns[dimension] = [(places[name], 1)]
        inner = LANE if name == "lid0" and LANE in places else name
        outer = name if inner == LANE else f"{name}{OUTER_SUFFIX}"
        if outer in places and (inner == LANE or outer != name):
            width = int(str(loops[places[inner]].extent))
            columns[dimension] = [(places[inner], 1), (places[outer], width)]
        columns[dimension] = [(place, width * loops[place].stride) for place, width in columns[dimension]]
    return columns


def _subscripts(
    pieces: Sequence[Conjunction], loops: Sequence[Loop], columns: Columns, names: Sequence[str]
) -> list[Subscript]:
    """Return the accesses of a statement; one that cases of its domain repeat is one.

    Of an access that differs from case to case, that which most loops move counts for all, one without diagonal.
    """
    by_access: dict[tuple[str, str], list[tuple[int, dict[Subscript, int]]]] = defaultdict(list)
    for piece in pieces:
        here: dict[tuple[str, str], dict[Subscript, int]] = defaultdict(lambda: defaultdict(int))
        for access in piece.accesses:
            subscript = subscript_of(access, loops, columns, names)
            here[access.direction, access.text][subscript] += 1
        for key, found in here.items():
            by_access[key].append((-sum(equality for _, equality in piece.constraints), dict(found)))
    result = []
    for cases in by_access.values():
        moving = [sum(len(steps) for subscript in case for steps in subscript.steps) for _, case in cases]
        straight = [not any(subscript.diagonal for subscript in case) for _, case in cases]
        best = max((moving[number], straight[number], order, -number) for number, (order, _) in enumerate(cases))
        _, chosen = cases[-best[-1]]
        note = "is defined by cases" if any(case != chosen for _, case in cases) else ""
        for subscript, times in chosen.items():
            noted = replace(subscript, note=" and ".join(filter(None, (subscript.note, note))))
            result += [noted] * times
    return result


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
    strides = [first.access.strides[axis] for axis in order]
    if len(order) == len(array.shape):
        extents = [array.shape[axis] for axis in order]
    else:
        # Subscripts that were made of one, such as `row * n + k`: each ends where the next one moves on.
        extents = [*strides[1:], prod(array.shape, start=QuasiPolynomial.constant(1))]
    steps = [first.steps[axis] for axis in order]
    axes = tuple(Axis(*axis) for axis in zip(strides, steps, extents, strict=True))
    found_streams = [Stream(offset, *count) for offset, count in counts.items()]
    streams, gaps, halo = ordered_streams(axes, found_streams, len(loops))
    # A part that depends on sizes may begin a row anywhere in a line; whole rows further it does not.
    rest = any(first.rest[axis] for axis in order[:1]) or any(set(first.rest[axis]) - first.fixed for axis in order[1:])
    placed = array.alignment % _NEAR_BYTES == 0 and not rest
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
        diagonal=first.diagonal,
        ends_fixed=any(set(first.rest[axis]) & first.fixed for axis in order[:1]),
    )


def _begins(axes: Sequence[Axis], loops: Sequence[Loop]) -> int | QuasiPolynomial | None:
    begins: int | QuasiPolynomial = 0
    for step in axes[0].steps if axes else ():
        first = loops[step.loop].first
        # Steps in blocks have a factor that is known later, which only 0 does not need.
        if first is None or (first and step.scale is not None):
            return None
        if isinstance(first, QuasiPolynomial) or isinstance(begins, QuasiPolynomial):
            begins = _polynomial(begins) + _polynomial(first) * round(step.factor)
        else:
            begins += round(step.factor * first)
    return begins


def _polynomial(number: int | QuasiPolynomial) -> QuasiPolynomial:
    return number if isinstance(number, QuasiPolynomial) else QuasiPolynomial.constant(number)


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


def blocked_nests(nests: Nests, names: Sequence[str]) -> Nests:
    """Return the nests with loops blocked as in Listing 3 of YaskSite: loops over blocks outside of all others.

    Names are those of sequential loops of all nests, or ``lid0``, ``lid1`` for the work-group's own extents.
    """
    for name in names:
        if not all(any(loop.base == name for loop in nest.loops[nest.host_loops :]) for nest in nests.nests):
            known = sorted({loop.base for nest in nests.nests for loop in nest.loops[nest.host_loops :]} - {LANE})
            msg = (
                f"kernel {nests.name!r} has no loop {name!r} around all accesses to block; there are {', '.join(known)}"
            )
            raise UnsupportedKernelError(msg, kernel=nests.name)
    return replace(nests, nests=tuple(_blocked(nest, names) for nest in nests.nests))


def _blocked(nest: Nest, names: Sequence[str]) -> Nest:
    # Loops over work-groups and in them are blocks as they are: only their size changes (`NestValues.block`).
    whole = [position for position, loop in enumerate(nest.loops) if loop.base in names and loop.part == "whole"]
    if not whole:
        return nest
    # Blocks are inside of the grid, and of host loops, which are around it.
    place = nest.host_loops + sum(re.match(r"gid\d+\b", loop.name) is not None for loop in nest.loops)
    outer = [
        replace(
            nest.loops[position],
            name=f"{nest.loops[position].name}_blocks",
            part="outer",
            node=("blocks", nest.loops[position].name),
            own_name="",
        )
        for position in whole
    ]
    # New nodes: the loops run anew in each block, so that nests without blocks no longer share them.
    inner = [
        replace(loop, part="inner", node=("in", *loop.node))
        if position in whole
        else replace(loop, node=("in", *loop.node))
        for position, loop in enumerate(nest.loops)
    ]
    loops = (*nest.loops[:place], *outer, *inner[place:])
    # Old position of a loop to its new one, and of a blocked loop to that over its blocks.
    moved = {position: position + (len(outer) if position >= place else 0) for position in range(len(nest.loops))}
    added = {position: place + number for number, position in enumerate(whole)}
    groups = tuple(_blocked_group(group, moved, added, nest, len(loops)) for group in nest.groups)
    halos = [0] * len(loops)
    for position, halo in enumerate(nest.halos):
        halos[moved[position]] = halo
    return replace(nest, loops=loops, groups=groups, halos=tuple(halos))


def _blocked_group(
    group: StreamGroup, moved: dict[int, int], added: dict[int, int], nest: Nest, loops: int
) -> StreamGroup:
    axes = []
    for axis in group.axes:
        steps = [replace(step, loop=moved[step.loop]) for step in axis.steps]
        # A block moves the index by the factor times the block size, which is a number only later.
        steps += [
            Step(added[step.loop], step.factor, nest.loops[step.loop].base) for step in axis.steps if step.loop in added
        ]
        axes.append(replace(axis, steps=tuple(steps)))
    gaps = []
    for gap in group.gaps:
        longer = [0] * loops
        for position, distance in enumerate(gap):
            # Gaps stay in the loop inside a block; `Footprints.carried` splits off those that cross its end.
            longer[moved[position]] = distance
        gaps.append(tuple(longer))
    touched_before = None if group.touched_before is None else moved[group.touched_before]
    return replace(group, axes=tuple(axes), gaps=tuple(gaps), touched_before=touched_before)


def folded_nests(nests: Nests, fold: Mapping[str, int]) -> Nests:
    """Return the nests with a folded layout (YaskSite, Section V-B): offsets shrink, rows grow (Eq. 11).

    Fold lengths are by loop; 1 changes nothing. A loop that not all accesses move with alone is an
    `UnsupportedKernelError`.
    """
    lengths = {name: length for name, length in fold.items() if length != 1}
    if not lengths:
        return nests
    for name, length in lengths.items():
        if length < 1:
            msg = f"a fold of {length} along loop {name!r} is none; give 1 or more elements"
            raise UnsupportedKernelError(msg, kernel=nests.name)
        if not all(any(loop.name == name for loop in nest.loops) for nest in nests.nests):
            known = ", ".join(dict.fromkeys(loop.name for nest in nests.nests for loop in nest.loops))
            msg = f"kernel {nests.name!r} has no loop {name!r} around all accesses to fold by {length}; it has {known}"
            raise UnsupportedKernelError(msg, kernel=nests.name)
    return replace(nests, nests=tuple(_folded(nests.name, nest, lengths) for nest in nests.nests))


def _folded(kernel: str, nest: Nest, lengths: Mapping[str, int]) -> Nest:
    loops = tuple(replace(loop, fold=lengths.get(loop.name, 1)) for loop in nest.loops)
    folds = {position: loop.fold for position, loop in enumerate(loops) if loop.fold > 1}
    groups = tuple(_folded_group(kernel, nest, group, folds) for group in nest.groups)
    return replace(nest, loops=loops, groups=groups, halos=halos_of(loops, groups))


def _folded_group(kernel: str, nest: Nest, group: StreamGroup, folds: Mapping[int, int]) -> StreamGroup:
    found = {}
    for place, axis in enumerate(group.axes):
        moved = {step.loop for step in axis.steps} & folds.keys()
        if moved:
            if len(axis.steps) > 1 or abs(axis.steps[0].factor) != 1:
                msg = f"access {group.text} of kernel {kernel!r} does not move with the folded loop alone"
                raise UnsupportedKernelError(msg, kernel=kernel, access=group.text)
            found[place] = folds[moved.pop()]
    if len(found) != len(folds):
        msg = f"access {group.text} of kernel {kernel!r} does not move with every folded loop"
        raise UnsupportedKernelError(msg, kernel=kernel, access=group.text)
    total = prod(found.values())
    axes = []
    below = 1
    for place, axis in enumerate(group.axes):
        axes.append(replace(axis, fold=below))
        below *= found.get(place, 1)
    # Offsets shrink about the middle of their range, so that a symmetric stencil stays symmetric.
    middle = {
        place: (max(s.offset[place] for s in group.streams) + min(s.offset[place] for s in group.streams)) // 2
        for place in found
    }
    # Offsets that fall into the same folded element become one stream.
    counts: dict[tuple[int, ...], tuple[int, int]] = {}
    for stream in group.streams:
        offset = tuple(
            _shrunk(value - middle[place], found[place]) if place in found else value
            for place, value in enumerate(stream.offset)
        )
        loads, stores = counts.get(offset, (0, 0))
        counts[offset] = (loads + stream.loads, stores + stream.stores)
    streams, gaps, halo = ordered_streams(
        axes, [Stream(offset, *count) for offset, count in counts.items()], len(nest.loops)
    )
    return replace(
        group,
        itemsize=group.itemsize * total,
        fold=total,
        axes=tuple(axes),
        near=None,
        streams=streams,
        gaps=gaps,
        halo=halo,
    )


def _shrunk(offset: int, length: int) -> int:
    # Away from 0: folding takes a radius r to ceil(r/L) (Section V-B).
    return -(-offset // length) if offset > 0 else offset // length
