"""What the work-groups that a compute unit holds load, in an order in which they may: a trace of sectors.

Sub-groups advance together, as a fair scheduler lets them, in the order of the schedule. Each issues `BURST` loads back
to back, also from one iteration of a loop to the next; the loads of one statement instance are taken in the order of
their addresses. Which sub-group comes first is random, since none waits for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.wavefronts import IDLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from perflex.features.gpu.l1 import Lines
    from perflex.features.gpu.resolved import Issued, ResolvedLaunch, ResolvedPiece

    Integers = NDArray[np.int64]

BURST = 16
"""Loads of a sub-group that are under way at once: half of the registers of a work-item with 64, in doubles."""
# A trace of more instructions is cut; it then touches many times as many lines as an L1 cache has.
_MOST_INSTRUCTIONS = 20_000
# Arrays lie so many sectors apart, and begin at such multiples: none shares a line with another.
_APART = 1 << 10
# As many waves are looked at one by one on a machine of fewer units.
_MOST_WAVES, _MANY_UNITS = 4, 16


@dataclass(frozen=True)
class Trace:
    """Sectors that are loaded, in order; what a sub-group loads several times at once stands there once.

    Attributes
    ----------
    sectors
        Number of each sector, shape (n,); those of different arrays differ.
    bursts
        Number of the sub-group's burst that loads it, ascending, shape (n,).
    loads
        How many of the burst's instructions load it, shape (n,).
    arrays
        Position in `names` of its array, shape (n,).
    groups
        Number of the work-group, shape (n,).
    weights
        Weight of the work-group's turn, shape (n,).
    names
        The arrays.
    cut
        Whether the work-groups go on beyond the end.
    """

    sectors: Integers
    bursts: Integers
    loads: Integers
    arrays: Integers
    groups: Integers
    weights: NDArray[np.float64]
    names: tuple[str, ...]
    cut: bool


@dataclass(frozen=True)
class Turn:
    """Work-groups that a compute unit holds at once.

    Attributes
    ----------
    groups
        The work-groups.
    weight
        How many such turns of the unit it stands for; 0 if it only leaves data in the cache for the next.
    """

    groups: tuple[tuple[int, ...], ...]
    weight: float


def turns_of(
    grid: Sequence[int], resident: int, units: int, sample: int, samples: int, running: Integers | None = None
) -> list[Turn]:
    """Return what one of several sampled compute units runs, in turns.

    The first work-groups are given out one by one to one unit after the other, axis 0 first. Later ones go where one
    has ended, which is any unit. Of many waves one stands for all, another for each sample, with the one before it on a
    machine of few units, where work-groups often follow their neighbours.

    Parameters
    ----------
    grid
        Extents of the grid.
    resident, units
        Work-groups that a compute unit holds at once, and compute units.
    sample, samples
        Which unit, of how many that are spread over all.
    running
        Numbers of the work-groups in which anything runs; without, it does in all. Others leave at once.
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
    """Return the loads from global memory of work-groups that run on a compute unit.

    Parameters
    ----------
    launch
        The launch at given sizes.
    turns
        The work-groups that run together, turn by turn.
    lines
        Sizes of sectors and sub-groups.
    offsets
        Byte address of each array's first element, modulo a line.
    """
    names = tuple(name for name, space in launch.spaces.items() if space == "global")
    numbered = list(enumerate((turn, group) for turn, one in enumerate(turns) for group in one.groups))
    most = _MOST_INSTRUCTIONS // max(1, len(numbered))
    chunks = [chunk for group in numbered for chunk in _group_loads(launch, group, lines, offsets, names, most)]
    if not chunks:
        empty = np.zeros(0, dtype=np.int64)
        return Trace(empty, empty, empty, empty, empty, empty.astype(float), names, cut=False)
    keys = _joined([chunk.keys for chunk in chunks])
    places = np.concatenate([np.full(len(chunk.sectors), chunk.place, dtype=np.int64) for chunk in chunks])
    warps = np.concatenate([chunk.warps for chunk in chunks])
    arrays = np.concatenate([np.full(len(chunk.sectors), chunk.array, dtype=np.int64) for chunk in chunks])
    sectors = _moved_apart(np.concatenate([chunk.sectors for chunk in chunks]), arrays, len(names))
    # Each turn is cut by itself, so that the first column, the turn, is left out.
    ends = {tuple(chunk.last[1:].tolist()) for chunk in chunks if chunk.last is not None}
    if ends:
        # What a piece does beyond its cut is not known, so that the trace ends where the first piece was cut.
        kept = np.all([_before(keys[:, 1:], end) for end in ends], axis=0)
        keys, places, warps = keys[kept], places[kept], warps[kept]
        arrays, sectors = arrays[kept], sectors[kept]
    # A sub-group goes on with the next iteration of a loop while it waits for the loads of this one.
    rounds = _ranks((*keys[:, 1:].T, places)) // BURST
    rounds += keys[:, 0] * (int(rounds.max(initial=0)) + 1)
    turn = np.random.default_rng(0).random((int(rounds.max(initial=0)) + 1, int(warps.max(initial=0)) + 1))
    order = np.lexsort((sectors, turn[rounds, warps], rounds))
    rounds, warps, arrays, sectors = rounds[order], warps[order], arrays[order], sectors[order]
    burst = np.cumsum(_changes(rounds, warps)) - 1
    first = np.flatnonzero(_changes(burst, sectors))
    loads = np.diff(np.append(first, len(sectors)))
    sub_groups = -(-prod(launch.items) // lines.lanes)
    groups = warps[first] // sub_groups
    weights = np.array([turns[turn].weight for _, (turn, _) in numbered])
    return Trace(
        sectors[first],
        burst[first],
        loads,
        arrays[first],
        groups,
        weights[groups],
        names,
        cut=bool(ends),
    )


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


def _ranks(columns: Sequence[Integers]) -> Integers:
    """Return the rank of each row in lexicographic order; equal rows have the same."""
    order = np.lexsort(columns[::-1])
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(_changes(*(column[order] for column in columns))) - 1
    return ranks


@dataclass(frozen=True)
class _Chunk:
    """Loads of one access of one work-group: schedule keys, place in the statement, sub-groups and sectors."""

    keys: Integers
    place: int
    warps: Integers
    sectors: Integers
    array: int
    last: Integers | None


def _group_loads(
    launch: ResolvedLaunch,
    numbered: tuple[int, tuple[int, tuple[int, ...]]],
    lines: Lines,
    offsets: dict[str, int],
    names: tuple[str, ...],
    most: int,
) -> Iterator[_Chunk]:
    place_in_unit, (turn, group) = numbered
    axes, items = len(launch.groups), prod(launch.items)
    sub_groups = -(-items // lines.lanes)
    local = np.unravel_index(np.arange(items), launch.items, order="F")
    first = axes + len(launch.items)
    for number, piece in enumerate(launch.pieces):
        part = piece.within([(position, position) for position in group])
        loads = [one for one in piece.issued if _is_load(launch, one)]
        if part is None or not loads:
            continue
        # Loads whose values are kept over inner loops come before those.
        for kept in sorted({one.loops for one in loads}, reverse=True):
            mine = [one for one in loads if one.loops == kept]
            instructions = sum(len(one.offsets) for one in mine)
            steps, last = _iterations(part, first, kept, most // max(1, instructions * sub_groups) + 1)
            points: dict[int, np.ndarray] = {axis: np.asarray(group[axis]) for axis in range(axes)}
            points |= {axes + axis: values[None, :] for axis, values in enumerate(local)}
            points |= {dim: np.asarray(part.ranges[dim][0]) for dim in range(first, len(part.ranges))}
            points |= {dim: values[:, None] for dim, values in steps.items()}
            alive = _alive(part, points, axes, local, len(next(iter(steps.values()))) if steps else 1)
            keys = _keys(part, (turn, number), steps, len(alive))
            addresses = sorted(
                (one.access.array, one.address.constant + shift, place, shift)
                for place, one in enumerate(mine)
                for shift in one.offsets.tolist()
            )
            # Compilers and generators order the loads of a statement by address: neighbours share lines.
            bases = [one.address.values(points) + offsets.get(one.access.array, 0) for one in mine]
            for place, (array, _, position, shift) in enumerate(addresses):
                when, warps, sectors = _sectors(bases[position] + shift, alive, lines)
                yield _Chunk(
                    keys[when],
                    place,
                    warps + place_in_unit * sub_groups,
                    sectors,
                    names.index(array),
                    None if last is None else keys[last],
                )


def _is_load(launch: ResolvedLaunch, issued: Issued) -> bool:
    return issued.access.direction == "load" and launch.spaces[issued.access.array] == "global"


def _alive(
    part: ResolvedPiece, points: dict[int, np.ndarray], axes: int, local: Sequence[np.ndarray], count: int
) -> NDArray[np.bool_]:
    """Return which work-items execute each iteration, shape (iterations, work-items)."""
    alive = np.ones((count, len(local[0])), dtype=bool)
    for axis, values in enumerate(local):
        low, high = part.ranges[axes + axis]
        alive &= (values >= low) & (values <= high)
    for guard in part.constraints:
        alive &= guard.values(points) >= 0
    return alive


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
    """Return the place of each iteration: its turn, then statement numbers and values of loops alternate."""
    turn, number = place
    values = list(steps.values())
    columns: list[Integers] = [np.full(count, turn, dtype=np.int64)]
    for step in piece.schedule:
        loop = isinstance(step, str)
        columns.append(values.pop(0) if loop and values else np.full(count, -1 if loop else step, dtype=np.int64))
    # Loops that no schedule names are the statement's own.
    if not piece.schedule:
        columns.append(np.full(count, number, dtype=np.int64))
    columns += values
    return np.column_stack(columns)


def _sectors(addresses: np.ndarray, alive: NDArray[np.bool_], lines: Lines) -> tuple[Integers, Integers, Integers]:
    """Return iteration, sub-group and number of each distinct sector of an instruction."""
    address = np.where(alive, addresses, IDLE)
    count, items = address.shape
    padded = -(-items // lines.lanes) * lines.lanes
    filled = np.full((count, padded), IDLE, dtype=np.int64)
    filled[:, :items] = address
    granules = np.sort(filled.reshape(count, -1, lines.lanes) // lines.sector, axis=-1)
    new = np.ones(granules.shape, dtype=bool)
    new[..., 1:] = granules[..., 1:] != granules[..., :-1]
    new &= granules != IDLE // lines.sector
    when, warps, _ = np.nonzero(new)
    return when, warps, granules[new]


def _joined(keys: list[Integers]) -> Integers:
    # Shorter keys come before longer ones that begin alike: a statement before the loop that follows it.
    joined = np.full((sum(map(len, keys)), max(key.shape[1] for key in keys)), -1, dtype=np.int64)
    start = 0
    for key in keys:
        joined[start : start + len(key), : key.shape[1]] = key
        start += len(key)
    return joined


def _before(keys: Integers, end: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which keys are not behind another in lexicographic order."""
    other = (*end, *[-1] * (keys.shape[1] - len(end)))
    result = np.ones(len(keys), dtype=bool)
    undecided = np.ones(len(keys), dtype=bool)
    for column, value in zip(keys.T, other, strict=True):
        result[undecided & (column > value)] = False
        undecided &= column == value
    return result
