"""Which loads the L1 cache serves: by how many other lines a compute unit touches before it loads a line again.

A line is lost once more other lines were touched than the cache has room for (its stack distance: Mattson, Gecsei,
Slutz, Traiger, Evaluation techniques for storage hierarchies, 1970). That takes the place of a curve over the data of a
whole work-group: a work-group that sweeps through planes loads many, of which it needs few at any time, and work-groups
that a compute unit holds together may need the same ones. What these load and store is a
trace of sectors (`trace`).

What the L1 cache does not serve goes on to the L2 cache, with all stores. All compute units do as much at the same
time, so that a unit's share of the room is what it needs of the data of a wave: what several units load is there once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.integer_sets import order_of
from perflex.features.gpu.trace import Trace, changes, trace_of, turns_of
from perflex.features.gpu.work_group_kinds import guards_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.features.gpu.l1 import Lines
    from perflex.features.gpu.resolved_launch import ResolvedLaunch

    Integers = NDArray[np.int64]


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
    # what the L2 cache has lost between two uses by the same work-groups: sectors that DRAM loads again, and stores of
    # sectors that it has written already
    reloaded: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    rewritten: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stores: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # distinct sectors of each instruction


@dataclass(frozen=True)
class Below:
    """The L2 cache and what a wave needs of it."""

    capacity: float  # bytes
    units: int  # compute units that share it
    wave: float  # distinct bytes that a wave loads
    group: float  # distinct bytes that a work-group loads, on average

    def room(self, trace: Trace, sector: int) -> float:
        """Return how many of its sectors the work-groups of one unit can use, as all others need as many.

        What several units load is there once.
        """
        if self.capacity == inf:
            return inf
        loads = trace.part(~trace.stored)
        mine = _firsts(order_of(loads.sectors, loads.turns), loads.sectors, loads.turns).sum() * sector
        if trace.cut:
            alone = _firsts(order_of(loads.sectors, loads.groups), loads.sectors, loads.groups).sum() * sector
            mine *= self.group * len(np.unique(loads.groups)) / max(1, alone)
        mine /= max(1, len(np.unique(loads.turns)))
        others = min(self.units, max(1.0, self.wave / mine)) if mine else self.units
        return self.capacity / others / sector


def resident_reuse(
    launch: ResolvedLaunch, resident: int, capacity: float, lines: Lines, offsets: dict[str, int], below: Below
) -> Reuse:
    """Return what the L1 cache (of `capacity` bytes) serves of the loads of work-groups that run together."""
    samples = _SAMPLES_OF_FEW if resident in _FEW else _SAMPLES
    guards = guards_of(launch)
    running = None if guards.even else np.flatnonzero(guards.running())
    sampled = [turns_of(launch.groups, resident, below.units, sample, samples, running) for sample in range(samples)]
    traces = [trace_of(launch, turns, lines, offsets) for turns in sampled]
    total = Reuse(cut=any(trace.cut for trace in traces))
    for trace in traces:
        if len(trace.sectors):
            _add(total, trace, capacity / lines.line, lines.line // lines.sector, below.room(trace, lines.sector))
    return total


def _add(total: Reuse, every: Trace, room: float, sectors_per_line: int, room_below: float) -> None:
    if total.cut:
        # The beginning finds an empty cache; where there is no end either, the second half stands for the rest.
        every = replace(every, weights=np.where(every.bursts >= every.bursts[-1] // 2, every.weights, 0.0))
    trace = every.part(~every.stored)
    weights = trace.weights
    _tally(total.loads, trace, weights * trace.times)
    _tally(total.stores, every, every.weights * every.times * every.stored)
    # Sorting is stable: of the loads of a sector, the earliest stands first.
    by_sector = order_of(trace.sectors)
    _tally(total.together, trace, weights * _firsts(by_sector, trace.sectors))
    by_group = order_of(trace.sectors, trace.groups)
    _tally(total.alone, trace, weights * _firsts(by_group, trace.sectors, trace.groups))
    lines = trace.sectors // sectors_per_line
    room *= _usable(lines)
    order, first, distance, touches = _touches(lines, trace.bursts)
    below: dict[int, tuple[NDArray[np.bool_], int]] = {}
    for share in _SHARES:
        # A line's life ends where it is lost: its sectors are loaded once in each of its lives, which follow in time.
        life = _lives(order, first | (distance >= share * room))[touches]
        missed = _firsts(by_sector, trace.sectors, life)
        _tally(total.missed, trace, weights * missed / len(_SHARES))
        # A larger share misses part of what a smaller one does: as many are the same.
        number = int(missed.sum())
        below[number] = missed, below[number][1] + 1 if number in below else 1
    for missed, shares in below.values():
        rows = every.stored.copy()
        rows[~every.stored] = missed
        _add_below(total, every.part(rows), room_below, shares / len(_SHARES))


# DRAM is accessed by pairs of sectors.
_PAIR = 2


def _add_below(total: Reuse, trace: Trace, room: float, weight: float) -> None:
    """Add what of the misses of L1 and the stores of one unit the L2 cache has lost, so many sectors being its own."""
    pairs = trace.sectors // _PAIR
    if _PAIR * len(pairs) < room:
        return
    order, first, distance, touches = _touches(pairs, trace.bursts)
    lost = _PAIR * distance >= room
    if not lost.any():
        return
    life = _lives(order, first | lost)[touches]
    for again, size, places, rows in (
        (total.reloaded, _PAIR, pairs, ~trace.stored), (total.rewritten, 1, trace.sectors, trace.stored),
    ):  # fmt: skip
        # What a turn needs that an earlier one has touched is another matter: see `left_in_l2`.
        part, mine, lives = trace.part(rows), places[rows], life[rows]
        once = _firsts(order_of(mine, part.turns), mine, part.turns)
        each = _firsts(order_of(mine, part.turns, lives), mine, part.turns, lives)
        _tally(again, part, part.weights * (each & ~once) * size * weight)


def _touches(places: Integers, bursts: Integers) -> tuple[Integers, NDArray[np.bool_], NDArray[np.float64], Integers]:
    """Return `stack_distances` of what bursts touch once each, and the number of each row's touch."""
    # Sectors of a line that a burst loads are neighbours, and touch the line once.
    touch = changes(places, bursts)
    return *stack_distances(places[touch]), np.cumsum(touch) - 1


def _lives(order: Integers, begins: NDArray[np.bool_]) -> Integers:
    """Return the number of each touch's life; `order` and `begins` are sorted as by `stack_distances`."""
    life = np.empty(len(order), dtype=np.int64)
    life[order] = np.cumsum(begins[order])
    return life


def _usable(lines: NDArray[np.int64]) -> float:
    """Return the share of the capacity that lines can use, by how evenly they fall into sets."""
    used = np.bincount(np.unique(lines) % _SETS, minlength=_SETS).astype(float)
    # The number of sets that as many lines would use evenly.
    even = float(used.sum() ** 2 / (used**2).sum()) if len(lines) else _SETS
    return _LEAST + (1 - _LEAST) * (even - 1) / (_SETS - 1)


def _tally(into: dict[str, float], trace: Trace, weights: NDArray[np.generic]) -> None:
    sums = np.bincount(trace.arrays, weights=weights, minlength=len(trace.names))
    for name, value in zip(trace.names, sums.tolist(), strict=True):
        into[name] += value


def _firsts(order: Integers, *columns: Integers) -> NDArray[np.bool_]:
    """Return which rows are the first of equal ones; `order` puts these side by side."""
    first = np.empty(len(order), dtype=bool)
    first[order] = changes(*(column[order] for column in columns))
    return first


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
