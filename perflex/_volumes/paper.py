"""The estimate as the paper describes it (variant ``paper2022``)."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from perflex._volumes.cache1 import Lines, average_group
from perflex._volumes.cache2 import wave_volumes
from perflex._volumes.facts import curve, fact
from perflex._volumes.footprints import Layout, Toucher
from perflex._volumes.geometry import filled_groups, wave_of
from perflex._volumes.instances import instances
from perflex._volumes.result import ArrayVolumes, Volumes
from perflex._volumes.rules import PAPER_CURVES, gompertz
from perflex._volumes.sampling import first_groups
from perflex._volumes.wavefronts import bank_conflicts, distinct

if TYPE_CHECKING:
    from perflex._volumes.facts import MachineFacts
    from perflex._volumes.group import Instructions
    from perflex._volumes.resolved import ResolvedLaunch

__all__ = ["paper_volumes"]

_FAR = 1024


def paper_cycles(item: Instructions) -> float:
    """Return the cycles of instructions (Section 4.2).

    A half sub-group takes as many as there are addresses on one of 16 banks of 8 bytes, or segments of 1024 bytes.
    """
    shape = item.addresses.shape
    halves = item.addresses.reshape(shape[0], -1, shape[-1] // 2)
    conflicts = bank_conflicts(halves, 16, 8, item.itemsize)
    cycles = (conflicts.clip(distinct(halves, _FAR))).sum(axis=-1) @ item.weights
    return float(cycles) * item.count


def paper_volumes(
    launch: ResolvedLaunch, machine: MachineFacts, resident: int, granule: int | None, offsets: dict[str, int]
) -> Volumes:
    """Return the volumes of one launch."""
    lines = Lines(fact(machine, "line_bytes"), fact(machine, "sector_bytes"), fact(machine, "sub_group_size"))
    at_once = resident * fact(machine, "compute_units")
    wave = wave_of(launch.groups, filled_groups(launch), at_once, full_y_set=True)
    group = average_group(launch, first_groups(wave.now, 4), lines, offsets, paper_cycles)
    everything = instances(launch, tuple((0, extent - 1) for extent in launch.groups))
    scale = everything / group.instances
    alloc = sum(group.allocated.values()) / group.groups
    over_l1 = alloc * resident / fact(machine, "l1_bytes")
    l1_miss = gompertz(curve(machine, "l1_miss", PAPER_CURVES.l1_miss), over_l1)
    granule = granule or lines.sector
    # Addresses are (sector of the row, y, z), so that alignment does not enter.
    volumes = wave_volumes(Toucher(launch, Layout(granule)), wave, granule)
    cells = instances(launch, wave.now)
    capacity = fact(machine, "l2_effective_bytes")
    over_y = (volumes.sets[0] + volumes.sets[1]) / capacity
    over_z = volumes.sets[2] / capacity
    y_hit = gompertz(curve(machine, "y_hit", PAPER_CURVES.y_hit), min(max(over_y, 0.01), 10) if over_y else 0.1)
    z_hit = gompertz(curve(machine, "z_hit", PAPER_CURVES.z_hit), min(max(over_z, 0.01), 10) if over_z else 0.1)
    over_wave = (sum(volumes.load.values()) + sum(volumes.store.values())) / capacity
    load_miss = gompertz(curve(machine, "load_miss", PAPER_CURVES.load_miss), over_wave)
    store_miss = 1 - gompertz(curve(machine, "store_hit", PAPER_CURVES.store_hit), over_wave)
    waves = everything / cells
    arrays = {}
    for name in [name for name, space in launch.spaces.items() if space == "global"]:
        overlap = volumes.overlap.get(name, (0, 0, 0))
        part = ArrayVolumes(
            l1_wavefronts=group.wavefronts[name] * scale,
            l1_load=group.loads[name] * scale,
            l2_l1_compulsory=group.compulsory[name] * scale,
            l2_l1_capacity=l1_miss * (group.loads[name] - group.compulsory[name]) * scale,
            l2_l1_store=group.stores[name] * scale,
            wave_load=volumes.load.get(name, 0) * waves,
            wave_store=volumes.store.get(name, 0) * waves,
            overlap_x=overlap[0] * waves,
            overlap_y=overlap[1] * waves,
            overlap_z=overlap[2] * waves,
            hit_xy=(overlap[0] + overlap[1]) * y_hit * waves,
            hit_z=overlap[2] * z_hit * waves,
        )
        part = replace(
            part,
            l2_l1_load=part.l2_l1_compulsory + part.l2_l1_capacity,
            store_evict=store_miss * max(0.0, part.l2_l1_store - part.wave_store),
        )
        second = part.wave_load - part.hit_xy - part.hit_z
        part = replace(part, dram_capacity=load_miss * (part.l2_l1_load - second))
        arrays[name] = replace(
            part,
            dram_load=second + part.store_evict + part.dram_capacity,
            dram_store=part.wave_store + part.store_evict,
        )
    return Volumes(
        kernel=launch.kernel,
        machine=machine.name,
        variant="paper2022",
        arrays=arrays,
        total=ArrayVolumes.total(arrays.values()),
        resident_groups=resident,
        waves=prod(launch.groups) / at_once,
        wave_items=cells,
        l1_alloc=alloc,
        oversub_l1=over_l1,
        oversub_l2_y=over_y,
        oversub_l2_z=over_z,
        oversub_l2=over_wave,
    )
