"""Waves that stand for all waves of a launch.

Work-groups start in the order of their numbers, x first; those in which nothing runs leave at once and take no room.
Where the grid is even, one wave stands for all (`wave_of`). Elsewhere, and where there are few, waves are taken as they
are: so many running work-groups, one after the other; of many, some of each sort are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.geometry import Wave, filled_groups, wave_of
from perflex.features.gpu.guards import guards_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.gpu.geometry import Boxes
    from perflex.features.gpu.resolved import ResolvedLaunch

# Launches of no more waves are looked at as a whole.
_FEW_WAVES = 12
# Of others so many are looked at, fewer where a work-item has many accesses, each of which takes time.
_MOST_WAVES = 32
_MOST_ACCESSES = 1200
# Kinds of work-groups that waves are sorted by; of more, neighbouring ones are taken for each other.
_MOST_KINDS = 16
# Waves are of a sort whose numbers of each kind are equal in such parts of a wave, tried from fine to coarse.
_PARTS = (16, 8, 4, 2, 0)
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Waves:
    """Waves with weights.

    Attributes
    ----------
    members
        The waves and how many each stands for.
    shares
        Part of all waves that have a set before them in x, y and z; those at the grid's lower edges have none.
    """

    members: tuple[tuple[Wave, float], ...]
    shares: tuple[float, float, float]


def waves_of(launch: ResolvedLaunch, resident: int, *, full_y_set: bool, edges: bool = True) -> Waves:
    """Return waves of so many work-groups that stand for all of a launch.

    Parameters
    ----------
    launch
        The launch at given sizes.
    resident
        Work-groups on all compute units.
    full_y_set
        Whether the y set is as high as the wave, rather than one row of work-groups.
    edges
        Whether an even grid's first waves, which have nothing before them, count; else all are taken for inner ones.

    Raises
    ------
    UnsupportedKernelError
        The grid is uneven and has too many work-groups.
    """
    groups = launch.groups
    few = edges and prod(groups) <= _FEW_WAVES * resident
    if not guards_of(launch).even or few:
        return _in_order(launch, resident, full_y_set=full_y_set)
    wave = wave_of(groups, filled_groups(launch), resident, full_y_set=full_y_set)
    shares = [1.0, 1.0, 1.0]
    for axis, ((low, high), extent) in enumerate(zip(wave.now[0], groups, strict=True)):
        if edges:
            shares[axis] = 1 - (high - low + 1) / extent
    return Waves(((wave, 1.0),), (shares[0], shares[1], shares[2]))


def _in_order(launch: ResolvedLaunch, resident: int, *, full_y_set: bool) -> Waves:
    numbers = np.flatnonzero(guards_of(launch).running())
    count = ceil(len(numbers) / resident)
    first = numbers[::resident]
    last = np.append(numbers[resident - 1 : (count - 1) * resident : resident], numbers[-1:])
    chosen = [(number, 1.0) for number in range(count)]
    accesses = sum(len(piece.accesses) for piece in launch.pieces)
    most = max(_FEW_WAVES, min(_MOST_WAVES, _MOST_ACCESSES // max(1, accesses)))
    if count > most:
        chosen = _chosen(most, _sorts(launch, numbers, resident, (first, last)))
    members = tuple(
        (_wave(launch.groups, int(first[n]), int(last[n]), int(first[max(0, n - 1)]), full_y_set=full_y_set), weight)
        for n, weight in chosen
    )
    total = sum(weight for _, weight in members)
    shares = [sum(weight for wave, weight in members if wave.before[axis]) / total for axis in range(3)]
    return Waves(members, (shares[0], shares[1], shares[2]))


def _sorts(
    launch: ResolvedLaunch, numbers: np.ndarray, resident: int, ends: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return the sort of each wave, of which there are few: by the kinds of its work-groups and what lies before it."""
    guards, (first, last) = guards_of(launch), ends
    kept = [np.arange(len(one.runs)) * min(_MOST_KINDS, len(one.runs)) // len(one.runs) for one in guards.components]
    kinds = np.unique(guards.everywhere(kept)[numbers], return_inverse=True)[1]
    most = int(kinds.max()) + 1
    kinds, most = kinds * min(_MOST_KINDS, most) // most, min(_MOST_KINDS, most)
    waves = np.arange(len(numbers)) // resident
    amounts = np.bincount(waves * most + kinds, minlength=len(first) * most).reshape(-1, most)
    # The first wave, row and layer have less before them than others.
    lower = sum((first >= prod(launch.groups[:axis])).astype(np.int64) for axis in range(len(launch.groups)))
    # Waves that begin a layer, or reach into the next one, find nothing of its rows before them.
    row, layer = launch.groups[0], prod(launch.groups[:2])
    begins = (first % layer < row) | (first // layer != last // layer)
    for parts in _PARTS:
        marks = np.column_stack([lower, begins, np.rint(parts * amounts / resident).astype(np.int64)])
        different, sorts = np.unique(marks, axis=0, return_inverse=True)
        if len(different) <= _FEW_WAVES:
            break
    return np.asarray(sorts).ravel()


def _chosen(most: int, sorts: np.ndarray) -> list[tuple[int, float]]:
    """Return waves and how many each stands for: of each sort at least one, of all about so many."""
    found = []
    for sort in range(int(sorts.max()) + 1):
        members = np.flatnonzero(sorts == sort)
        times = min(len(members), max(1, round(most * len(members) / len(sorts))))
        # Somewhere in each of equal parts in the order of the launch: the golden ratio's multiples, which fall in step
        # with no row of work-groups.
        places = (np.arange(times) + (_GOLDEN * np.arange(1, times + 1)) % 1) * len(members) / times
        found += [(int(members[int(place)]), len(members) / times) for place in places]
    return found


def _wave(groups: Sequence[int], first: int, last: int, previous: int, *, full_y_set: bool) -> Wave:
    """Return the wave of work-groups by their numbers, and the sets before it, as far back as reuse is looked for."""
    row, layer = groups[0], prod(groups[:2])
    # As with boxes: one wave back in a row, else one row, and one layer.
    back = [previous if last - first + 1 < row else first]
    back.append(first - (max(row, last - first + 1) if full_y_set else row) if len(groups) > 1 else first)
    back.append(first - layer if len(groups) > 2 else first)
    sets = [_boxes(max(0, start), first - 1, groups) if start < first and first else () for start in back]
    return Wave(_boxes(first, last, groups), (sets[0], sets[1], sets[2]))


def _boxes(first: int, last: int, groups: Sequence[int]) -> Boxes:
    """Return disjoint boxes of the work-groups with numbers from first to last."""
    if len(groups) == 1:
        return (((first, last),),)
    layer = prod(groups[:-1])
    (low, from_), (high, to) = divmod(first, layer), divmod(last, layer)
    if low == high:
        return tuple((*box, (low, low)) for box in _boxes(from_, to, groups[:-1]))
    found: list[tuple[tuple[int, int], ...]] = []
    if from_:
        found += [(*box, (low, low)) for box in _boxes(from_, layer - 1, groups[:-1])]
        low += 1
    end = []
    if to < layer - 1:
        end = [(*box, (high, high)) for box in _boxes(0, to, groups[:-1])]
        high -= 1
    if low <= high:
        found.append((*((0, extent - 1) for extent in groups[:-1]), (low, high)))
    return (*found, *end)
