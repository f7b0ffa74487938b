"""Which loads the L1 cache serves: by how many other lines a compute unit touches before it loads a line again.

A line is lost once more other lines were touched than the cache has room for (its stack distance: Mattson, Gecsei,
Slutz, Traiger, Evaluation techniques for storage hierarchies, 1970). That takes the place of a curve over the data of a
whole work-group: a work-group that sweeps through planes loads many, of which it needs few at any time, and work-groups
that a compute unit holds together may need the same ones.

What these load is a trace of sectors. Sub-groups advance together, as a fair scheduler lets them, in the order of the
schedule. Each issues `_BURST` loads back to back, also from one iteration of a loop to the next; the loads of one
statement instance are taken in the order of their addresses. Which sub-group comes first is random, since none waits
for another.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.integer_sets import order_of
from perflex.features.gpu.memory_instructions import IDLE, executing, first_of_each, in_sub_groups, work_items
from perflex.features.gpu.work_group_kinds import guards_of, numbered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from perflex.features.gpu.l1 import Lines
    from perflex.features.gpu.resolved_launch import ResolvedLaunch, ResolvedPiece

    Integers = NDArray[np.int64]


# Loads of a sub-group that are under way at once: half of the registers of a work-item with 64, in doubles.
_BURST = 16
# A trace of more instructions is cut; it then touches many times as many lines as an L1 cache has.
_MOST_INSTRUCTIONS = 20_000
# Arrays lie so many sectors apart, and begin at such multiples: none shares a line with another.
_APART = 1 << 10
# As many waves are looked at one by one on a machine of fewer units.
_MOST_WAVES, _MANY_UNITS = 4, 16


@dataclass(frozen=True)
class Trace:
    """Sectors that are loaded, in order; what a sub-group loads several times at once stands there once."""

    sectors: Integers  # number of each sector, shape (n,); those of different arrays differ
    bursts: Integers  # number of the sub-group's burst that loads it, ascending, shape (n,)
    loads: Integers  # how many of the burst's instructions load it, shape (n,)
    arrays: Integers  # position in `names` of its array, shape (n,)
    groups: Integers  # number of the work-group, shape (n,)
    weights: NDArray[np.float64]  # weight of the work-group's turn, shape (n,)
    names: tuple[str, ...]  # the arrays
    cut: bool  # whether the work-groups go on beyond the end


@dataclass(frozen=True)
class Turn:
    """Work-groups that a compute unit holds at once."""

    groups: tuple[tuple[int, ...], ...]
    weight: float  # how many such turns of the unit it stands for; 0 if it only leaves data in the cache for the next


def turns_of(
    grid: Sequence[int], resident: int, units: int, sample: int, samples: int, running: Integers | None = None
) -> list[Turn]:
    """Return what one of several sampled compute units runs, in turns.

    The first work-groups are given out one by one to one unit after the other, axis 0 first. Later ones go where one
    has ended, which is any unit. Of many waves one stands for all, another for each sample, with the one before it on a
    machine of few units, where work-groups often follow their neighbours. `running` are the numbers of the work-groups
    in which anything runs; without, it does in all. Others leave at once.
    """
    total, at_once = prod(grid) if running is None else len(running), resident * units
    waves = ceil(total / at_once)
    chosen = waves * (2 * sample + 1) // (2 * samples)
    if units >= _MANY_UNITS:
        # Where a work-group has ended, a neighbour of it follows by chance only, which is seldom then.
        weights = {chosen: 1.0}
    elif waves <= _MOST_WAVES:
        weights = dict.fromkeys(range(waves), 1.0)
    else:
        weights = {max(0, chosen - 1): 0.0, chosen: 1.0}
    random = np.random.default_rng(sample)
    turns = []
    for wave, weight in weights.items():
        first, there = wave * at_once, min(at_once, total - wave * at_once)
        if wave == 0:
            # A grid of less than a wave fills some units with fewer work-groups.
            unit = sample * min(units, there) // samples
            ids = np.arange(unit, there, units)
        else:
            # One of each of as many stretches of the wave: few samples would else show neighbours by chance.
            count = ceil(there / units)
            ids = first + ((np.arange(count) + random.random(count)) * there / count).astype(np.int64)
        ids = ids if running is None else running[ids]
        groups = tuple(tuple(int(i) for i in np.unravel_index(one, grid, order="F")) for one in ids)
        turns.append(Turn(groups, weight))
    return turns


def trace_of(launch: ResolvedLaunch, turns: Sequence[Turn], lines: Lines, offsets: dict[str, int]) -> Trace:
    """Return the loads from global memory of work-groups that run on a compute unit, turn by turn."""
    names = tuple(name for name, space in launch.spaces.items() if space == "global")
    placed = list(enumerate((turn, group) for turn, one in enumerate(turns) for group in one.groups))
    most = _MOST_INSTRUCTIONS // max(1, len(placed))
    chunks = [chunk for group in placed for chunk in _group_loads(launch, group, lines, offsets, names, most)]
    if not chunks:
        empty = np.zeros(0, dtype=np.int64)
        return Trace(empty, empty, empty, empty, empty, empty.astype(float), names, cut=False)
    keys, starts = _joined([chunk.keys for chunk in chunks]), np.cumsum([0, *(len(chunk.keys) for chunk in chunks)])
    # Each turn is cut by itself, so that the first column, the turn, is left out.
    ranks = _ranks((*keys[:, 1:].T,))
    iterations = np.concatenate([chunk.rows[0] + start for chunk, start in zip(chunks, starts, strict=False)])
    _, places, warps, arrays, sectors = np.concatenate([chunk.rows for chunk in chunks], axis=1)
    sectors = _moved_apart(sectors, arrays, len(names))
    ends = [start + chunk.last for chunk, start in zip(chunks, starts, strict=False) if chunk.last is not None]
    if ends:
        # What a piece does beyond its cut is not known, so that the trace ends where the first piece was cut.
        kept = ranks[iterations] <= ranks[ends].min()
        iterations, places, warps = iterations[kept], places[kept], warps[kept]
        arrays, sectors = arrays[kept], sectors[kept]
    # A sub-group goes on with the next iteration of a loop while it waits for the loads of this one.
    rounds = numbered(ranks[iterations] * (int(places.max(initial=0)) + 1) + places) // _BURST
    rounds += keys[iterations, 0] * (int(rounds.max(initial=0)) + 1)
    turn = np.random.default_rng(0).random((int(rounds.max(initial=0)) + 1, int(warps.max(initial=0)) + 1))
    order = order_of(rounds, turn.argsort(axis=1).argsort(axis=1)[rounds, warps], sectors)
    rounds, warps, arrays, sectors = rounds[order], warps[order], arrays[order], sectors[order]
    burst = np.cumsum(_changes(rounds, warps)) - 1
    first = np.flatnonzero(_changes(burst, sectors))
    loads = np.diff(np.append(first, len(sectors)))
    sub_groups = -(-prod(launch.items) // lines.lanes)
    groups = warps[first] // sub_groups
    weights = np.array([turns[turn].weight for _, (turn, _) in placed])
    return Trace(sectors[first], burst[first], loads, arrays[first], groups, weights[groups], names, cut=bool(ends))


def _moved_apart(sectors: Integers, arrays: Integers, count: int) -> Integers:
    """Return the sectors of several arrays, each of which is moved by whole multiples of `_APART`."""
    moves, free = np.zeros(count, dtype=np.int64), 0
    for array in range(count):
        mine = sectors[arrays == array]
        if len(mine):
            low, high = int(mine.min()) // _APART, int(mine.max()) // _APART
            moves[array] = (free - low) * _APART
            free += high - low + 2
    return sectors + moves[arrays]


def _changes(*columns: Integers) -> NDArray[np.bool_]:
    """Return which rows differ from the one before."""
    new = np.ones(len(columns[0]), dtype=bool)
    new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return new


def _firsts(order: Integers, *columns: Integers) -> NDArray[np.bool_]:
    """Return which rows are the first of equal ones; `order` puts these side by side."""
    first = np.empty(len(order), dtype=bool)
    first[order] = _changes(*(column[order] for column in columns))
    return first


def _ranks(columns: Sequence[Integers]) -> Integers:
    """Return the rank of each row in lexicographic order; equal rows have the same."""
    order = order_of(*columns)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(_changes(*(column[order] for column in columns))) - 1
    return ranks


@dataclass(frozen=True)
class _Chunk:
    """Loads of a statement of one work-group."""

    keys: Integers  # of the schedule, a row for each iteration
    rows: Integers  # iteration, place in the statement, sub-group, array and sector of each load, shape (5, loads)
    last: int | None  # the last iteration, if more follow that are left out


def _group_loads(
    launch: ResolvedLaunch,
    numbered: tuple[int, tuple[int, tuple[int, ...]]],
    lines: Lines,
    offsets: dict[str, int],
    names: tuple[str, ...],
    most: int,
) -> Iterator[_Chunk]:
    place_in_unit, (turn, group) = numbered
    sub_groups = -(-prod(launch.items) // lines.lanes)
    first = len(launch.groups) + len(launch.items)
    for number, piece in enumerate(launch.pieces):
        part = piece.within([(position, position) for position in group])
        reads = (one for one in piece.issued if one.access.direction == "load")
        # Of values that are in registers already no load is left.
        loads = [one for one in reads if launch.spaces[one.access.array] == "global" and len(one.offsets)]
        if part is None or not loads:
            continue
        # Loads whose values are kept over inner loops come before those.
        for kept in sorted({one.loops for one in loads}, reverse=True):
            mine = [one for one in loads if one.loops == kept]
            instructions = sum(len(one.offsets) for one in mine)
            steps, last = _iterations(part, first, kept, most // max(1, instructions * sub_groups) + 1)
            points = work_items(launch, group)
            points |= {dim: np.asarray(part.ranges[dim][0]) for dim in range(first, len(part.ranges))}
            points |= {dim: values[:, None] for dim, values in steps.items()}
            count = len(next(iter(steps.values()))) if steps else 1
            alive = np.broadcast_to(executing(launch, part, points), (count, prod(launch.items)))
            keys = _keys(part, (turn, number), steps, count)
            addresses = sorted(
                (one.access.array, one.address.constant + shift, place, shift)
                for place, one in enumerate(mine)
                for shift in one.offsets.tolist()
            )
            # Compilers and generators order the loads of a statement by address: neighbours share lines.
            bases = np.stack(
                [np.broadcast_to(one.address(points) + offsets.get(one.access.array, 0), alive.shape) for one in mine]
            )
            positions, shifts = np.array([ends for _, _, *ends in addresses]).T
            found = np.where(alive, bases[positions] + shifts[:, None, None], IDLE)
            filled = in_sub_groups(found.reshape(-1, found.shape[-1]), lines.lanes)
            filled = filled.reshape(len(addresses), count, *filled.shape[1:])
            sectors, new = first_of_each(filled, lines.sector)
            places, when, warps, _ = np.nonzero(new)
            arrays = np.array([names.index(array) for array, *_ in addresses])
            rows = np.stack([when, places, warps + place_in_unit * sub_groups, arrays[places], sectors[new]])
            yield _Chunk(keys, rows, last)


def _iterations(piece: ResolvedPiece, first: int, kept: int, most: int) -> tuple[dict[int, Integers], int | None]:
    """Return values of the sequential loops, in order and no more than so many, and the last one if that cuts them.

    Loops within that values are kept over, so many innermost ones, are left out.
    """
    spans = piece.ranges[first : len(piece.ranges) - kept]
    extents = [end - start + 1 for start, end in spans]
    total = prod(extents)
    count = min(total, most)
    indices = np.unravel_index(np.arange(count), extents) if spans else ()
    steps = {first + number: index.astype(np.int64) + spans[number][0] for number, index in enumerate(indices)}
    return steps, None if count == total else count - 1


def _keys(piece: ResolvedPiece, place: tuple[int, int], steps: dict[int, Integers], count: int) -> Integers:
    """Return the place of each iteration: its turn, then places in the order and values of loops alternate."""
    turn, number = place
    values = list(steps.values())
    columns: list[Integers] = [np.full(count, turn, dtype=np.int64)]
    for depth, step in enumerate(piece.order or (number,)):
        if depth:
            # Values are kept over loops that have none here.
            columns.append(values.pop(0) if values else np.full(count, -1, dtype=np.int64))
        columns.append(np.full(count, step, dtype=np.int64))
    columns += values
    return np.column_stack(columns)


def _joined(keys: list[Integers]) -> Integers:
    # Shorter keys come before longer ones that begin alike: a statement before the loop that follows it.
    joined = np.full((sum(map(len, keys)), max(key.shape[1] for key in keys)), -1, dtype=np.int64)
    start = 0
    for key in keys:
        joined[start : start + len(key), : key.shape[1]] = key
        start += len(key)
    return joined


# Sets of the L1 caches of Volta and Turing (Jia et al., Dissecting the NVIDIA Volta GPU architecture via
# microbenchmarking, 2018, Table 3.1; the same for Turing, 2019). Rows that lie a multiple of so many lines apart begin
# in the same set.
_SETS = 4
# Share of the capacity that survives where all lines fall into one set, rather than the quarter of plain indexing: sets
# are hashed in part. Replacement is not least recently used: of lines that are touched again after so large shares of
# the capacity, each later one is lost with one more part in five. Both were chosen by every second of 40 work-groups of
# a star stencil on a V100, and judged by the others.
_LEAST = 0.7
_SHARES = (0.4, 0.55, 0.7, 0.85, 1.0)
# Compute units looked at, and more where two or three work-groups run together: whether those are neighbours, and share
# what they load, is chance.
_SAMPLES, _SAMPLES_OF_FEW, _FEW = 2, 4, range(2, 4)
# Stack distances are interpolated between so many points in time.
_POINTS = 256


@dataclass(frozen=True)
class Reuse:
    """What resident work-groups load from the L2 cache, in sectors by array, over some compute units."""

    cut: bool  # whether this is only the beginning of what the work-groups do
    loads: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # distinct sectors of each instruction
    alone: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # distinct sectors of each work-group
    together: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # ... of all that a unit holds
    # loads that find their sector neither loaded before nor still there
    missed: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def resident_reuse(
    launch: ResolvedLaunch, resident: int, units: int, capacity: float, lines: Lines, offsets: dict[str, int]
) -> Reuse:
    """Return what the L1 cache (of `capacity` bytes) serves of the loads of work-groups that run together."""
    samples = _SAMPLES_OF_FEW if resident in _FEW else _SAMPLES
    guards = guards_of(launch)
    running = None if guards.even else np.flatnonzero(guards.running())
    sampled = [turns_of(launch.groups, resident, units, sample, samples, running) for sample in range(samples)]
    traces = [trace_of(launch, turns, lines, offsets) for turns in sampled]
    total = Reuse(cut=any(trace.cut for trace in traces))
    for trace in traces:
        _add(total, trace, capacity / lines.line, lines.line // lines.sector)
    return total


def _add(total: Reuse, trace: Trace, room: float, sectors_per_line: int) -> None:
    if not len(trace.sectors):
        return
    weights = trace.weights
    if total.cut:
        # The beginning finds an empty cache; where there is no end either, the second half stands for the rest.
        weights = np.where(trace.bursts >= trace.bursts[-1] // 2, weights, 0.0)
    _tally(total.loads, trace, weights * trace.loads)
    # Sorting is stable: of the loads of a sector, the earliest stands first.
    by_sector = order_of(trace.sectors)
    _tally(total.together, trace, weights * _firsts(by_sector, trace.sectors))
    by_group = order_of(trace.sectors, trace.groups)
    _tally(total.alone, trace, weights * _firsts(by_group, trace.sectors, trace.groups))
    lines = trace.sectors // sectors_per_line
    # Sectors of a line that a burst loads are neighbours, and touch the line once.
    touch = _changes(lines, trace.bursts)
    order, first, distance = stack_distances(lines[touch])
    touches = np.cumsum(touch) - 1
    room *= _usable(lines)
    for share in _SHARES:
        # A line's life ends where it is lost: its sectors are loaded once in each of its lives, which follow in time.
        life = np.empty(len(order), dtype=np.int64)
        life[order] = np.cumsum((first | (distance >= share * room))[order])
        _tally(total.missed, trace, weights * _firsts(by_sector, trace.sectors, life[touches]) / len(_SHARES))


def _usable(lines: NDArray[np.int64]) -> float:
    """Return the share of the capacity that lines can use, by how evenly they fall into sets."""
    used = np.bincount(np.unique(lines) % _SETS, minlength=_SETS).astype(float)
    # The number of sets that as many lines would use evenly.
    even = float(used.sum() ** 2 / (used**2).sum())
    return _LEAST + (1 - _LEAST) * (even - 1) / (_SETS - 1)


def _tally(into: dict[str, float], trace: Trace, weights: NDArray[np.generic]) -> None:
    sums = np.bincount(trace.arrays, weights=weights, minlength=len(trace.names))
    for name, value in zip(trace.names, sums.tolist(), strict=True):
        into[name] += value


def stack_distances(lines: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64]]:
    """Return how many other lines are touched between each touch of a line and the one before.

    Lines are in the order in which they are touched. The first result sorts the touches by line, then by time; the
    second is whether a touch is the first of its line; the third are the distances, 0 for first touches, exact to about
    n / 250. All have shape (n,).
    """
    count = len(lines)
    order = order_of(lines)
    again = np.flatnonzero(lines[order][1:] == lines[order][:-1])
    before = np.full(count, -1, dtype=np.int64)
    before[order[again + 1]] = order[again]
    points = max(1, min(_POINTS, count // 4))
    now = np.arange(count)
    there = np.where(before >= 0, before * points // count, -1)
    # Touches in one stretch of time by the stretch of the touch before; those whose line was not touched since a
    # stretch began are the distinct lines since then.
    joint = np.bincount((now * points // count) * (points + 1) + there + 1, minlength=points * (points + 1))
    since = np.cumsum(joint.reshape(points, points + 1), axis=1)
    until = np.vstack((np.zeros((1, points + 1), dtype=np.int64), np.cumsum(since, axis=0)))
    met = until - np.diagonal(until)
    start, end = (before + 1) * points / count, now * points / count
    x, y = start.astype(np.int64), end.astype(np.int64)
    right, up = start - x, end - y
    x1, y1 = np.minimum(x + 1, points), np.minimum(y + 1, points)
    between = (1 - up) * ((1 - right) * met[y, x] + right * met[y, x1])
    between += up * ((1 - right) * met[y1, x] + right * met[y1, x1])
    # Within one stretch nothing is known but the time.
    distance = np.minimum(np.where(y > x, between, np.inf), now - before - 1)
    return order, before < 0, np.where(before >= 0, distance, 0.0)
