"""Data volumes of any kernel from its Scop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex._volumes.description import describe
from perflex._volumes.geometry import resident_groups
from perflex._volumes.paper import paper_volumes
from perflex._volumes.resolved import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex._volumes.facts import MachineFacts
    from perflex._volumes.result import Volumes
    from perflex.features._scop import Scop

__all__ = ["estimate_volumes"]


def estimate_volumes(
    scop: Scop,
    sizes: Mapping[str, int],
    machine: MachineFacts,
    *,
    variant: str = "current",
    granule: int | None = None,
    registers: int | None = None,
    offsets: Mapping[str, int] | None = None,
) -> Volumes:
    scop.check_sizes(sizes)
    description = describe(scop)
    [launch] = resolve(description, sizes)
    local_bytes = 0
    items = 1
    for extent in launch.items:
        items *= extent
    resident = resident_groups(machine, items, registers=registers, local_bytes=local_bytes, kernel=scop.name)
    return paper_volumes(launch, machine, resident, granule, dict(offsets or {}))
