"""The wave of resident work-groups, and the sets of earlier work-groups that may have left data in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, TypeAlias

from perflex.machines.residency import residency

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.gpu.footprints import Box
    from perflex.features.gpu.resolved import ResolvedLaunch
    from perflex.features.scop.scop import Scop
    from perflex.machines.machine import Machine
    from perflex.machines.residency import Residency

Boxes: TypeAlias = "tuple[Box, ...]"


@dataclass(frozen=True)
class Wave:
    """Work-groups that run at once, as disjoint boxes of group ids (first and last along each axis).

    Attributes
    ----------
    now
        The wave.
    before
        The sets adjacent in x, y and z, in the order in which reuse is looked for; empty where there is none.
    """

    now: Boxes
    before: tuple[Boxes, Boxes, Boxes]


def launch_residency(
    scop: Scop, launch: int, sizes: Mapping[str, int], machine: Machine, registers: int | None = None
) -> Residency:
    """Return how many work-groups of a launch a compute unit holds at once.

    Parameters
    ----------
    scop, launch
        The kernel, and the launch's number in it.
    sizes, machine
        An integer per size parameter; what the kernel runs on.
    registers
        32-bit registers per work-item; None if they limit nothing.

    Raises
    ------
    WorkGroupTooLargeError
        A work-group exceeds a limit of the machine.
    MachineError
        A fact is not known.
    """
    return residency(machine, scop.launches[launch].group_size, local_bytes(scop, launch, sizes), registers)


def local_bytes(scop: Scop, launch: int, sizes: Mapping[str, int]) -> int:
    """Return the bytes of local memory that a work-group of a launch has."""
    # Each launch is a device program of its own, which holds only the local arrays that it accesses.
    used = {
        access.array for statement in scop.statements if statement.launch == launch for access in statement.accesses
    }
    return sum(
        prod(int(extent.evaluate(sizes)) for extent in array.shape) * array.itemsize
        for array in scop.arrays
        if array.space == "local" and array.name in used
    )


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
        # Work-groups start in the order of their ids: a wave fills rows first, then planes. What is taken off keeps
        # a quotient that is whole, but for rounding, from adding a row.
        extents.append(min(extent, max(1, ceil(resident / prod(filled[:axis]) - 1e-9))))
    # At an axis's upper end there is a set before the wave, unless the wave fills the axis (Section 4.4.2).
    starts = [extent - width for extent, width in zip(groups, extents, strict=True)]
    if len(groups) > 2:
        starts[2] = min(groups[2] // 2, groups[2] - extents[2]) if not full_y_set else groups[2] // 2
    now = tuple(
        (start, min(start + width, extent) - 1) for start, width, extent in zip(starts, extents, groups, strict=True)
    )
    whole = [(0, extent - 1) for extent in groups]
    x_set = _below(now, 0, extents[0], now)
    # One reuse distance back is a row of all x, or a layer of all x and y, as in sequential layer conditions.
    y_set = _below(now, 1, extents[1] if full_y_set else 1, [whole[0], *now[1:]]) if len(groups) > 1 else ()
    z_set = _below(now, 2, 1, whole) if len(groups) > 2 else ()
    return Wave((now,), (x_set, y_set, z_set))


def _below(now: Box, axis: int, width: int, others: Sequence[tuple[int, int]]) -> Boxes:
    """Return the box of some width next to the wave towards lower ids on an axis, or nothing at the grid's edge."""
    start = now[axis][0]
    if start == 0:
        return ()
    box = list(others)
    box[axis] = (max(0, start - width), start - 1)
    return (tuple(box),)
