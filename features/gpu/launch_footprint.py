"""Distinct bytes that a launch touches, and what of them the L2 cache holds when the same run follows again."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError
from perflex.features.gpu.footprints import Toucher

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perflex.features.gpu.footprints import Layout
    from perflex.features.gpu.resolved import ResolvedLaunch
    from perflex.features.scop.scop import Scop

CACHES = ("warm", "cold")
# Strided accesses of a whole grid touch many places; so many have tens of megabytes, which no L2 cache keeps.
_MOST_PLACES = 1 << 21


@dataclass(frozen=True)
class Beforehand:
    """What a launch finds in the L2 cache.

    Attributes
    ----------
    load
        Distinct bytes of each array that the launch loads: what it loads from DRAM at least, if it finds nothing.
    run_bytes
        Distinct bytes of a run of the kernel, which the run before has touched last; None if caches are cold.
    """

    load: Mapping[str, int] = field(default_factory=dict)
    run_bytes: float | None = None


def beforehand(
    scop: Scop, sizes: Mapping[str, int], launches: Iterable[ResolvedLaunch], layout: Layout, *, warm: bool
) -> list[Beforehand]:
    """Return what each launch of a run finds; an array of several launches is taken to be the same part of it."""
    loads: list[dict[str, int]] = []
    run: dict[str, int] = {}
    for launch in launches:
        toucher = Toucher(launch, layout, most=_MOST_PLACES)
        whole = tuple((0, extent - 1) for extent in launch.groups)
        try:
            load, store = (toucher.bytes_of([whole], [direction]) for direction in ("load", "store"))
        except UnsupportedKernelError:
            # The grid has too many instances or places to list, though no wave does. Arrays are no smaller than what is
            # touched of them, so that warm caches hold no more than they do, and no least load is claimed.
            load, store = {}, _arrays(scop, sizes, launch)
        loads.append(load)
        for part in (load, store):
            for name, size in part.items():
                run[name] = max(run.get(name, 0), size)
    return [Beforehand(load, float(sum(run.values())) if warm else None) for load in loads]


def _arrays(scop: Scop, sizes: Mapping[str, int], launch: ResolvedLaunch) -> dict[str, int]:
    used = {access.array for piece in launch.pieces for access in piece.accesses}
    return {
        array.name: prod(int(extent.evaluate(sizes)) for extent in array.shape) * array.itemsize
        for array in scop.arrays
        if array.name in used and array.space == "global"
    }
