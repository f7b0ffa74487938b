"""Loop nests of a Scop in the order in which a CPU runs them.

Loops around launches are outside of all. Work-groups run one after the other, axis 0 fastest; several cores take
contiguous parts of that order. In a work-group, the work-items run as loops, axis 0 innermost, around each region
between barriers; sequential loops that hold a barrier are outside of them, others inside. Work-items of axis 0 are in
lock step where the CPU's runtime vectorises over them (`lanes`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from perflex.errors import UnsupportedKernelError
from perflex.features.cpu.nests import (
    LANE,
    Driver,
    Loop,
    Nest,
    Nests,
    holes_of,
    loop_strides,
    mark_touched_before,
    per_iteration,
    range_of,
    varying_ranges,
    with_shared_drivers,
    without_holes,
)
from perflex.features.cpu.stream_groups import groups_of, halos_of, own_names_of
from perflex.features.cpu.subscripts import loop_divisors, split_divided_loops, with_simple_floors
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.address_maps import Conjunction, address_maps, loops_with_barriers, scattered_accesses
from perflex.features.scop.scop import Scop, Statement
from perflex.isl import ISL_LOCK, isl


def read_nests(scop: Scop, lanes: tuple[int, int] = (1, 1)) -> Nests:
    """Return the nests of a kernel.

    So many `lanes` of work-items along axis 0 are in lock step in launches without inner loops, and in those with some.
    """
    # By place of the statement: those that access memory.
    pieces: dict[int, list[Conjunction]] = {place: [] for place in scattered_accesses(scop)}
    for piece in address_maps(scop, scattered=False):
        items = scop.launches[piece.launch]
        sizes = {len(items.groups) + axis: extent for axis, extent in enumerate(items.items)}
        pieces.setdefault(piece.number, []).append(with_simple_floors(piece, sizes))
    found: list[tuple[tuple[Loop, ...], Any, list[tuple[int, list[Conjunction]]]]] = []
    own_names = [own_names_of(scop, statement) for statement in scop.statements]
    divisors = loop_divisors([piece for own in pieces.values() for piece in own], own_names)
    # Launches whose work-items run loops.
    accessing = [scop.statements[place] for place in pieces]
    looping = {one.launch for one in accessing if len(one.loops) > _outer_loops(scop, one)[1]}
    with ISL_LOCK:
        for place in sorted(pieces, key=lambda at: (scop.statements[at].launch, scop.statements[at].order, at)):
            statement = scop.statements[place]
            # Of a loop that subscripts divide, each part moves an axis of its own: the loop becomes two.
            keys = {name: (statement.launch, name) for name in own_names[place]}
            own = {name: divisors[key] for name, key in keys.items() if key in divisors}
            # A divisor and lanes would both split lid0; the divisor's parts move axes of their own, so it decides.
            lock_step = 1 if "lid0" in own else lanes[statement.launch in looping]
            loops = split_divided_loops(_loops(scop, statement, lock_step), own)
            # Only statements that run in the same iterations may reuse one another's data there.
            for known, domain, members in found:
                if known == loops and domain.is_equal(statement.domain):
                    members.append((place, pieces[place]))
                    break
            else:
                found.append((loops, statement.domain, [(place, pieces[place])]))
        nests = with_shared_drivers(mark_touched_before([_nest(scop, loops, members) for loops, _, members in found]))
        result = Nests(scop.name, nests, tuple((array.name, array.shape) for array in scop.arrays))
        _read_texts(result)
    if not nests:
        msg = f"kernel {scop.name!r} accesses no global or local memory, so it has no cache volumes"
        raise UnsupportedKernelError(msg, kernel=scop.name)
    return result


def _read_texts(nests: Nests) -> None:
    """Let all polynomials be printed while isl is locked; they are looked up by what is printed."""
    polynomials = [extent for _, shape in nests.shapes for extent in shape]
    for nest in nests.nests:
        polynomials += [nest.count, *([] if nest.touching is None else [nest.touching])]
        polynomials += [*(loop.extent for loop in nest.loops)]
        polynomials += [loop.varying for loop in nest.loops if loop.varying is not None]
        polynomials += [axis.stride for group in nest.groups for axis in group.axes]
        polynomials += [group.begins for group in nest.groups if isinstance(group.begins, QuasiPolynomial)]
    for polynomial in polynomials:
        _ = polynomial.text


def _nest(scop: Scop, loops: tuple[Loop, ...], members: list[tuple[int, list[Conjunction]]]) -> Nest:
    first = scop.statements[members[0][0]]
    groups = groups_of(scop, loops, members)
    weight = scop.weight(first)
    count = QuasiPolynomial.points(first.domain, scop.assumptions) * weight
    drivers = _varying(scop, first)[0] if any(loop.varying is not None for loop in loops) else ()
    notes = [f"access {group.text} {group.note}" for group in groups if group.note]
    touching = None
    if holes_of(first.domain, _sequential(scop, first)):
        notes.append(f"a guard or step with % around statement {first.name} leaves out iterations, whose lines count")
        everywhere = QuasiPolynomial.points(without_holes(first.domain), scop.assumptions) * weight
        touching = everywhere * Fraction(1, prod(loop.stride for loop in loops))
    return Nest(first.launch, loops, groups, count, halos_of(loops, groups), drivers, touching, tuple(notes))


def _sequential(scop: Scop, statement: Statement) -> range:
    """Return the places of a statement's sequential loops among its dimensions."""
    first = scop.launches[statement.launch].axes
    return range(first, first + len(statement.loops))


def _outer_loops(scop: Scop, statement: Statement) -> tuple[int, int]:
    """Return how many loops are around the launch, and how many around the work-items."""
    launch = scop.launches[statement.launch]
    host = sum(loop.kind == "host" for loop in launch.loops)
    # Without work-items, all loops are outer ones.
    held = loops_with_barriers(scop, statement) if launch.items else len(statement.loops)
    return host, max(host, held)


def _loops(scop: Scop, statement: Statement, lanes: int) -> tuple[Loop, ...]:
    """Return the loops around a statement, outermost first."""
    launch = scop.launches[statement.launch]
    axes, items = len(launch.groups), len(launch.items)
    host, outer = _outer_loops(scop, statement)
    region = _region(scop, statement, outer)
    extents = [_extent(statement.domain, position) for position in range(statement.domain.dim(isl.dim_type.set))]
    if holes_of(statement.domain, _sequential(scop, statement)):
        # As for `Nest.touching`: work-items that are left out touch lines, too.
        everywhere = without_holes(statement.domain)
        extents[: axes + items] = [_extent(everywhere, position) for position in range(axes + items)]
    sequential = _sequential_loops(scop, statement, extents)
    node: tuple[object, ...] = ()
    loops = []
    for depth in range(host):
        node = (*node, sequential[depth].name)
        loops.append(replace(sequential[depth], node=node))
    node = (*node, statement.launch)
    for axis in reversed(range(axes)):
        node = (*node, f"gid{axis}")
        part, base = ("outer", f"lid{axis}") if axis < items else ("whole", f"gid{axis}")
        block = launch.items[axis] if axis < items else None
        # A guard may cut the last work-group, so group ids times the work-group's extent would be too many.
        extent = extents[axis] if block is None else _range(statement.domain, axis, axes + axis, block)
        loops.append(Loop(f"gid{axis}", node, extent, part, base, block))
    for depth in range(host, len(statement.loops) + 1):
        if depth == outer:
            node, more = _item_loops(axes, launch.items, extents[axes : axes + items], (*node, *region), lanes)
            loops += more
        if depth < len(statement.loops):
            node = (*node, statement.loops[depth])
            loops.append(replace(sequential[depth], node=node))
    if items and min(lanes, launch.items[0]) > 1:
        lane = QuasiPolynomial.constant(min(lanes, launch.items[0]))
        loops.append(Loop(LANE, (*loops[-1].node, LANE), lane, base=LANE))
    return tuple(loops)


def _sequential_loops(scop: Scop, statement: Statement, extents: Sequence[QuasiPolynomial]) -> list[Loop]:
    """Return a statement's sequential loops, outermost first, not yet identified."""
    _, varying = _varying(scop, statement)
    result = []
    places = _sequential(scop, statement)
    own_names = own_names_of(scop, statement)
    strides = loop_strides(statement.domain, places)
    for one, place, stride in zip(scop.loops_of(statement), places, strides, strict=True):
        # Work-groups and work-items have such names.
        name = re.sub(r"^([gl]id\d+)$", r"\1_", one.name)
        first = _first(statement.domain, place)
        begin = None if first is None or first % stride else first // stride
        own_name = own_names[place]
        extent = per_iteration(extents[place], stride)
        loop = Loop(name, (), extent, base=name, first=begin, stride=stride, own_name=own_name)
        if own_name in varying:
            moving, own = varying[own_name]
            loop = replace(loop, varying=per_iteration(own, stride))
            # A number is better known than a polynomial of the same value.
            if moving.parameters and stride == 1:
                loop = replace(loop, first=moving)
        result.append(loop)
    return result


def _item_loops(
    groups: int, items: Sequence[int], extents: Sequence[Any], node: tuple[object, ...], lanes: int
) -> tuple[tuple[object, ...], list[Loop]]:
    loops = []
    for axis in reversed(range(len(items))):
        node = (*node, f"lid{axis}")
        extent, block = extents[axis], items[axis]
        width = min(lanes, items[0]) if axis == 0 else 1
        if width > 1:
            extent, block = QuasiPolynomial.constant(-(-block // width)), -(-block // width)
        # Without groups along the axis there is nothing outside of the block.
        part = ("inner", f"lid{axis}", block) if axis < groups else ("whole", f"lid{axis}", None)
        loops.append(Loop(f"lid{axis}", node, extent, *part))
    return node, loops


def _varying(
    scop: Scop, statement: Statement
) -> tuple[tuple[Driver, ...], dict[str, tuple[QuasiPolynomial, QuasiPolynomial]]]:
    names = own_names_of(scop, statement)
    return varying_ranges(names, statement.domain, names[len(names) - len(statement.loops) :])


def _extent(domain: Any, position: int) -> QuasiPolynomial:
    return range_of(domain, position, ())[1]


def _first(domain: Any, position: int) -> int | None:
    """Return the first iteration of a dimension if it is the same number for all sizes."""
    first = domain.dim_min(position)
    found = QuasiPolynomial(isl.PwQPolynomial.from_pw_aff(first.gist(first.domain()).coalesce()))
    return None if found.parameters else int(found.evaluate({}))


def _range(domain: Any, group: int, item: int, block: int) -> QuasiPolynomial:
    """Return how many work-items there are along an axis, from the first that does something to the last."""
    names = [f"i{position}" for position in range(domain.dim(isl.dim_type.set))]
    number = isl.Map(f"{{ [{', '.join(names)}] -> [{block}*{names[group]} + {names[item]}] }}")
    return _extent(domain.apply(number), 0)


def _region(scop: Scop, statement: Statement, outer: int) -> tuple[object, ...]:
    """Return what the statements between the same barriers have in common."""
    barriers = (one for one in scop.barriers if one.launch == statement.launch and one.kind != "sub_group")
    before = [barrier for barrier in barriers if barrier.order < statement.order]
    return (*statement.loops[:outer], len(before))
