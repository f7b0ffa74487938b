"""What the work-groups of a compute unit load and store, in order: a trace of sectors.

Sub-groups advance together, as a fair scheduler lets them, in the order of the schedule, that of the iterations in
unrolled loops as well. Each issues `_BURST` loads back to back, also from one iteration of a loop to the next, but
none across a branch; the loads of one statement instance are taken in the order of their addresses. Which sub-group
comes first is random, since none waits for another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.integer_sets import order_of
from perflex.features.gpu.memory_instructions import IDLE, executing, first_of_each, in_sub_groups, work_items

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
    """Sectors that are loaded or stored, in order; what a sub-group does several times at once stands there once."""

    sectors: Integers  # number of each sector, shape (n,); those of different arrays differ
    bursts: Integers  # number of the sub-group's burst that touches it, ascending, shape (n,)
    times: Integers  # how many of the burst's instructions load, or store, it, shape (n,)
    stored: NDArray[np.bool_]  # whether they store it, shape (n,)
    arrays: Integers  # position in `names` of its array, shape (n,)
    groups: Integers  # number of the work-group, shape (n,)
    turns: Integers  # number of its turn, shape (n,)
    weights: NDArray[np.float64]  # weight of that turn, shape (n,)
    names: tuple[str, ...]  # the arrays
    cut: bool  # whether the work-groups go on beyond the end

    def part(self, rows: NDArray[np.bool_]) -> Trace:
        """Return some of it."""
        columns = ("sectors", "bursts", "times", "stored", "arrays", "groups", "turns", "weights")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})


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
    """Return loads from and stores to global memory of work-groups that run on a compute unit, turn by turn."""
    names = tuple(name for name, space in launch.spaces.items() if space == "global")
    numbered = list(enumerate((turn, group) for turn, one in enumerate(turns) for group in one.groups))
    most = _MOST_INSTRUCTIONS // max(1, len(numbered))
    chunks = [chunk for group in numbered for chunk in _group_accesses(launch, group, lines, offsets, names, most)]
    if not chunks:
        empty = np.zeros(0, dtype=np.int64)
        return Trace(empty, empty, empty, empty > 0, empty, empty, empty, empty.astype(float), names, cut=False)
    keys = _joined([chunk.keys for chunk in chunks])
    places, warps, arrays, sectors, stored, guards = np.concatenate([chunk.rows for chunk in chunks], axis=1)
    sectors = _moved_apart(sectors, arrays, len(names))
    # Each turn is cut by itself, so that the first column, the turn, is left out.
    cuts = [chunk.last[1:] for chunk in chunks if chunk.last is not None]
    if cuts:
        # What a piece does beyond its cut is not known, so that the trace ends where the first piece was cut.
        kept = _before(keys[:, 1:], min(map(tuple, _joined(cuts, keys.shape[1] - 1).tolist())))
        keys, places, warps = keys[kept], places[kept], warps[kept]
        arrays, sectors, stored, guards = arrays[kept], sectors[kept], stored[kept], guards[kept]
    # A sub-group goes on with the next iteration of a loop while it waits for the loads of this one.
    rounds = _rounds((*keys[:, 1:].T, guards, places), stored > 0, guards)
    rounds += keys[:, 0] * (int(rounds.max(initial=0)) + 1)
    turn = np.random.default_rng(0).random((int(rounds.max(initial=0)) + 1, int(warps.max(initial=0)) + 1))
    order = order_of(rounds, turn.argsort(axis=1).argsort(axis=1)[rounds, warps], stored, sectors)
    rounds, warps, arrays, sectors, stored = (each[order] for each in (rounds, warps, arrays, sectors, stored))
    burst = np.cumsum(changes(rounds, warps)) - 1
    first = np.flatnonzero(changes(burst, stored, sectors))
    times = np.diff(np.append(first, len(sectors)))
    groups = warps[first] // -(-prod(launch.items) // lines.lanes)
    of_groups = np.array([turn for _, (turn, _) in numbered])[groups]
    weights = np.array([turn.weight for turn in turns])[of_groups]
    touched = sectors[first], burst[first], times, stored[first] > 0, arrays[first]
    return Trace(*touched, groups, of_groups, weights, names, cut=bool(cuts))


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


def changes(*columns: Integers) -> NDArray[np.bool_]:
    """Return which rows differ from the one before."""
    new = np.ones(len(columns[0]), dtype=bool)
    new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return new


def _rounds(columns: Sequence[Integers], stored: NDArray[np.bool_], guards: Integers) -> Integers:
    """Return the number of each row's burst: of so many different loads, or stores if these are more, in their order.

    Compilers move no load across a branch, so that a burst ends where other conditions hold.
    """
    order = order_of(*columns)
    new, stores, branch = changes(*(column[order] for column in columns)), stored[order], changes(guards[order])
    part, begin = np.cumsum(branch) - 1, np.flatnonzero(branch)
    made = np.stack((new & ~stores, new & stores))
    before: Integers = np.cumsum(made, axis=1) - made
    ranks = np.max(before - before[:, begin][:, part] + made, axis=0)
    rounds = np.empty(len(order), dtype=np.int64)
    rounds[order] = np.cumsum(changes(part, np.maximum(ranks - 1, 0) // _BURST)) - 1
    return rounds


@dataclass(frozen=True)
class _Chunk:
    """Loads and stores of a statement of one work-group."""

    keys: Integers  # of the schedule, a row for each of them
    # place in the statement, sub-group, array and sector of each, whether it is a store, and the number of the
    # conditions that work-items have to fulfil, shape (6, accesses)
    rows: Integers
    last: Integers | None  # key of the last iteration, if more follow that are left out


def _group_accesses(
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
    conditions = [_condition(piece, first) for piece in launch.pieces]
    for number, piece in enumerate(launch.pieces):
        part = piece.within([(position, position) for position in group])
        # Of values that are in registers already no load is left.
        made = [one for one in piece.issued if launch.spaces[one.access.array] == "global" and len(one.offsets)]
        if part is None or not made:
            continue
        # Loads whose values are kept over inner loops come before those.
        for kept in sorted({one.loops for one in made}, reverse=True):
            mine = [one for one in made if one.loops == kept]
            instructions = sum(len(one.offsets) for one in mine if one.access.direction == "load")
            steps, last = _iterations(part, first, kept, most // max(1, instructions * sub_groups) + 1)
            points = work_items(launch, group)
            points |= {dim: np.asarray(part.ranges[dim][0]) for dim in range(first, len(part.ranges))}
            points |= {dim: values[:, None] for dim, values in steps.items()}
            count = len(next(iter(steps.values()))) if steps else 1
            alive = np.broadcast_to(executing(launch, part, points), (count, prod(launch.items)))
            keys = _keys(part, (turn, number), steps, count)
            addresses = sorted(
                (one.access.direction, one.access.array, one.address.constant + shift, place, shift, iterations)
                for place, one in enumerate(mine)
                for shift, iterations in zip(one.offsets.tolist(), one.iterations.tolist(), strict=True)
            )
            # Compilers and generators order the loads of a statement by address: neighbours share lines. Stores follow.
            bases = np.stack(
                [np.broadcast_to(one.address(points) + offsets.get(one.access.array, 0), alive.shape) for one in mine]
            )
            positions, shifts = np.array([each[3:5] for each in addresses]).T
            found = np.where(alive, bases[positions] + shifts[:, None, None], IDLE)
            filled = in_sub_groups(found.reshape(-1, found.shape[-1]), lines.lanes)
            filled = filled.reshape(len(addresses), count, *filled.shape[1:])
            sectors, new = first_of_each(filled, lines.sector)
            places, when, warps, _ = np.nonzero(new)
            arrays, stored = np.array([(names.index(array), way == "store") for way, array, *_ in addresses]).T
            warps += place_in_unit * sub_groups
            under = np.full(len(places), conditions.index(_condition(piece, first)))
            rows = np.stack([places, warps, arrays[places], sectors[new], stored[places], under])
            # In those loops stand their loads where they are first needed: as generators write them out.
            inner = 2 * (len(steps) + 1 + np.arange(kept))
            inner = inner[inner < 2 * len(part.order)]
            starts = np.array([low for low, _ in part.ranges[len(part.ranges) - kept :]], dtype=np.int64)
            placed = keys[when]
            placed[:, inner] = (np.array([each[5] for each in addresses]).reshape(len(addresses), kept) + starts)[
                places, : len(inner)
            ]
            yield _Chunk(placed, rows, None if last is None else keys[last])


def _condition(piece: ResolvedPiece, first: int) -> tuple[object, ...]:
    """Return what work-groups and work-items have to fulfil to execute a piece."""
    return piece.ranges[:first], frozenset(form for form in piece.constraints if max(form.dims, default=0) < first)


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


# Beyond any iteration.
_LAST = 1 << 50


def _keys(piece: ResolvedPiece, place: tuple[int, int], steps: dict[int, Integers], count: int) -> Integers:
    """Return the place of each iteration: its turn, then places in the order and values of loops alternate."""
    turn, number = place
    values = list(steps.values())
    columns: list[Integers] = [np.full(count, turn, dtype=np.int64)]
    for depth, step in enumerate(piece.order or (number,)):
        if depth:
            # Beyond what a kept loop has, so that all its iterations come before the end of a cut.
            columns.append(values.pop(0) if values else np.full(count, _LAST, dtype=np.int64))
        columns.append(np.full(count, step, dtype=np.int64))
    columns += values
    return np.column_stack(columns)


def _joined(keys: list[Integers], width: int = 0) -> Integers:
    # Shorter keys come before longer ones that begin alike: a statement before the loop that follows it.
    rows = [np.atleast_2d(key) for key in keys]
    joined = np.full((sum(map(len, rows)), width or max(key.shape[1] for key in rows)), -1, dtype=np.int64)
    start = 0
    for key in rows:
        joined[start : start + len(key), : key.shape[1]] = key
        start += len(key)
    return joined


def _before(keys: Integers, end: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which keys are not behind another in lexicographic order."""
    result = np.ones(len(keys), dtype=bool)
    undecided = np.arange(len(keys))
    for column, value in zip(keys.T, end, strict=True):
        mine = column[undecided]
        result[undecided[mine > value]] = False
        undecided = undecided[mine == value]
    return result
