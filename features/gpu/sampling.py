"""Work-groups that stand for all: those whose addresses and guards look alike are looked at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import gcd, prod
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.guards import guards_of
from perflex.features.gpu.images import instances

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.features.gpu.guards import Component
    from perflex.features.gpu.resolved import ResolvedLaunch

Group = tuple[int, ...]
# Kinds of positions along an axis of the grid that are looked at; of more, neighbouring ones are taken for each other.
MOST_KINDS = 256


def first_groups(wave: Sequence[tuple[int, int]], most: int) -> dict[Group, int]:
    """Return the grid's first work-groups, along each axis up to so many and no more than a wave has, with weight 1."""
    axes = [range(min(most, end + 1 - start)) for start, end in wave]
    return dict.fromkeys(product(*axes), 1)


def whole_grid(launch: ResolvedLaunch, line: int) -> dict[Group, int]:
    """Return work-groups with weights that add up to those of the grid in which anything runs.

    Addresses modulo a line repeat along each axis after a number of work-groups; of each kind that guards leave
    (`Guards`), work-groups of one such period from the middle stand for all.
    """
    guards = guards_of(launch)
    order = [axis for component in guards.components for axis in component.axes]
    parts = [
        _classes(component, [_period(launch, axis, line) for axis in component.axes]) for component in guards.components
    ]
    chosen: dict[Group, int] = {}
    for members in product(*parts):
        runs = [component.runs[one.kind] for component, one in zip(guards.components, members, strict=True)]
        if np.logical_and.reduce(runs).any():
            place = dict(zip(order, (position for one in members for position in one.position), strict=True))
            chosen[tuple(place[axis] for axis in sorted(place))] = prod(one.count for one in members)
    return chosen


def _period(launch: ResolvedLaunch, axis: int, line: int) -> int:
    """Return after how many work-groups along an axis addresses repeat modulo a line."""
    period = 1
    for piece in launch.pieces:
        for access in piece.accesses:
            form = access.address
            if axis in form.floor_dims:
                period = max(period, line)
            # Lines are powers of two, so periods are too, and the largest is a multiple of all.
            period = max(period, line // gcd(line, form.coefficient(axis)))
    return period


@dataclass(frozen=True)
class _Class:
    """A kind of positions along coupled axes, the one of them that is looked at, and how many there are."""

    kind: int
    position: Group
    count: int


def _classes(component: Component, periods: Sequence[int]) -> list[_Class]:
    kinds = component.kinds
    if kinds.ndim == 1:
        breaks = np.flatnonzero(np.diff(kinds)) + 1 if len(component.runs) > 1 else np.zeros(0, dtype=np.int64)
        if len(breaks) < MOST_KINDS:
            return _along(kinds, [0, *breaks.tolist(), len(kinds)], periods[0])
    code = kinds
    for axis, period in enumerate(periods):
        shape = [1] * kinds.ndim
        shape[axis] = -1
        code = code * period + (np.arange(kinds.shape[axis]) % period).reshape(shape)
    order = np.argsort(code, axis=None, kind="stable")
    ends = np.cumsum(np.unique(code, return_counts=True)[1])
    found = []
    for start, end in pairwise([0, *ends.tolist()]):
        place = np.unravel_index(order[(start + end) // 2], kinds.shape)
        found.append(_Class(int(kinds[place]), tuple(map(int, place)), end - start))
    return _fewer(found)


def _along(kinds: np.ndarray, edges: Sequence[int], period: int) -> list[_Class]:
    """Return the classes of positions between edges, where neither kind nor alignment tells them apart."""
    found: dict[tuple[int, int], _Class] = {}
    for start, end in pairwise(edges):
        for first in range(start, min(end, start + period)):
            count = (end - first + period - 1) // period
            one = _Class(int(kinds[start]), (first + period * (count // 2),), count)
            known = found.get((one.kind, first % period))
            # The longest run of a kind has its position, all of its runs their part of the number.
            if known is not None:
                longest = max(known, one, key=lambda one: one.count)
                one = replace(longest, count=known.count + count)
            found[one.kind, first % period] = one
    return list(found.values())


def _fewer(classes: list[_Class]) -> list[_Class]:
    """Return at most about `MOST_KINDS` classes: those of many positions, and of others one for several in a row."""
    if len(classes) <= MOST_KINDS:
        return classes
    many = sum(one.count for one in classes) // (MOST_KINDS // 2)
    kept = [one for one in classes if one.count > many]
    rest = sorted((one for one in classes if one.count <= many), key=lambda one: one.position[::-1])
    while rest:
        total = length = 0
        while length < len(rest) and (not length or total + rest[length].count <= many):
            total += rest[length].count
            length += 1
        kept.append(replace(rest[length // 2], count=total))
        rest = rest[length:]
    return kept


def representatives(launch: ResolvedLaunch, groups: Mapping[Group, int], period: int) -> list[tuple[Group, int]]:
    """Return one work-group for each kind among some, with the sum of their weights.

    Those are of one kind whose addresses differ by multiples of a period, in bytes, and that guards treat alike.
    """
    if not groups:
        return []
    # Constants shift an access in all work-groups alike: only slopes tell work-groups apart.
    forms = [access.address for piece in launch.pieces for access in piece.accesses]
    axes = range(len(launch.groups))
    slopes = np.array(sorted({tuple(form.coefficient(axis) for axis in axes) for form in forms}), dtype=np.int64)
    # A floor of a group id follows no slope, so each position along that axis is a kind of its own.
    floors = sorted({axis for form in forms for axis in form.floor_dims if axis in axes})
    positions = np.array(list(groups), dtype=np.int64)
    phases = (positions @ slopes.reshape(-1, len(axes)).T) % period
    marks = np.concatenate([phases, guards_of(launch).kinds_at(positions), positions[:, floors]], axis=1)
    kinds: dict[bytes, tuple[Group, int]] = {}
    for mark, (group, weight) in zip(marks, groups.items(), strict=True):
        first, total = kinds.get(mark.tobytes(), (group, 0))
        kinds[mark.tobytes()] = (first, total + weight)
    return list(kinds.values())


def launch_instances(launch: ResolvedLaunch) -> int:
    """Return how many instances of statements a launch executes."""
    alike = representatives(launch, whole_grid(launch, 1), 1)
    return sum(weight * instances(launch, tuple((place, place) for place in group)) for group, weight in alike)


def alike(launch: ResolvedLaunch, groups: Iterable[Group], period: int) -> list[list[Group]]:
    """Return work-groups sorted into the kinds of `representatives`."""
    members = list(groups)
    # Weights of one kind are added up: one bit for each work-group says whose they were.
    bits = {group: 1 << number for number, group in enumerate(members)}
    kinds = [total for _, total in representatives(launch, bits, period)]
    return [[group for number, group in enumerate(members) if total >> number & 1] for total in kinds]


def shifts(launch: ResolvedLaunch) -> dict[str, tuple[int, ...]] | None:
    """Return by how many bytes each array's accesses move from one work-group to the next along each axis.

    None where accesses of one array move differently, so that no distance holds for all of them.
    """
    axes = range(len(launch.groups))
    found: dict[str, tuple[int, ...]] = {}
    for piece in launch.pieces:
        for access in piece.accesses:
            slope = tuple(access.address.coefficient(axis) for axis in axes)
            known = found.setdefault(access.array, slope)
            if known != slope or any(axis in axes for axis in access.address.floor_dims):
                return None
    return found
