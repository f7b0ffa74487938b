"""Groups of accesses that touch what an earlier nest in the same loops has touched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.cpu.nests import Axis, Nest, StreamGroup


def mark_touched_before(nests: Sequence[Nest]) -> tuple[Nest, ...]:
    """Return the nests with those groups marked that touch what an earlier nest in the same loops has touched."""
    result: list[Nest] = []
    for nest in nests:
        groups = []
        for group in nest.groups:
            shared = [
                common - 1
                for before in result
                for common in [shared_loops(before, nest)]
                if common and any(_covers(before, other, nest, group, common) for other in before.groups)
            ]
            # The innermost shared loop has the shortest reuse.
            groups.append(replace(group, touched_before=max(shared)) if shared else group)
        result.append(replace(nest, groups=tuple(groups)))
    return tuple(result)


def shared_loops(one: Nest, two: Nest) -> int:
    """Return how many of the outermost loops two nests have in common."""
    pairs = zip(one.loops, two.loops, strict=False)
    return next((depth for depth, (a, b) in enumerate(pairs) if a.node != b.node), min(len(one.loops), len(two.loops)))


def _covers(before: Nest, other: StreamGroup, nest: Nest, group: StreamGroup, common: int) -> bool:
    if (other.array, len(other.axes)) != (group.array, len(group.axes)) or group.scattered or other.scattered:
        return False
    for axis, (mine, its) in enumerate(zip(group.axes, other.axes, strict=True)):
        low, high = _range(other, axis)
        first, last = _range(group, axis)
        if _moved(nest, mine, common) != _moved(before, its, common) or first < low or last > high:
            return False
    return True


def _range(group: StreamGroup, axis: int) -> tuple[int, int]:
    offsets = [stream.offset[axis] for stream in group.streams]
    return min(offsets), max(offsets)


def _moved(nest: Nest, axis: Axis, common: int) -> tuple[object, ...]:
    # Loops that only one nest is in must be as long as the other's to visit the same range.
    return tuple(
        (step.loop, step.factor, step.scale)
        if step.loop < common
        else (step.factor, step.scale, nest.loops[step.loop].extent.text)
        for step in axis.steps
    )
