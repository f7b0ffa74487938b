"""What the variants of the estimator have in common, and their capacity curves.

All curves have the form a exp(-b exp(-c O)) in an oversubscription O (Ernst, Holzer, Hager, Knorr, Wellein: Analytical
Performance Estimation during Code Generation on Modern GPUs, Section 4.5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, prod
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError
from perflex.features.gpu.footprints import Toucher
from perflex.features.gpu.images import instances
from perflex.features.gpu.l1 import average_group
from perflex.features.gpu.l2 import mean_volumes
from perflex.features.gpu.result import ArrayVolumes, Volumes
from perflex.features.gpu.sampling import launch_instances

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.gpu.footprints import Layout
    from perflex.features.gpu.l1 import Cycles, GroupVolumes, Lines
    from perflex.features.gpu.l1_reuse import Reuse
    from perflex.features.gpu.l2 import WaveVolumes
    from perflex.features.gpu.resolved import ResolvedLaunch
    from perflex.features.gpu.wave_sampling import Waves

VARIANTS = ("current", "paper2022")
Curve = tuple[float, float, float]


def gompertz(curve: Curve, oversubscription: float) -> float:
    """Return a exp(-b exp(-c O))."""
    a, b, c = curve
    # Curves of hits have a negative c: beyond 700 the inner exponential overflows, and the rate is 0 long before.
    return a * exp(-b * exp(min(-c * oversubscription, 700.0)))


@dataclass(frozen=True)
class Rates:
    """Shares of volumes: of overlaps that hit L2, and of what L2 gives up early.

    `again_miss` is the share of a run's data that the next run no longer finds in L2: 1 where caches are cold.
    """

    xy_hit: float
    z_hit: float
    load_miss: float
    store_miss: float
    again_miss: float = 1.0


@dataclass(frozen=True)
class Oversubscription:
    """Data over capacity: in L1, and in L2 by the y set, the z set and the wave."""

    l1: float
    l2_y: float
    l2_z: float
    l2: float


@dataclass(frozen=True)
class Parts:
    """Sums over some work-groups, means of waves, and the instances of a launch and of a wave, which scale them."""

    group: GroupVolumes
    wave: WaveVolumes
    everything: int
    cells: float

    @classmethod
    def of(
        cls,
        launch: ResolvedLaunch,
        groups: Mapping[tuple[int, ...], int],
        waves: Waves,
        layout: Layout,
        lines: Lines,
        offsets: dict[str, int],
        cycles: Cycles,
    ) -> Parts:
        """Return them for some work-groups and waves (with weights); `layout` is that of the waves' footprints."""
        toucher = Toucher(launch, layout)
        cells = sum(weight * instances(launch, box) for wave, weight in waves.members for box in wave.now)
        group = average_group(launch, groups, lines, offsets, cycles, toucher)
        if not cells or not group.instances:
            msg = (
                f"guards of kernel {launch.kernel!r} leave nothing of the work-groups that data volumes look at; "
                "simplify them, or give them as bounds of its loops"
            )
            raise UnsupportedKernelError(msg, kernel=launch.kernel)
        mean = mean_volumes(toucher, waves, layout.granule)
        return cls(group, mean, launch_instances(launch), cells / sum(weight for _, weight in waves.members))


@dataclass(frozen=True)
class L1Loads:
    """How loads below the L1 cache differ from what each work-group loads at least, in bytes by array.

    Attributes
    ----------
    shared
        What another work-group on the same compute unit has loaded already.
    repeated
        What is loaded again, since the cache has lost it.
    """

    shared: Mapping[str, float]
    repeated: Mapping[str, float]


def repeated_by_curve(group: GroupVolumes, miss: float) -> L1Loads:
    """Return loads below the L1 cache from the share of repeated loads that miss (Eqs. 2 and 5)."""
    # The redundant volume is what is asked for beyond the compulsory one.
    return L1Loads({}, {name: miss * max(0.0, group.loads[name] - group.compulsory[name]) for name in group.loads})


def repeated_by_reuse(group: GroupVolumes, reuse: Reuse) -> L1Loads:
    """Return loads below the L1 cache from those of some compute units."""
    shared: dict[str, float] = {}
    repeated: dict[str, float] = {}
    for name, loads in reuse.loads.items():
        if not loads:
            continue
        compulsory = group.compulsory[name]
        if reuse.cut:
            below = group.loads[name] * reuse.missed[name] / loads
            shared[name], repeated[name] = max(0.0, compulsory - below), max(0.0, below - compulsory)
        else:
            shared[name] = compulsory * (1 - reuse.together[name] / reuse.alone[name])
            # Both are sums of the same weights, which rounding may leave apart.
            repeated[name] = group.loads[name] * max(0.0, reuse.missed[name] - reuse.together[name]) / loads
    return L1Loads(shared, repeated)


def assembled(
    launch: ResolvedLaunch, parts: Parts, below_l1: L1Loads, rates: Rates, least: Mapping[str, int]
) -> Mapping[str, ArrayVolumes]:
    """Return the volumes of each array from footprints and rates (Sections 4.3 to 4.5).

    `least` are bytes that the launch loads from DRAM at least, where it finds nothing in L2.
    """
    group, wave = parts.group, parts.wave
    # What was looked at stands for the whole launch by the number of its instances, so that partly filled work-groups
    # count for what they do.
    scale, waves = parts.everything / group.instances, parts.everything / parts.cells
    arrays = {}
    for name in [name for name, space in launch.spaces.items() if space == "global"]:
        sizes = wave.overlap.get(name, (0.0, 0.0, 0.0))
        overlap = [size * share for size, share in zip(sizes, wave.shares, strict=True)]
        part = ArrayVolumes(
            l1_wavefronts=group.wavefronts[name] * scale,
            l1_load=group.loads[name] * scale,
            l2_l1_compulsory=group.compulsory[name] * scale,
            l2_l1_shared=min(
                below_l1.shared.get(name, 0.0) * scale,
                # L1 caches are empty at first: what the launch loads at all crosses once.
                max(0.0, group.compulsory[name] * scale - least.get(name, 0)),
            ),
            l2_l1_capacity=below_l1.repeated.get(name, 0.0) * scale,
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
            l2_l1_load=part.l2_l1_compulsory - part.l2_l1_shared + part.l2_l1_capacity,
            # The same for stores: what L1 writes through beyond the wave's distinct granules is redundant.
            store_evict=rates.store_miss * max(0.0, part.l2_l1_store - part.wave_store),
        )
        # Loads that no earlier work-group has left in the L2: they come from DRAM for the first time.
        first = max(part.wave_load - part.hit_xy - part.hit_z, float(least.get(name, 0)))
        part = replace(
            part,
            dram_capacity=rates.load_miss * max(0.0, part.l2_l1_load - first),
            # What stays in L2 from run to run is neither loaded nor, as the next run overwrites it, written back.
            hit_again=(1 - rates.again_miss) * first,
            kept_store=(1 - rates.again_miss) * part.wave_store,
        )
        arrays[name] = replace(
            part,
            dram_load=first - part.hit_again + part.store_evict + part.dram_capacity,
            dram_store=part.wave_store - part.kept_store + part.store_evict,
        )
    return arrays


def as_volumes(
    launch: ResolvedLaunch,
    parts: Parts,
    below_l1: L1Loads,
    rates: Rates,
    over: Oversubscription,
    least: Mapping[str, int] | None = None,
    *,
    resident: int,
    units: int,
) -> Volumes:
    """Return the result of one launch, yet without the names of machine and variant.

    `resident` is the number of work-groups that each of the compute `units` holds at once; `least` as in `assembled`.
    """
    arrays = assembled(launch, parts, below_l1, rates, least or {})
    return Volumes(
        kernel=launch.kernel,
        machine="",
        variant="",
        arrays=arrays,
        total=ArrayVolumes.total(arrays.values()),
        resident_groups=resident,
        waves=prod(launch.groups) / (resident * units),
        wave_items=parts.cells,
        l1_alloc=parts.group.allocated_bytes,
        oversub_l1=over.l1,
        oversub_l2_y=over.l2_y,
        oversub_l2_z=over.l2_z,
        oversub_l2=over.l2,
    )
