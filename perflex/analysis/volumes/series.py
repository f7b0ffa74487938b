"""Layer conditions on GPUs: DRAM volumes over domain sizes (Ernst et al., Section 5.7, Figure 23)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError
from perflex.features import parse_feature
from perflex.features.gpu.su_stencil import recognise_stencil
from perflex.features.target import Target
from perflex.machines.residency import residency

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features import Scop
    from perflex.features.gpu.su_stencil import SuStencil
    from perflex.machines.machine import Machine


@dataclass(frozen=True)
class SeriesRow:
    """One domain size of a series.

    Attributes
    ----------
    sizes
        The kernel's sizes.
    updates
        Distinct elements that the kernel stores; 0 where it accesses no memory, and volumes are zero, too.
    dram_load, dram_store, l2_load
        Bytes per update: the estimate's volumes.
    wave_depth
        Planes that a wave spans; None, as the two below, where the kernel is no stencil whose work-groups divide a 3-D
        grid evenly.
    level
        DRAM load in bytes per update if nothing but the wave itself reuses planes.
    layers_fit
        Whether the planes that a stencil needs fit the cache while it proceeds plane by plane.
    """

    sizes: Mapping[str, int]
    updates: int
    dram_load: float
    dram_store: float
    l2_load: float
    wave_depth: int | None = None
    level: float | None = None
    layers_fit: bool | None = None


def level_without_layer_reuse(depth: int, halo: int, itemsize: int) -> float:
    """Return the bytes loaded per update when each wave loads all of its planes: ``itemsize (depth + halo) / depth``.

    Parameters
    ----------
    depth
        Planes that a wave computes.
    halo
        Further planes that it reads, both sides together.
    itemsize
        Bytes of a value.
    """
    # Section 5.7: 72, 40, 24 and 16 B at depths 1, 2, 4 and 8, for a halo of 8 planes and 8-byte values.
    return itemsize * (depth + halo) / depth


def layers_fit(plane_points: int, halo: int, itemsize: int, cache_bytes: float) -> bool:
    """Return whether the ``halo + 1`` planes that one plane of updates reads fit half of a cache."""
    # The source grid can count on half of the cache (Section 4.4.2).
    return (halo + 1) * plane_points * itemsize <= cache_bytes / 2


def series_row(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, volumes: Mapping[str, float], registers: int | None = None
) -> SeriesRow:
    """Return a row of the series.

    Parameters
    ----------
    scop, sizes
        The kernel, and an integer per size parameter.
    machine
        Residency limits and the effective L2.
    volumes
        ``f_vol_dram_load``, ``f_vol_dram_store`` and ``f_vol_l2_l1_load``, in bytes per launch.
    registers
        32-bit registers per work-item; None if they limit nothing.

    Raises
    ------
    MachineError
        A fact of the machine is not known.
    UnsupportedKernelError
        The kernel moves data but stores nothing.
    """
    updates = int(parse_feature("f_mem_footprint_global_store").value(scop, sizes, Target(machine=machine)))
    if not updates and not any(volumes.values()):
        return SeriesRow(sizes=dict(sizes), updates=0, dram_load=0.0, dram_store=0.0, l2_load=0.0)
    if not updates:
        msg = f"kernel {scop.name!r} stores nothing in global memory, so that there are no volumes per update"
        raise UnsupportedKernelError(msg, kernel=scop.name)
    row = SeriesRow(
        sizes=dict(sizes),
        updates=updates,
        dram_load=volumes["f_vol_dram_load"] / updates,
        dram_store=volumes["f_vol_dram_store"] / updates,
        l2_load=volumes["f_vol_l2_l1_load"] / updates,
    )
    try:
        stencil = recognise_stencil(scop, sizes)
    except UnsupportedKernelError:
        return row  # the volumes hold for any kernel, layers are a stencil's
    depth = _wave_depth(stencil, machine, registers)
    halos = [array.halo[2] for array in stencil.loads]
    plane, itemsize = stencil.grid[0] * stencil.grid[1], stencil.itemsize
    return replace(
        row,
        wave_depth=depth,
        level=sum(level_without_layer_reuse(depth, halo, itemsize) for halo in halos),
        layers_fit=layers_fit(plane, max(halos), itemsize, machine.need("l2_effective_bytes")),
    )


def _wave_depth(stencil: SuStencil, machine: Machine, registers: int | None) -> int:
    held = residency(machine, stencil.items_per_group, 0, registers)
    groups_in_plane = stencil.grid[0] * stencil.grid[1] // (stencil.group[0] * stencil.group[1])
    deep = ceil(held.wave_groups / groups_in_plane)
    return min(stencil.grid[2], deep * stencil.group[2] * stencil.chunk)
