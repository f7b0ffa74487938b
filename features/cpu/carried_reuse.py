"""Reuse between the accesses of a group, split by the windows of time that it passes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from perflex.features.cpu.reuse_windows import Footprints, Window, forward, outermost
from perflex.features.cpu.traced import at_least, smaller


def carried(footprints: Footprints, place: int, number: int) -> list[tuple[Any, Window]]:
    """Return how the reuse over one of a group's gaps splits: parts, and the window of each.

    They add up to less than one where some of it begins on another core.
    """
    parts = _carried(footprints, place, number)
    return [(part * (1 - _lost(footprints, window)), window) for part, window in parts]


def _lost(footprints: Footprints, window: Window) -> Any:
    over = outermost(window)
    return footprints.dealing.lost(over, window[over]) if over < len(window) else 0.0


def _carried(footprints: Footprints, place: int, number: int) -> list[tuple[Any, Window]]:
    """Return how that reuse splits where all of it stays on one core.

    In a loop that is blocked, the last iterations of a block find what they need with an access before the gap that
    reaches further, else in the next block.
    """
    group = footprints.nest.groups[place]
    gap = group.gaps[number]
    same, beside = footprints.beside(place, gap)
    near = _in_iteration(footprints, place, gap)
    if near:
        return [(near, (0,) * len(gap)), (1 - near, gap)]
    if same:
        over = outermost(gap)
        return [(same, beside), (1 - same, tuple(int(loop == over) for loop in range(len(gap))))]
    events: list[tuple[Any, Window]] = [(1, gap)]
    for axis in range(len(group.axes)):
        stride, steps = footprints.movement(place, axis)
        # Along a row, the rest of its last line says the same.
        if axis == 0 and steps and np.all(steps[0][1] * stride < footprints.line):
            continue
        for depth, ((inner, _), (outer, _)) in enumerate(pairwise(steps)):
            inside = 1.0 if depth else footprints.inside(loop for loop, _ in steps[1:])
            split: list[tuple[Any, Window]] = []
            for part, window in events:
                if not window[inner]:
                    split.append((part, window))
                    continue
                before = (
                    _further(group.gaps[: number + 1], inner) if window == gap else [(window, abs(window[inner]), 0)]
                )
                # What each access falls short by; none of them has what is left to the next block.
                length = footprints.extents[inner]
                parts = [
                    smaller(smaller(short + at_least(before[0][1] + ahead - length, 0), before[0][1]) / length, 1.0)
                    * inside
                    for _, short, ahead in before
                ]
                moved = list(window)
                moved[outer] = 1 if window[inner] > 0 else -1
                moved[inner] = 0
                split += [(part * (1 - parts[0]), window), (part * parts[-1], forward(moved))]
                for (longer, *_), (more, less) in zip(before[1:], pairwise(parts), strict=True):
                    split.append((part * (more - less), longer))
            events = split
    return events


def _in_iteration(footprints: Footprints, place: int, gap: Window) -> float:
    """Return the part of two accesses' elements that one iteration of the innermost loop finds in the same line."""
    group, inner = footprints.nest.groups[place], len(gap) - 1
    if not gap or outermost(gap) != inner or group.near is None:
        return 0.0
    if [loop for loop, _ in footprints.movement(place, 0)[1]] != [inner]:
        return 0.0
    return max(0.0, 1 - gap[inner] * group.near / footprints.line)


def _further(gaps: Sequence[Window], loop: int) -> list[tuple[Window, int, int]]:
    """Return windows to accesses before a group's last gap, and by how many iterations of a loop each falls short.

    The nearest access comes first, then only those that fall short by less. The third number is by how many iterations
    an access is ahead, the last ones of which fall into the next block.
    """
    found: list[tuple[Window, int, int]] = []
    total = [0] * len(gaps[-1])
    for gap in reversed(gaps):
        total = [one + more for one, more in zip(total, gap, strict=True)]
        behind = total[loop] if gaps[-1][loop] > 0 else -total[loop]
        if not found or max(0, behind) < found[-1][1]:
            found.append((forward(total), max(0, behind), max(0, -behind)))
    return found
