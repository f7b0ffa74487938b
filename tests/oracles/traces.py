"""The accesses of a kernel at given sizes, one by one, in the order in which a CPU runs it.

Every instance of every statement is enumerated and every subscript evaluated; the order is that of loops: those around
launches, launches, work-groups (axis 0 fastest), sequential loops that hold a barrier, regions between barriers,
work-items (axis 0 fastest), other sequential loops. Work-items of axis 0 go through inner loops in lock step, `lanes`
at a time. Nothing here knows of nests, windows or distances of reuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import islpy as isl
import numpy as np

from .points import Ints, affine_values, fixed_at, integer_points

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features import Scop, Statement

# Bytes between the first elements of two arrays.
_APART = 1 << 30


def scop_trace(
    scop: Scop, sizes: Mapping[str, int], *, lanes: int = 1, line: int = 64, seed: int = 0
) -> tuple[Ints, Any]:
    """Return line numbers and store flags of all accesses to global and local memory, in order of time.

    Parameters
    ----------
    scop
        The kernel. Subscripts that may be any element of an array are drawn at random.
    sizes
        Value of each size.
    lanes
        Work-items along axis 0 that go through inner loops in lock step.
    line
        Bytes of a cache line.
    seed
        Of random subscripts.
    """
    random = np.random.default_rng(seed)
    places = {array.name: number * _APART for number, array in enumerate(scop.arrays)}
    lines, stores, keys = [], [], []
    for number, statement in enumerate(scop.statements):
        points = _points(statement, sizes)
        key = _key(scop, statement, points, lanes)
        for position, access in enumerate(statement.accesses):
            array = scop.array(access.array)
            if array.space == "private":
                continue
            polynomials = array.strides if access.strides is None else access.strides
            strides = [int(stride.evaluate(sizes)) for stride in polynomials]
            extents = [int(extent.evaluate(sizes)) for extent in array.shape]
            elements = _elements(access.relation, sizes, points, strides, extents, random)
            lines.append((places[access.array] + array.itemsize * elements) // line)
            stores.append(np.full(len(elements), access.direction == "store"))
            # All lanes of an access before the next access.
            order = [*key[:-1], np.full(len(elements), number), np.full(len(elements), position), key[-1]]
            keys.append(order)
    depth = max(len(order) for order in keys)
    columns = [
        np.concatenate([order[place] if place < len(order) else order[-1] * 0 for order in keys])
        for place in range(depth)
    ]
    sequence = np.lexsort(columns[::-1])
    return np.concatenate(lines)[sequence], np.concatenate(stores)[sequence]


def _points(statement: Statement, sizes: Mapping[str, int]) -> list[Ints]:
    names = [f"d{place}" for place in range(statement.domain.dim(isl.dim_type.set))]
    domain = statement.domain
    for place, name in enumerate(names):
        domain = domain.set_dim_name(isl.dim_type.set, place, name)
    found = integer_points(domain, names, sizes)
    return [found[name] for name in names] or [found[""]]


def _key(scop: Scop, statement: Statement, points: list[Ints], lanes: int) -> list[Ints]:
    """Return columns by which instances come one after the other; the last one is the lane."""
    launch = scop.launches[statement.launch]
    axes, items = len(launch.groups), len(launch.items)
    host = len(launch.host_loops)
    values = dict(zip(statement.loops, points[axes + items :], strict=True))
    outer, region = _barriers(scop, statement)
    zero = points[0] * 0
    key = [values[name] for name in statement.loops[:host]]
    key.append(zero + statement.launch)
    key += reversed(points[:axes])
    for step in statement.schedule[2 * host : 2 * outer]:
        key.append(zero + step if isinstance(step, int) else values[step])
    key.append(zero + region)
    local = points[axes : axes + items]
    key += reversed(local[1:])
    lane = local[0] % lanes if local else zero
    key += [local[0] // lanes] if local else []
    for step in statement.schedule[2 * max(outer, host) :]:
        key.append(zero + step if isinstance(step, int) else values[step])
    return [*key, lane]


def _barriers(scop: Scop, statement: Statement) -> tuple[int, int]:
    """Return how many loops of a statement hold barriers, and how many barriers are before it in these."""
    if not scop.launches[statement.launch].items:
        return len(statement.loops), 0
    most, before = 0, 0
    mine = list(statement.schedule)
    for barrier in scop.barriers:
        if barrier.launch != statement.launch:
            continue
        theirs = list(barrier.schedule)
        common = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), len(mine))
        most = max(most, common // 2)
        place = [step for step in (mine[common : common + 1] + theirs[common : common + 1]) if isinstance(step, int)]
        before += len(place) == 2 and place[1] < place[0]
    return most, before


def _elements(
    relation: Any,
    sizes: Mapping[str, int],
    points: list[Ints],
    strides: list[int],
    extents: list[int],
    random: np.random.Generator,
) -> Ints:
    count = len(points[0])
    if not relation.is_single_valued():
        return random.integers(0, max(1, int(np.prod(extents))), count)
    total = np.zeros(count, np.int64)
    cases: list[Any] = []
    isl.PwMultiAff.from_map(fixed_at(relation, sizes)).foreach_piece(lambda *case: cases.append(case))
    for subdomain, function in cases:
        inside = np.zeros(count, bool)
        for conjunction in subdomain.compute_divs().get_basic_sets():
            holds = np.ones(count, bool)
            for constraint in conjunction.get_constraints():
                value = affine_values(constraint.get_aff(), points, count)
                holds &= (value == 0) if constraint.is_equality() else (value >= 0)
            inside |= holds
        element = np.zeros(count, np.int64)
        for axis, stride in enumerate(strides):
            aff = function.get_at(axis)
            element += stride * (affine_values(aff, points, count) // aff.get_denominator_val().to_python())
        total = np.where(inside, element, total)
    return total
