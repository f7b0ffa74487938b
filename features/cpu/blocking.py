"""Blocked loops: a sequential loop becomes one over blocks and one inside a block."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError
from perflex.features.cpu.nests import Nest, Nests, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.cpu.nests import StreamGroup


def blocked_nests(nests: Nests, names: Sequence[str]) -> Nests:
    """Return the nests with loops blocked as in Listing 3 of YaskSite: loops over blocks outside of all others.

    Parameters
    ----------
    nests
        The kernel's nests.
    names
        Loops to block: sequential ones, or ``lid0``, ``lid1`` for the work-group's own extents.

    Raises
    ------
    UnsupportedKernelError
        The kernel has no such loop, or not in all its nests.
    """
    for name in names:
        if not all(any(loop.base == name for loop in nest.loops[_host_loops(nest) :]) for nest in nests.nests):
            known = sorted({loop.base for nest in nests.nests for loop in nest.loops[_host_loops(nest) :]} - {"lane"})
            msg = (
                f"kernel {nests.name!r} has no loop {name!r} around all accesses to block; there are {', '.join(known)}"
            )
            raise UnsupportedKernelError(msg, kernel=nests.name)
    return replace(nests, nests=tuple(_blocked(nest, names) for nest in nests.nests))


def _host_loops(nest: Nest) -> int:
    """Return how many loops are around the launch, which is part of what identifies all others."""
    return sum(nest.launch not in loop.node for loop in nest.loops)


def _blocked(nest: Nest, names: Sequence[str]) -> Nest:
    # Loops over work-groups and in them are blocks as they are: only their size changes (`NestValues.block`).
    whole = [position for position, loop in enumerate(nest.loops) if loop.base in names and loop.part == "whole"]
    if not whole:
        return nest
    # Blocks are inside of the grid, and of host loops, which are around it.
    place = _host_loops(nest) + sum(loop.name.startswith("gid") for loop in nest.loops)
    outer = [
        replace(
            nest.loops[position],
            name=f"{nest.loops[position].name}_blocks",
            part="outer",
            node=("blocks", nest.loops[position].name),
        )
        for position in whole
    ]
    # New nodes: the loops run anew in each block, so that nests without blocks no longer share them.
    inner = [
        replace(loop, part="inner", node=("in", *loop.node))
        if position in whole
        else replace(loop, node=("in", *loop.node))
        for position, loop in enumerate(nest.loops)
    ]
    loops = (*nest.loops[:place], *outer, *inner[place:])
    # Old position of a loop to its new one, and of a blocked loop to that over its blocks.
    moved = {position: position + (len(outer) if position >= place else 0) for position in range(len(nest.loops))}
    added = {position: place + number for number, position in enumerate(whole)}
    groups = tuple(_blocked_group(group, moved, added, nest, len(loops)) for group in nest.groups)
    halos = [0] * len(loops)
    for position, halo in enumerate(nest.halos):
        halos[moved[position]] = halo
    return replace(nest, loops=loops, groups=groups, halos=tuple(halos))


def _blocked_group(
    group: StreamGroup, moved: dict[int, int], added: dict[int, int], nest: Nest, loops: int
) -> StreamGroup:
    axes = []
    for axis in group.axes:
        steps = [replace(step, loop=moved[step.loop]) for step in axis.steps]
        # A block moves the index by the factor times the block size, which is a number only later.
        steps += [
            Step(added[step.loop], step.factor, nest.loops[step.loop].base) for step in axis.steps if step.loop in added
        ]
        axes.append(replace(axis, steps=tuple(steps)))
    gaps = []
    for gap in group.gaps:
        longer = [0] * loops
        for position, distance in enumerate(gap):
            # Gaps stay in the loop inside a block; `Footprints.carried` splits off those that cross its end.
            longer[moved[position]] = distance
        gaps.append(tuple(longer))
    touched_before = None if group.touched_before is None else moved[group.touched_before]
    return replace(group, axes=tuple(axes), gaps=tuple(gaps), touched_before=touched_before)
