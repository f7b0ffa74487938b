"""Vector folding: a data layout with elements of outer loops side by side (YaskSite, Section V-B)."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError
from perflex.features.cpu.nests import Nest, Nests, Stream, StreamGroup
from perflex.features.cpu.stream_groups import halos_of, ordered_streams

if TYPE_CHECKING:
    from collections.abc import Mapping


def folded_nests(nests: Nests, fold: Mapping[str, int]) -> Nests:
    """Return the nests with a folded layout: offsets shrink, rows grow (Eq. 11).

    Parameters
    ----------
    nests
        The kernel's nests.
    fold
        Fold length of loops by name; 1 changes nothing.

    Raises
    ------
    UnsupportedKernelError
        The kernel has no such loop, or an array does not move with it alone.
    """
    lengths = {name: length for name, length in fold.items() if length != 1}
    if not lengths:
        return nests
    for name, length in lengths.items():
        if length < 1:
            msg = f"a fold of {length} along loop {name!r} is none; give 1 or more elements"
            raise UnsupportedKernelError(msg, kernel=nests.name)
        if not all(any(loop.name == name for loop in nest.loops) for nest in nests.nests):
            known = ", ".join(dict.fromkeys(loop.name for nest in nests.nests for loop in nest.loops))
            msg = f"kernel {nests.name!r} has no loop {name!r} around all accesses to fold by {length}; it has {known}"
            raise UnsupportedKernelError(msg, kernel=nests.name)
    return replace(nests, nests=tuple(_folded(nests.name, nest, lengths) for nest in nests.nests))


def _folded(kernel: str, nest: Nest, lengths: Mapping[str, int]) -> Nest:
    loops = tuple(replace(loop, fold=lengths.get(loop.name, 1)) for loop in nest.loops)
    folds = {position: loop.fold for position, loop in enumerate(loops) if loop.fold > 1}
    groups = tuple(_folded_group(kernel, nest, group, folds) for group in nest.groups)
    return replace(nest, loops=loops, groups=groups, halos=halos_of(loops, groups))


def _folded_group(kernel: str, nest: Nest, group: StreamGroup, folds: Mapping[int, int]) -> StreamGroup:
    found = {}
    for place, axis in enumerate(group.axes):
        moved = {step.loop for step in axis.steps} & folds.keys()
        if moved:
            if len(axis.steps) > 1 or abs(axis.steps[0].factor) != 1:
                msg = f"access {group.text} of kernel {kernel!r} does not move with the folded loop alone"
                raise UnsupportedKernelError(msg, kernel=kernel, access=group.text)
            found[place] = folds[moved.pop()]
    if len(found) != len(folds):
        msg = f"access {group.text} of kernel {kernel!r} does not move with every folded loop"
        raise UnsupportedKernelError(msg, kernel=kernel, access=group.text)
    total = prod(found.values())
    axes = []
    below = 1
    for place, axis in enumerate(group.axes):
        axes.append(replace(axis, fold=below))
        below *= found.get(place, 1)
    # Offsets shrink about the middle of their range, so that a symmetric stencil stays symmetric.
    middle = {
        place: (max(s.offset[place] for s in group.streams) + min(s.offset[place] for s in group.streams)) // 2
        for place in found
    }
    # Offsets that fall into the same folded element become one stream.
    counts: dict[tuple[int, ...], tuple[int, int]] = {}
    for stream in group.streams:
        offset = tuple(
            _shrunk(value - middle[place], found[place]) if place in found else value
            for place, value in enumerate(stream.offset)
        )
        loads, stores = counts.get(offset, (0, 0))
        counts[offset] = (loads + stream.loads, stores + stream.stores)
    streams, gaps, halo = ordered_streams(
        axes, [Stream(offset, *count) for offset, count in counts.items()], len(nest.loops)
    )
    return replace(
        group,
        itemsize=group.itemsize * total,
        fold=total,
        axes=tuple(axes),
        near=None,
        streams=streams,
        gaps=gaps,
        halo=halo,
    )


def _shrunk(offset: int, length: int) -> int:
    # Away from 0: folding takes a radius r to ceil(r/L) (Section V-B).
    return -(-offset // length) if offset > 0 else offset // length
