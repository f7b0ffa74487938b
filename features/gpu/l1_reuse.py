"""Which loads the L1 cache serves: by how many other lines a compute unit touches before it loads a line again.

A line is lost once more other lines were touched than the cache has room for (its stack distance: Mattson, Gecsei,
Slutz, Traiger, Evaluation techniques for storage hierarchies, 1970). That takes the place of a curve over the data of a
whole work-group: a work-group that sweeps through planes loads many, of which it needs few at any time, and work-groups
that a compute unit holds together may need the same ones.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.guards import guards_of
from perflex.features.gpu.l1_trace import trace_of, turns_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.features.gpu.l1 import Lines
    from perflex.features.gpu.l1_trace import Trace
    from perflex.features.gpu.resolved import ResolvedLaunch

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
    """What resident work-groups load from the L2 cache, in sectors by array, over some compute units.

    Attributes
    ----------
    loads
        Distinct sectors of each instruction.
    alone, together
        Distinct sectors of each work-group, and of all that a compute unit holds together.
    missed
        Loads that find their sector neither loaded before nor still there.
    cut
        Whether this is only the beginning of what the work-groups do.
    """

    loads: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    alone: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    together: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    missed: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    cut: bool = False


def resident_reuse(
    launch: ResolvedLaunch, resident: int, units: int, capacity: float, lines: Lines, offsets: dict[str, int]
) -> Reuse:
    """Return what the L1 cache serves of the loads of work-groups that run together.

    Parameters
    ----------
    launch
        The launch at given sizes.
    resident, units
        Work-groups that a compute unit holds at once, and compute units.
    capacity
        Size of the L1 cache in bytes.
    lines
        Sizes of lines, sectors and sub-groups.
    offsets
        Byte address of each array's first element, modulo a line.

    Raises
    ------
    UnsupportedKernelError
        An access is too irregular.
    """
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
    by_sector = np.argsort(trace.sectors, kind="stable")
    alike = np.zeros(len(by_sector), dtype=np.int64)
    _tally(total.together, trace, weights * _unsorted(_differing(trace.sectors, alike, by_sector), by_sector))
    by_group = np.lexsort((trace.groups, trace.sectors))
    _tally(total.alone, trace, weights * _unsorted(_differing(trace.sectors, trace.groups, by_group), by_group))
    lines = trace.sectors // sectors_per_line
    # Sectors of a line that a burst loads are neighbours, and touch the line once.
    touch = np.ones(len(lines), dtype=bool)
    touch[1:] = (lines[1:] != lines[:-1]) | (trace.bursts[1:] != trace.bursts[:-1])
    order, first, distance = stack_distances(lines[touch])
    touches = np.cumsum(touch) - 1
    room *= _usable(lines)
    for share in _SHARES:
        # A line's life ends where it is lost: its sectors are loaded once in each of its lives, which follow in time.
        life = np.empty(len(order), dtype=np.int64)
        life[order] = np.cumsum((first | (distance >= share * room))[order])
        missed = _unsorted(_differing(trace.sectors, life[touches], by_sector), by_sector)
        _tally(total.missed, trace, weights * missed / len(_SHARES))


def _usable(lines: NDArray[np.int64]) -> float:
    """Return the share of the capacity that lines can use, by how evenly they fall into sets."""
    used = np.bincount(np.unique(lines) % _SETS, minlength=_SETS).astype(float)
    # The number of sets that as many lines would use evenly.
    even = float(used.sum() ** 2 / (used**2).sum())
    return _LEAST + (1 - _LEAST) * (even - 1) / (_SETS - 1)


def _differing(first: NDArray[np.int64], second: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of some pairs differ from the one before them in an order."""
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
    return new


def _unsorted(values: NDArray[np.bool_], order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return values, which are given in an order, in the order of time."""
    result = np.empty(len(order), dtype=bool)
    result[order] = values
    return result


def _tally(into: dict[str, float], trace: Trace, weights: NDArray[np.generic]) -> None:
    sums = np.bincount(trace.arrays, weights=weights, minlength=len(trace.names))
    for name, value in zip(trace.names, sums.tolist(), strict=True):
        into[name] += value


def stack_distances(lines: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64]]:
    """Return how many other lines are touched between each touch of a line and the one before.

    Parameters
    ----------
    lines
        The lines in the order in which they are touched, shape (n,).

    Returns
    -------
    tuple of numpy.ndarray
        The touches sorted by line, then by time; whether a touch is the first of its line; and the distances, 0 for
        first touches, exact to about n / 250. Shapes (n,).
    """
    count = len(lines)
    order = np.argsort(lines, kind="stable")
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
