"""The wave of resident work-groups, and the sets of earlier work-groups that may have left data in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError
from perflex.features.gpu.facts import fact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.gpu.facts import MachineFacts
    from perflex.features.gpu.footprints import Box
    from perflex.features.gpu.resolved import ResolvedLaunch

__all__ = ["Wave", "filled_groups", "resident_groups", "wave_of"]


@dataclass(frozen=True)
class Wave:
    """Work-groups that run at once, as boxes of group ids (first and last along each axis).

    Attributes
    ----------
    now
        The wave.
    before
        The sets adjacent in x, y and z, in the order in which reuse is looked for; None where there is none.
    """

    now: Box
    before: tuple[Box | None, Box | None, Box | None]


def resident_groups(machine: MachineFacts, items: int, *, registers: int | None, local_bytes: int, kernel: str) -> int:
    """Return how many work-groups a compute unit holds at once.

    Raises
    ------
    UnsupportedKernelError
        A work-group is too large for the machine.
    """
    lanes = fact(machine, "sub_group_size")
    padded = -(-items // lanes) * lanes
    limits = {"work-items": (fact(machine, "max_items_per_unit"), padded)}
    if registers is not None:
        granularity = fact(machine, "register_granularity")
        each = -(-registers // granularity) * granularity
        limits["registers"] = (fact(machine, "registers_per_unit"), padded * each)
    if local_bytes:
        limits["bytes of local memory"] = (fact(machine, "local_bytes"), local_bytes)
    for what, (there, needed) in limits.items():
        if needed > there:
            msg = (
                f"a work-group of kernel {kernel!r} needs {needed} {what}, a unit of {machine.name} has {there}; "
                "choose a smaller work-group"
            )
            raise UnsupportedKernelError(msg, kernel=kernel, machine=machine.name)
    most = getattr(machine, "max_items_per_group", None)
    if most is not None and items > most:
        msg = f"a work-group of kernel {kernel!r} has {items} work-items, {machine.name} allows {most}; choose fewer"
        raise UnsupportedKernelError(msg, kernel=kernel, machine=machine.name)
    return min(fact(machine, "max_groups_per_unit"), *(there // needed for there, needed in limits.values()))


def filled_groups(launch: ResolvedLaunch) -> tuple[float, ...]:
    """Return the extent of the grid along each axis in work-groups, where the last one counts as far as guards fill it.

    The filling is that of the statement that fills it most.
    """
    extents = []
    for axis, extent in enumerate(launch.groups):
        box = [(0, count - 1) for count in launch.groups]
        box[axis] = (extent - 1, extent - 1)
        parts = [piece.within(box) for piece in launch.pieces]
        local = len(launch.groups) + axis
        items = launch.items[axis] if axis < len(launch.items) else 1
        filled = [part.ranges[local] for part in parts if part is not None and axis < len(launch.items)]
        share = max((high - low + 1 for low, high in filled), default=items) / items
        extents.append(extent - 1 + share)
    return tuple(extents)


def wave_of(groups: Sequence[int], filled: Sequence[float], resident: int, *, full_y_set: bool) -> Wave:
    """Return a representative wave of so many work-groups and the sets adjacent to it (Section 4.4.2).

    Parameters
    ----------
    groups, filled
        Extents of the grid; the latter with a partly filled last work-group as a fraction.
    resident
        Work-groups on all compute units.
    full_y_set
        Whether the y set is as many rows of work-groups high as the wave, rather than one.
    """
    extents = []
    for axis, extent in enumerate(groups):
        extents.append(min(extent, max(1, ceil(resident / prod(filled[:axis]) - 1e-9))))
    starts = [extent - width for extent, width in zip(groups, extents, strict=True)]
    if len(groups) > 2:
        starts[2] = min(groups[2] // 2, groups[2] - extents[2]) if not full_y_set else groups[2] // 2
    now = tuple(
        (start, min(start + width, extent) - 1) for start, width, extent in zip(starts, extents, groups, strict=True)
    )
    whole = [(0, extent - 1) for extent in groups]
    x_set = _below(now, 0, extents[0], now)
    y_set = _below(now, 1, extents[1] if full_y_set else 1, [whole[0], *now[1:]]) if len(groups) > 1 else None
    z_set = _below(now, 2, 1, whole) if len(groups) > 2 else None
    return Wave(now, (x_set, y_set, z_set))


def _below(now: Box, axis: int, width: int, others: Sequence[tuple[int, int]]) -> Box | None:
    """Return the box of some width next to the wave towards lower ids on an axis, or None at the grid's edge."""
    start = now[axis][0]
    if start == 0:
        return None
    box = list(others)
    box[axis] = (max(0, start - width), start - 1)
    return tuple(box)
