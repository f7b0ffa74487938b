"""The accesses of a kernel at given sizes, one by one, in the order in which a CPU runs it.

Every instance of every statement is enumerated and every subscript evaluated; the order is that of loops: those around
launches, launches, work-groups (axis 0 fastest), sequential loops that hold a barrier, regions between barriers,
work-items (axis 0 fastest), other sequential loops. Work-items of axis 0 go through inner loops in lock step, `lanes`
at a time. Nothing here knows of nests, windows or distances of reuse.
"""

import numpy as np

from .points import elements, instances

# Bytes between the first elements of two arrays.
_APART = 1 << 30


def scop_trace(scop, sizes, *, lanes=1, line=64, seed=0):
    """Return line numbers and store flags of all accesses to global and local memory, in order of time.

    So many `lanes` along axis 0 go through inner loops in lock step; a cache line has so many bytes. Subscripts that
    may be any element are drawn at random.
    """
    (one,) = core_traces(scop, sizes, 1, lanes=lanes, line=line, seed=seed)
    return one


def core_traces(scop, sizes, cores, *, lanes=1, line=64, seed=0):
    """Return the trace of each core, as `scop_trace`, where contiguous parts are dealt to some.

    Those are work-groups, axis 0 fastest, or iterations of the outermost loop where the kernel is loops alone.
    """
    random = np.random.default_rng(seed)
    places = {array.name: number * _APART for number, array in enumerate(scop.arrays)}
    lines, stores, keys, owners = [], [], [], []
    for number, statement in enumerate(scop.statements):
        points = instances(statement, sizes)
        key = _key(scop, statement, points, lanes)
        for position, access in enumerate(statement.accesses):
            array = scop.array(access.array)
            if array.space == "private":
                continue
            if access.relation.is_single_valued():
                touched = elements(scop, access, sizes, points)
            else:
                extent = int(np.prod([int(extent.evaluate(sizes)) for extent in array.shape]))
                touched = random.integers(0, max(1, extent), len(points[0]))
            lines.append((places[access.array] + array.itemsize * touched) // line)
            stores.append(np.full(len(touched), access.direction == "store"))
            # All lanes of an access before the next access.
            order = [*key[:-1], np.full(len(touched), number), np.full(len(touched), position), key[-1]]
            keys.append(order)
            owners.append(_owners(scop, statement, points, sizes, cores))
    depth = max(len(order) for order in keys)
    columns = [
        np.concatenate([order[place] if place < len(order) else order[-1] * 0 for order in keys])
        for place in range(depth)
    ]
    sequence = np.lexsort(columns[::-1])
    lines, stores, owners = (np.concatenate(parts)[sequence] for parts in (lines, stores, owners))
    return [(lines[owners == core], stores[owners == core]) for core in range(cores)]


def _owners(scop, statement, points, sizes, cores):
    """Return the core that each instance runs on."""
    launch = scop.launches[statement.launch]
    number, total = points[0] * 0, 1
    for place, extent in enumerate(launch.groups):
        number, total = number + total * points[place], total * int(extent.evaluate(sizes))
    if not launch.axes and statement.loops:
        host = sum(loop.kind == "host" for loop in launch.loops)
        values, number = np.unique(points[host], return_inverse=True)
        total = len(values)
    # Fewer parts than cores are on the first ones.
    return number * min(cores, total) // max(1, total)


def _key(scop, statement, points, lanes):
    """Return columns by which instances come one after the other; the last one is the lane."""
    launch = scop.launches[statement.launch]
    axes, items, zero = len(launch.groups), len(launch.items), points[0] * 0
    host = sum(loop.kind == "host" for loop in launch.loops)
    values = points[axes + items :]
    # Places in the order and values of loops in turn.
    steps = [zero + statement.order[0]] if statement.order else []
    for number, value in zip(statement.order[1:], values, strict=False):
        steps += [value, zero + number]
    outer, region = _barriers(scop, statement)
    key = [*values[:host], zero + statement.launch]
    key += reversed(points[:axes])
    key += [*steps[2 * host : 2 * outer], zero + region]
    local = points[axes : axes + items]
    key += reversed(local[1:])
    lane = local[0] % lanes if local else zero
    key += [local[0] // lanes] if local else []
    return [*key, *steps[2 * max(outer, host) :], lane]


def _barriers(scop, statement):
    """Return how many loops of a statement hold barriers, and how many barriers are before it in these."""
    if not scop.launches[statement.launch].items:
        return len(statement.loops), 0
    most, before = 0, 0
    for barrier in scop.barriers:
        if barrier.launch == statement.launch:
            pairs = zip(statement.loops, barrier.loops, strict=False)
            common = sum(mine == theirs for mine, theirs in pairs)
            most = max(most, common)
            before += barrier.order[common : common + 1] < statement.order[common : common + 1]
    return most, before
