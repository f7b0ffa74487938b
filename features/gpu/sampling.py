"""Work-groups that stand for all: those whose addresses and guards look alike are looked at once."""

from __future__ import annotations

from itertools import product
from math import gcd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.gpu.resolved import ResolvedLaunch

Group = tuple[int, ...]


def first_groups(wave: Sequence[tuple[int, int]], most: int) -> dict[Group, int]:
    """Return the grid's first work-groups, along each axis up to so many and no more than a wave has, with weight 1."""
    axes = [range(min(most, end + 1 - start)) for start, end in wave]
    return dict.fromkeys(product(*axes), 1)


def whole_grid(launch: ResolvedLaunch, line: int) -> dict[Group, int]:
    """Return work-groups with weights that add up to the grid.

    Addresses modulo a line repeat along each axis after a number of work-groups; one such period from the middle of the
    grid stands for all, but the first and last work-group along an axis for themselves where guards cut some.
    """
    axes = [_along(launch, axis, extent, line) for axis, extent in enumerate(launch.groups)]
    chosen: dict[Group, int] = {}
    for group in product(*axes):
        weight = 1
        for axis, position in zip(axes, group, strict=True):
            weight *= axis[position]
        chosen[group] = weight
    return chosen


def _along(launch: ResolvedLaunch, axis: int, extent: int, line: int) -> dict[int, int]:
    period, guarded = 1, False
    for piece in launch.pieces:
        guarded |= any(axis in guard.dims for guard in piece.constraints)
        guarded |= piece.ranges[axis] != (0, extent - 1)
        for access in piece.accesses:
            form = access.address
            if axis in form.floor_dims:
                period = max(period, line)
            # Lines are powers of two, so periods are too, and the largest is a multiple of all.
            period = max(period, line // gcd(line, form.coefficient(axis)))
    # Work-groups at the grid's edges are cut by guards and stand for themselves.
    own = 1 if guarded else 0
    inner = extent - 2 * own
    if inner <= period:
        return dict.fromkeys(range(extent), 1)
    start = own + (inner - period) // 2
    # Each stands for those of its own alignment.
    weights = {
        position: 1 + (position - own) // period + (own + inner - 1 - position) // period
        for position in range(start, start + period)
    }
    return weights | ({0: 1, extent - 1: 1} if guarded else {})


def representatives(launch: ResolvedLaunch, groups: Mapping[Group, int], period: int) -> list[tuple[Group, int]]:
    """Return one work-group for each kind among some, with the sum of their weights.

    Those are of one kind whose addresses differ by multiples of a period, in bytes, and that guards treat alike.
    """
    kinds: dict[tuple[object, ...], tuple[Group, int]] = {}
    # Constants shift an access in all work-groups alike: only slopes tell work-groups apart.
    slopes = {
        tuple(a.address.coefficient(axis) for axis in range(len(launch.groups)))
        for piece in launch.pieces
        for a in piece.accesses
    }
    # A floor of a group id follows no slope, so each position along that axis is a kind of its own.
    floors = {
        axis
        for piece in launch.pieces
        for a in piece.accesses
        for axis in a.address.floor_dims
        if axis < len(launch.groups)
    }
    guards = _Guards(launch)
    for group, weight in groups.items():
        phase = tuple(sum(c * g for c, g in zip(slope, group, strict=True)) % period for slope in sorted(slopes))
        kind = (phase, guards.kind(group), tuple(group[axis] for axis in floors))
        first, total = kinds.get(kind, (group, 0))
        kinds[kind] = (first, total + weight)
    return list(kinds.values())


class _Guards:
    """Tells work-groups apart by what guards cut from them."""

    def __init__(self, launch: ResolvedLaunch) -> None:
        self._launch = launch
        self._known: dict[tuple[int, int], object] = {}
        self._axes = [
            axis
            for axis, extent in enumerate(launch.groups)
            if any(
                piece.ranges[axis] != (0, extent - 1) or any(axis in guard.dims for guard in piece.constraints)
                for piece in launch.pieces
            )
        ]

    def kind(self, group: Group) -> tuple[object, ...]:
        """Return what is equal for work-groups that guards treat alike."""
        return tuple(self._along(axis, group[axis]) for axis in self._axes)

    def _along(self, axis: int, position: int) -> object:
        if (axis, position) not in self._known:
            box = [(0, extent - 1) for extent in self._launch.groups]
            box[axis] = (position, position)
            parts = [piece.within(box) for piece in self._launch.pieces]
            # Where a guard still depends on the axis, nothing short of the position tells what it cuts.
            kind: object = position
            if not any(part and any(axis in guard.dims for guard in part.constraints) for part in parts):
                kind = tuple(part and part.ranges[len(box) :] for part in parts)
            self._known[axis, position] = kind
        return self._known[axis, position]
