"""The estimate by the best rules known here (variant ``current``).

It differs from the paper's in these points:

* L1 cycles of a sub-group's instruction follow the machine's rules (on NVIDIA's GPUs the larger of bank conflicts and
  tag look-ups, four lines a cycle);
* work-groups of all alignments and at all edges are averaged with their number in the grid;
* L1 misses follow from what the work-groups of a compute unit touch between two loads of a line (`l1_reuse`): a loop
  that sweeps through planes needs few of them at a time, and work-groups that run together may share them;
* repeated loads of a wave that does not fit the L2 miss as often as their distance exceeds it (`reuse_beyond`), but for
  loops;
* DRAM is accessed by pairs of sectors, and the alignment of arrays counts;
* the y set is one row of work-groups high, and what a reuse has to survive is that set and what the wave newly loads;
* first waves, rows and layers have nothing before them in the launch, so that with cold caches DRAM loads are no less
  than what the launch touches; warm caches hold what the same run, just before, has left.

The curves' coefficients are those of the authors' tool (2025 state; the four of L2), found by them on other kernels and
devices than those in the tests.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm, sqrt
from typing import TYPE_CHECKING

from perflex.features.gpu.footprints import Layout
from perflex.features.gpu.l1 import Lines
from perflex.features.gpu.l1_reuse import resident_reuse
from perflex.features.gpu.l1_rules import l1_cycles, l1_period
from perflex.features.gpu.rules import (
    Oversubscription,
    Parts,
    Rates,
    as_volumes,
    gompertz,
    repeated_by_curve,
    repeated_by_reuse,
)
from perflex.features.gpu.sampling import whole_grid
from perflex.features.gpu.wave_sampling import waves_of

if TYPE_CHECKING:
    from perflex.features.gpu.launch_footprint import Beforehand
    from perflex.features.gpu.resolved import ResolvedLaunch
    from perflex.features.gpu.result import Volumes
    from perflex.machines.machine import Machine

_OVERLAP_MISS = (1.0, 37.1, 3.2)
_LOAD_MISS = (0.2, 7.56, 0.67)
_STORE_MISS = (0.38, 3.79, 0.55)
# The sizes of caches that the later curves are stated for, in bytes.
_L2_REFERENCE = 4 * 1024 * 1024
# Rows shorter than this, in bytes, share sectors with their neighbours often enough to count that.
_SHORT_ROWS = 1024


def current_layout(machine: Machine, granule: int | None, offsets: dict[str, int]) -> Layout:
    """Return how these rules cut addresses into what DRAM transfers; arguments and errors as `current_volumes`."""
    return Layout(granule or 2 * Lines.of(machine).sector, offsets, _SHORT_ROWS, wrap=True)


def current_volumes(
    launch: ResolvedLaunch,
    machine: Machine,
    resident: int,
    granule: int | None,
    offsets: dict[str, int],
    before: Beforehand,
) -> Volumes:
    """Return the volumes of one launch by the rules above.

    Parameters
    ----------
    launch
        The launch at given sizes.
    machine
        Its caches and compute units.
    resident
        Work-groups that a compute unit holds at once.
    granule
        Bytes that DRAM is accessed in; None for two sectors.
    offsets
        Byte address of each array's first element, modulo a cache line; 0 where not given.
    before
        What the launch finds in L2.

    Returns
    -------
    Volumes
        Bytes and wavefronts of a launch, with neither machine nor variant named.

    Raises
    ------
    MachineError
        A fact is not known.
    UnsupportedKernelError
        An access is too irregular.
    """
    lines = Lines.of(machine)
    lines = replace(lines, period=lcm(l1_period(machine), lines.line))
    units = int(machine.need("compute_units"))
    l1, l2 = machine.need("l1_bytes"), machine.need("l2_effective_bytes")
    waves = waves_of(launch, resident * units, full_y_set=False)
    layout = current_layout(machine, granule, offsets)
    parts = Parts.of(launch, whole_grid(launch, lines.line), waves, layout, lines, offsets, l1_cycles(machine))
    group, volumes = parts.group, parts.wave
    load, overlap = sum(volumes.load.values()), [sum(part) for part in zip(*volumes.overlap.values(), strict=True)]
    # `zip` of nothing, for a kernel without loads, yields no sums.
    overlap = overlap or [0, 0, 0]
    footprint = load + sum(volumes.store.values())
    over = Oversubscription(
        l1=group.allocated_bytes * resident / l1,
        l2_y=(volumes.sets[1] + load - overlap[0] - overlap[1]) / l2,
        l2_z=(volumes.sets[2] + load - overlap[2]) / l2,
        l2=footprint / l2,
    )
    own = machine.curves.get("l1_miss_current")
    below_l1 = (
        repeated_by_curve(group, gompertz(own, over.l1))
        if own
        else repeated_by_reuse(group, resident_reuse(launch, resident, units, l1, lines, offsets))
    )
    wave_argument = footprint / sqrt(l2 * _L2_REFERENCE)
    z_miss = machine.curves.get("z_miss_current", _OVERLAP_MISS)
    rates = Rates(
        xy_hit=1 - gompertz(machine.curves.get("xy_miss_current", _OVERLAP_MISS), over.l2_y),
        z_hit=1 - gompertz(z_miss, over.l2_z),
        load_miss=_load_miss(launch, machine, over.l2, wave_argument),
        store_miss=gompertz(machine.curves.get("store_miss_current", _STORE_MISS), wave_argument),
        # A run is the farthest that reuse reaches back, as a layer is within a launch.
        again_miss=1.0 if before.run_bytes is None else gompertz(z_miss, before.run_bytes / l2),
    )
    found = as_volumes(launch, parts, below_l1, rates, over, before.load, resident=resident, units=units)
    # Work-groups in which nothing runs are part of no wave.
    return replace(found, waves=group.groups / (resident * units))


def _load_miss(launch: ResolvedLaunch, machine: Machine, oversubscription: float, argument: float) -> float:
    own = machine.curves.get("load_miss_current")
    rate = gompertz(own or _LOAD_MISS, argument)
    # The curve stays at a fifth however large a folded wave is. It is kept where loops load: work-groups of a wave go
    # through them side by side, so that repeated loads come close together.
    return rate if own or _loads_in_loops(launch) else max(rate, reuse_beyond(oversubscription))


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
