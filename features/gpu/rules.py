"""What the variants of the estimator have in common, and their capacity curves.

All curves have the form a exp(-b exp(-c O)) in an oversubscription O (Ernst, Holzer, Hager, Knorr, Wellein: Analytical
Performance Estimation during Code Generation on Modern GPUs, Section 4.5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, prod
from typing import TYPE_CHECKING

from perflex.features.gpu.footprints import Toucher
from perflex.features.gpu.images import instances
from perflex.features.gpu.l1 import average_group
from perflex.features.gpu.l2 import wave_volumes
from perflex.features.gpu.result import ArrayVolumes, Volumes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.gpu.footprints import Layout
    from perflex.features.gpu.geometry import Wave
    from perflex.features.gpu.l1 import Cycles, GroupVolumes, Lines
    from perflex.features.gpu.l2 import WaveVolumes
    from perflex.features.gpu.resolved import ResolvedLaunch

VARIANTS = ("current", "paper2022")
Curve = tuple[float, float, float]


def gompertz(curve: Curve, oversubscription: float) -> float:
    """Return a exp(-b exp(-c O))."""
    a, b, c = curve
    # Curves of hits have a negative c: beyond 700 the inner exponential overflows, and the rate is 0 long before.
    return a * exp(-b * exp(min(-c * oversubscription, 700.0)))


@dataclass(frozen=True)
class Rates:
    """Shares of volumes: of repeated loads that miss L1, of overlaps that hit L2, and of what L2 gives up early."""

    l1_miss: float
    xy_hit: float
    z_hit: float
    load_miss: float
    store_miss: float


@dataclass(frozen=True)
class Oversubscription:
    """Data over capacity: in L1, and in L2 by the y set, the z set and the wave."""

    l1: float
    l2_y: float
    l2_z: float
    l2: float


@dataclass(frozen=True)
class Parts:
    """Sums over some work-groups and a wave, and the instances of a launch and of the wave, which scale them."""

    group: GroupVolumes
    wave: WaveVolumes
    everything: int
    cells: int

    @classmethod
    def of(
        cls,
        launch: ResolvedLaunch,
        groups: Mapping[tuple[int, ...], int],
        wave: Wave,
        layout: Layout,
        lines: Lines,
        offsets: dict[str, int],
        cycles: Cycles,
    ) -> Parts:
        """Return them for some work-groups (with weights) and a wave; `layout` is that of the wave's footprints."""
        toucher = Toucher(launch, layout)
        return cls(
            average_group(launch, groups, lines, offsets, cycles, toucher),
            wave_volumes(toucher, wave, layout.granule),
            instances(launch, tuple((0, extent - 1) for extent in launch.groups)),
            instances(launch, wave.now),
        )


def assembled(launch: ResolvedLaunch, parts: Parts, rates: Rates) -> Mapping[str, ArrayVolumes]:
    """Return the volumes of each array from footprints and rates (Sections 4.3 to 4.5)."""
    group, wave = parts.group, parts.wave
    # What was looked at stands for the whole launch by the number of its instances, so that partly filled work-groups
    # count for what they do.
    scale, waves = parts.everything / group.instances, parts.everything / parts.cells
    arrays = {}
    for name in [name for name, space in launch.spaces.items() if space == "global"]:
        overlap = wave.overlap.get(name, (0, 0, 0))
        part = ArrayVolumes(
            l1_wavefronts=group.wavefronts[name] * scale,
            l1_load=group.loads[name] * scale,
            l2_l1_compulsory=group.compulsory[name] * scale,
            # Eqs. 2 and 5: the redundant volume is what is asked for beyond the compulsory one.
            l2_l1_capacity=rates.l1_miss * max(0.0, group.loads[name] - group.compulsory[name]) * scale,
            l2_l1_store=group.stores[name] * scale,
            wave_load=wave.load.get(name, 0) * waves,
            wave_store=wave.store.get(name, 0) * waves,
            overlap_x=overlap[0] * waves,
            overlap_y=overlap[1] * waves,
            overlap_z=overlap[2] * waves,
            # Section 4.5 fits no rate for the x set: the y set's serves both.
            hit_xy=(overlap[0] + overlap[1]) * rates.xy_hit * waves,
            hit_z=overlap[2] * rates.z_hit * waves,
        )
        part = replace(
            part,
            l2_l1_load=part.l2_l1_compulsory + part.l2_l1_capacity,
            # The same for stores: what L1 writes through beyond the wave's distinct granules is redundant.
            store_evict=rates.store_miss * max(0.0, part.l2_l1_store - part.wave_store),
        )
        # Loads that no earlier work-group has left in the L2: they come from DRAM for the first time.
        first = part.wave_load - part.hit_xy - part.hit_z
        part = replace(part, dram_capacity=rates.load_miss * max(0.0, part.l2_l1_load - first))
        arrays[name] = replace(
            part,
            dram_load=first + part.store_evict + part.dram_capacity,
            dram_store=part.wave_store + part.store_evict,
        )
    return arrays


def as_volumes(
    launch: ResolvedLaunch, parts: Parts, rates: Rates, over: Oversubscription, *, resident: int, units: int
) -> Volumes:
    """Return the result of one launch, yet without the names of machine and variant.

    `resident` is the number of work-groups that each of the compute `units` holds at once.
    """
    arrays = assembled(launch, parts, rates)
    return Volumes(
        kernel=launch.kernel,
        machine="",
        variant="",
        arrays=arrays,
        total=ArrayVolumes.total(arrays.values()),
        resident_groups=resident,
        waves=prod(launch.groups) / (resident * units),
        wave_items=parts.cells,
        l1_alloc=sum(parts.group.allocated.values()) / parts.group.groups,
        oversub_l1=over.l1,
        oversub_l2_y=over.l2_y,
        oversub_l2_z=over.l2_z,
        oversub_l2=over.l2,
    )
