"""Rules of the data volumes.

Ernst, Holzer, Hager, Knorr, Wellein: Analytical Performance Estimation during Code Generation on Modern GPUs. Curves
have the form a exp(-b exp(-c O)) in an oversubscription O (Section 4.5). These rules differ from the paper's in these
points:

* L1 cycles of a sub-group's instruction follow the machine's rules (on NVIDIA's GPUs the larger of bank conflicts and
  tag look-ups, four lines a cycle);
* work-groups of all alignments and at all edges are averaged with their number in the grid;
* L1 misses follow from what the work-groups of a compute unit touch between two loads of a line (`l1_reuse`): a loop
  that sweeps through planes needs few of them at a time, and work-groups that run together may share them;
* repeated loads of a wave that does not fit the L2 miss as often as their distance exceeds it (`reuse_beyond`), but for
  loops;
* loads, and stores of sectors that are not complete, which the same work-group repeats miss the L2 where what all
  compute units touch between the two does not fit it (`l1_reuse`);
* DRAM is accessed by pairs of sectors, and the alignment of arrays counts;
* the y set is one row of work-groups high, and what a reuse has to survive is that set and what the wave newly loads;
* data that work-groups use in turn, and what waves further back have left, hit as far as they fit (`left_in_l2`);
* first waves, rows and layers have nothing before them in the launch, so that with cold caches DRAM loads are no less
  than what the launch touches; warm caches hold what the same run, just before, has left.

Their curves' coefficients are those of the authors' tool (2025 state; the four of L2), found by them on other kernels
and devices than those in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf, lcm, prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.gpu.l1 import Cycles, GroupVolumes, Lines, average_group, l1_cycles, l1_period
from perflex.features.gpu.l1_reuse import Below, Reuse, resident_reuse
from perflex.features.gpu.launch_footprints import Beforehand, FootprintCounter, Layout, instances
from perflex.features.gpu.left_in_l2 import Kept, WaveVolumes, gompertz, mean_volumes, recurring_hit
from perflex.features.gpu.resolved_launch import ResolvedLaunch
from perflex.features.gpu.volume_result import ArrayVolumes, Volumes
from perflex.features.gpu.waves import Waves, waves_of
from perflex.features.gpu.work_group_kinds import launch_instances, whole_grid
from perflex.machines.machine import Machine
from perflex.machines.residency import Residency

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Rates:
    """Shares of volumes: of overlaps that hit L2, and of what L2 gives up early.

    `again_miss` is the share of a run's data that the next run no longer finds in L2: 1 where caches are cold.
    """

    # of overlaps with the sets adjacent in x, y and z: where windows slide, and where data recur
    sliding: tuple[float, float, float]
    recurring: tuple[float, float, float]
    load_miss: float
    store_miss: float
    again_miss: float = 1.0
    # oversubscription of L2 by a wave, where loads that many work-groups share miss less often than those of stencils
    shared: float | None = None

    def repeated_miss(self, load: float, wave_load: float) -> float:
        """Return the share of repeated loads of a wave that miss, from what is loaded and what of it is distinct.

        Loads at any times of the wave leave no gap that is longer than the cache lasts if any further one comes within.
        """
        further = load / wave_load - _LOADS_OF_STENCILS if wave_load else 0.0
        if not self.shared or further <= 0:
            return self.load_miss
        apart: float = max(0.0, 1 - 1 / self.shared) ** further
        return self.load_miss * apart

    def hits(self, wave: WaveVolumes, array: str) -> NDArray[np.float64]:
        """Return what a wave finds in L2 of its overlaps with the sets adjacent in x, y and z, in bytes."""
        overlap = np.asarray(wave.overlap.get(array, (0.0, 0.0, 0.0)))
        recurring = np.asarray(wave.recurring.get(array, (0.0, 0.0, 0.0)))
        found: NDArray[np.float64] = (overlap - recurring) * self.sliding + recurring * self.recurring
        return found * wave.shares


@dataclass(frozen=True)
class Oversubscription:
    """Data over capacity: in L1, and in L2 by the x set, the y set, the z set and the wave."""

    l1: float
    l2_x: float
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
        footprints = FootprintCounter(launch, layout)
        cells = sum(weight * instances(launch, box) for wave, weight in waves.members for box in wave.now)
        group = average_group(launch, groups, lines, offsets, cycles, footprints)
        if not cells or not group.instances:
            msg = (
                f"guards of kernel {launch.kernel!r} leave nothing of the work-groups that data volumes look at; "
                "simplify them, or give them as bounds of its loops"
            )
            raise UnsupportedKernelError(msg, kernel=launch.kernel)
        mean = mean_volumes(footprints, waves)
        return cls(group, mean, launch_instances(launch), cells / sum(weight for _, weight in waves.members))


@dataclass(frozen=True)
class L1Loads:
    """How loads below the L1 cache differ from what each work-group loads at least, in bytes by array."""

    shared: Mapping[str, float]  # what another work-group on the same compute unit has loaded already
    repeated: Mapping[str, float]  # what is loaded again, since the cache has lost it
    # what DRAM loads and stores again of that and of all stores, since the L2 cache has lost it as well
    reloaded: Mapping[str, float] = field(default_factory=dict)
    rewritten: Mapping[str, float] = field(default_factory=dict)


def repeated_by_reuse(group: GroupVolumes, reuse: Reuse) -> L1Loads:
    """Return loads below the L1 cache from those of some compute units."""
    shared: dict[str, float] = {}
    repeated: dict[str, float] = {}
    for name, loads in reuse.loads.items():
        if not loads:
            continue
        compulsory = group.compulsory[name] * group.executed("load", name)
        if reuse.cut:
            below = group.loads[name] * reuse.missed[name] / loads
            shared[name], repeated[name] = max(0.0, compulsory - below), max(0.0, below - compulsory)
        else:
            shared[name] = compulsory * (1 - reuse.together[name] / reuse.alone[name])
            # Both are sums of the same weights, which rounding may leave apart.
            repeated[name] = group.loads[name] * max(0.0, reuse.missed[name] - reuse.together[name]) / loads
    reloaded, rewritten = (
        {name: made[name] * size / issued[name] for name, size in again.items() if issued[name]}
        for made, again, issued in (
            (group.loads, reuse.reloaded, reuse.loads), (group.stores, reuse.rewritten, reuse.stores),
        )
    )  # fmt: skip
    return L1Loads(shared, repeated, reloaded, rewritten)


def assembled(
    launch: ResolvedLaunch, parts: Parts, below_l1: L1Loads, rates: Rates, least: Mapping[str, int]
) -> Mapping[str, ArrayVolumes]:
    """Return the volumes of each array from footprints and rates (Sections 4.3 to 4.5).

    `least` are bytes that the launch loads from DRAM at least, where it finds nothing in L2.
    """
    group, wave = parts.group, parts.wave
    # What was looked at stands for the whole launch by the number of its instances, so that partly filled work-groups
    # count for what they do.
    scale, all_waves = parts.everything / group.instances, parts.everything / parts.cells
    arrays = {}
    for name in [name for name, space in launch.spaces.items() if space == "global"]:
        sizes = wave.overlap.get(name, (0.0, 0.0, 0.0))
        overlap = [size * share for size, share in zip(sizes, wave.shares, strict=True)]
        # Of loops with an average number of iterations, footprints have all, of which a part is executed.
        loaded, stored = (group.executed(direction, name) for direction in ("load", "store"))
        waves = loaded * all_waves
        compulsory, store = group.compulsory[name] * scale * loaded, group.stores[name] * scale
        loads_least = float(least.get(name, 0)) * loaded
        # L1 caches are empty at first: what the launch loads at all crosses once.
        shared = min(below_l1.shared.get(name, 0.0) * scale, max(0.0, compulsory - loads_least))
        capacity = below_l1.repeated.get(name, 0.0) * scale
        load = compulsory - shared + capacity
        wave_load, wave_store = wave.load.get(name, 0) * waves, wave.store.get(name, 0) * all_waves * stored
        hit_x, hit_y, hit_z = (float(size) for size in rates.hits(wave, name) * waves)
        hit_farther = wave.farther.get(name, 0.0) * waves
        # The same for stores: what L1 writes through beyond the wave's distinct granules is redundant.
        rewritten = below_l1.rewritten.get(name, 0.0) * scale
        evicted = max(rates.store_miss * max(0.0, store - wave_store), rewritten)
        # Loads that no earlier work-group has left in the L2: they come from DRAM for the first time.
        first = max(wave_load - hit_x - hit_y - hit_z - hit_farther, loads_least)
        reloaded = below_l1.reloaded.get(name, 0.0) * scale
        dram_capacity = max(rates.repeated_miss(load, wave_load) * max(0.0, load - first), reloaded)
        # What stays in L2 from run to run is neither loaded nor, as the next run overwrites it, written back.
        hit_again, kept_store = (1 - rates.again_miss) * first, (1 - rates.again_miss) * wave_store
        arrays[name] = ArrayVolumes(
            l1_wavefronts=group.wavefronts[name] * scale,
            written=group.written[name] * scale,
            l1_load=group.loads[name] * scale,
            l2_l1_compulsory=compulsory,
            l2_l1_shared=shared,
            l2_l1_capacity=capacity,
            l2_l1_load=load,
            l2_l1_store=store,
            wave_load=wave_load,
            wave_store=wave_store,
            overlap_x=overlap[0] * waves,
            overlap_y=overlap[1] * waves,
            overlap_z=overlap[2] * waves,
            hit_xy=hit_x + hit_y,
            hit_z=hit_z,
            hit_farther=hit_farther,
            store_evict=evicted,
            dram_capacity=dram_capacity,
            hit_again=hit_again,
            kept_store=kept_store,
            dram_load=first - hit_again + evicted + dram_capacity,
            dram_store=wave_store - kept_store + evicted,
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
    resident: float,
    units: int,
) -> Volumes:
    """Return the result of one launch, yet without the name of the machine.

    `resident` is the number of work-groups that each of the compute `units` holds at once; `least` as in `assembled`.
    """
    arrays = assembled(launch, parts, below_l1, rates, least or {})
    return Volumes(
        kernel=launch.kernel,
        machine="",
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


_OVERLAP_MISS = (1.0, 37.1, 3.2)
_LOAD_MISS = (0.2, 7.56, 0.67)
_STORE_MISS = (0.38, 3.79, 0.55)
# How often the stencils that the curves were found for load a granule in a wave at most, work-groups together.
_LOADS_OF_STENCILS = 8.0
# Edges of waves add less than a fifth to the distinct bytes of a launch.
_ROUGHLY = 1.2
# The sizes of caches that the later curves are stated for, in bytes.
_L2_REFERENCE = 4 * 1024 * 1024
# Rows shorter than this, in bytes, share sectors with their neighbours often enough to count that.
_SHORT_ROWS = 1024


def current_layout(machine: Machine, offsets: dict[str, int]) -> Layout:
    """Return how these rules cut addresses into what DRAM transfers: two sectors."""
    return Layout(2 * Lines.of(machine).sector, offsets, _SHORT_ROWS, wrap=True)


def current_volumes(
    launch: ResolvedLaunch, machine: Machine, held: Residency, offsets: dict[str, int], before: Beforehand
) -> Volumes:
    """Return the volumes of one launch, of which a compute unit holds so many work-groups.

    `offsets` are the byte addresses of arrays' first elements, modulo a cache line; 0 where not given. `before` is what
    the launch finds in L2.
    """
    lines = Lines.of(machine)
    lines = replace(lines, period=lcm(l1_period(machine), lines.line))
    units, resident = int(machine.need("compute_units")), held.groups_per_unit
    l1, l2 = machine.need("l1_bytes"), machine.need("l2_effective_bytes")
    waves = waves_of(launch, held.wave_groups, full_y_set=False)
    layout = current_layout(machine, offsets)
    parts = Parts.of(launch, whole_grid(launch, lines.line), waves, layout, lines, offsets, l1_cycles(machine))
    group, volumes = parts.group, parts.wave
    load, overlap = sum(volumes.load.values()), [sum(part) for part in zip(*volumes.overlap.values(), strict=True)]
    # `zip` of nothing, for a kernel without loads, yields no sums.
    overlap = overlap or [0, 0, 0]
    footprint = load + sum(volumes.store.values())
    over = Oversubscription(
        l1=group.allocated_bytes * resident / l1,
        l2_x=(volumes.sets[0] + load - overlap[0]) / l2,
        l2_y=(volumes.sets[1] + load - overlap[0] - overlap[1]) / l2,
        l2_z=(volumes.sets[2] + load - overlap[2]) / l2,
        l2=footprint / l2,
    )
    if _loads_more_than(parts, before.load):
        farther = mean_volumes(FootprintCounter(launch, layout), waves, Kept(l2, _OVERLAP_MISS))
        parts = replace(parts, wave=farther)
    # What a wave touches at all is no less than what is between two of its loads.
    of_group = sum(group.compulsory.values()) / max(1, group.groups)
    below = Below(l2 if over.l2 > 1 else inf, units, load, of_group)
    below_l1 = repeated_by_reuse(group, resident_reuse(launch, ceil(resident), l1, lines, offsets, below))
    wave_argument = footprint / sqrt(l2 * _L2_REFERENCE)
    # Section 4.5 fits no rate for the x set: the y set's serves both, where there is one.
    y_hit, z_hit = 1 - gompertz(_OVERLAP_MISS, over.l2_y), 1 - gompertz(_OVERLAP_MISS, over.l2_z)
    x_hit = y_hit if volumes.sets[1] else 1 - gompertz(_OVERLAP_MISS, over.l2_x)
    rates = Rates(
        sliding=(x_hit, y_hit, z_hit),
        recurring=(recurring_hit(over.l2_x), recurring_hit(over.l2_y), recurring_hit(over.l2_z)),
        load_miss=_load_miss(launch, over.l2, wave_argument),
        store_miss=gompertz(_STORE_MISS, wave_argument),
        # A run is the farthest that reuse reaches back, as a layer is within a launch.
        again_miss=1.0 if before.run_bytes is None else gompertz(_OVERLAP_MISS, before.run_bytes / l2),
        shared=over.l2,
    )
    found = as_volumes(launch, parts, below_l1, rates, over, before.load, resident=resident, units=units)
    # Work-groups in which nothing runs are part of no wave.
    return replace(found, waves=group.groups / held.wave_groups)


def _loads_more_than(parts: Parts, least: Mapping[str, int]) -> bool:
    """Return whether waves load more for the first time than there is, as far as the sets adjacent to them tell."""
    wave, waves = parts.wave, parts.everything / parts.cells
    for name, load in wave.load.items():
        adjacent = sum(size * share for size, share in zip(wave.overlap[name], wave.shares, strict=True))
        if (load - adjacent) * waves > _ROUGHLY * least.get(name, 0):
            return True
    return False


def _load_miss(launch: ResolvedLaunch, oversubscription: float, argument: float) -> float:
    rate = gompertz(_LOAD_MISS, argument)
    # The curve stays at a fifth however large a folded wave is. It is kept where loops load: work-groups of a wave go
    # through them side by side, so that what several of them load comes close together. What a work-group itself loads
    # again, however late, are `L1Loads.reloaded`.
    return rate if _loads_in_loops(launch) else max(rate, reuse_beyond(oversubscription))


def _loads_in_loops(launch: ResolvedLaunch) -> bool:
    axes = len(launch.groups) + len(launch.items)
    return any(
        low < high
        for piece in launch.pieces
        if any(access.direction == "load" and launch.spaces[access.array] == "global" for access in piece.accesses)
        for low, high in piece.ranges[axes:]
    )


def reuse_beyond(oversubscription: float) -> float:
    """Return the share of repeated loads of a wave between which more data is touched than a cache holds.

    Work-groups of a wave run at once, each at its own pace: if the two loads come at any times of the wave, independent
    of each other, the share of the wave's data touched between them is more than x with probability (1 - x)^2.
    """
    return (1 - 1 / oversubscription) ** 2 if oversubscription > 1 else 0.0
