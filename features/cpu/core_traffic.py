"""What crosses the levels of a CPU's memory hierarchy when all its cores run a kernel: bytes, streams and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from perflex.features.cpu.cache_traffic import GroupPlan, Part, Rules, views_of
from perflex.features.cpu.ecm_estimate import nests_of_kernel, spread_sizes
from perflex.features.cpu.nests import LANE, Nest
from perflex.features.cpu.reuse_windows import Footprints
from perflex.features.cpu.traced import plain
from perflex.features.scop.scop import Scop
from perflex.machines.machine import CacheLevel, Machine

# Assumed where a machine's file says nothing: pages of x86-64 and of most AArch64 systems (others have 16 or 64 KiB),
# where nobody asks for large ones; entries of second-level TLBs of x86-64 since 2019.
_PAGE_BYTES = 4096
_TLB_ENTRIES = 2048


def traffic_of_cores(scop: Scop, sizes: Mapping[str, Any], machine: Machine, lanes: tuple[int, int]) -> dict[str, Any]:
    """Return what crosses each level of the memory hierarchy in one run of a kernel on all cores.

    Where a work-group has as many, work-items along axis 0 are in lock step: so many `lanes` in launches without inner
    loops, and in those with some.
    Values are by level in lower case and ``mem``: ``bytes_<level>``, both ways and with write-allocates,
    ``streams_<level>``, contiguous pieces that they come in, and ``store_streams_<level>``, those of them that
    stores write back. And ``pages``: touches of a page that the TLB has forgotten; ``bytes_tlb``: bytes that cross
    where the data touched since are more than the TLBs map. Sizes and errors are as for `estimate_ecm`.

    Volumes are those of `estimate_ecm` on all cores, or on one where the kernel has no work-groups. Launches run again
    and again, so that data that fit stay.
    A piece is what an access touches before it jumps; lanes that are apart are pieces side by side.
    """
    levels = machine.need_levels()
    # Without work-groups, a runtime has nothing to deal out.
    cores = int(machine.need("cores")) if any(launch.groups for launch in scop.launches) else 1
    fill = max((launch.items[0] for launch in scop.launches if launch.items), default=1)
    straight, in_loops = (width if fill >= width else 1 for width in lanes)
    # What the TLB of a core maps is a cache, too: of lines for the bytes beyond it, of pages for their number.
    page, entries = machine.page_bytes or _PAGE_BYTES, machine.tlb_entries or _TLB_ENTRIES
    mapped = replace(levels[0], name="TLB", size_bytes=entries * page, ways=None, hashed=None)
    *found, beyond = _crossing(scop, sizes, (*levels, mapped), cores, (straight, in_loops))
    names = [*(level.name.lower() for level in levels[1:]), "mem"]
    values: dict[str, Any] = {}
    for name, crossed in zip(names, found, strict=True):
        values |= {
            f"bytes_{name}": crossed.volume,
            f"streams_{name}": crossed.streams,
            f"store_streams_{name}": crossed.stored,
        }
    pages = _crossing(scop, sizes, (replace(mapped, line_bytes=page),), cores, (straight, in_loops))[0]
    return values | {"pages": pages.volume / page, "bytes_tlb": beyond.volume}


class _Crossed(NamedTuple):
    """Bytes that cross a boundary, the contiguous pieces they come in, and those of them that are written back."""

    volume: Any
    streams: Any
    stored: Any


def _crossing(
    scop: Scop, sizes: Mapping[str, Any], levels: Sequence[CacheLevel], cores: int, lanes: tuple[int, int]
) -> list[_Crossed]:
    """Return what crosses beyond each level."""
    given, chosen, _ = spread_sizes(scop, sizes, {})
    nests = nests_of_kernel(scop, lanes, (), {})
    # Small pages spread a core's part over the sets, but not rows that meet in a window.
    rules = Rules("dealt", cores, spread=cores > 1)
    found = []
    for level, view in zip(levels, views_of(nests, given, chosen, levels, rules), strict=True):
        each = [
            crossed
            for part in view.parts
            for crossed in _of_part(part, level, rules, allocate=levels[0].write_allocate)
        ]
        found.append(_Crossed(*(sum(values, 0.0) for values in zip(*[(0.0, 0.0, 0.0), *each], strict=True))))
    return found


def _of_part(part: Part, level: CacheLevel, rules: Rules, *, allocate: bool) -> list[_Crossed]:
    """Return what crosses beyond a cache of each group of accesses."""
    traffic = part.traffic(level, rules)
    found = []
    for entry, crossed in traffic.by_group(part.plans, write_allocate=allocate):
        both = crossed.loads + crossed.evicts
        piece = _piece_bytes(part.reuse.footprints[entry.nest], part.reuse.nests.nests[entry.nest], entry)
        found.append(_Crossed(*map(part.mean, (both, both / piece, crossed.evicts / piece))))
    return found


def _piece_bytes(footprints: Footprints, nest: Nest, entry: GroupPlan) -> Any:
    """Return the contiguous bytes that a group touches before it jumps, a cache line at least."""
    moves: dict[int, Any] = {}
    for axis in range(len(entry.group.axes)):
        stride, steps = footprints.movement(entry.place, axis)
        for loop, step in steps:
            moves[loop] = moves.get(loop, 0) + np.abs(step * stride)
    piece: Any = float(entry.group.itemsize)
    going: Any = True
    for place in reversed(range(len(nest.loops))):
        step, extent = moves.get(place, 0), footprints.extents[place]
        joined = (np.asarray(step) > 0) & (np.asarray(step) <= piece)
        piece = np.where(going & joined, piece + step * (extent - 1), piece)
        if nest.loops[place].name != LANE:
            going = going & (joined | (np.asarray(step) == 0) | (np.asarray(extent) <= 1))
    return plain(np.maximum(piece, footprints.line))
