"""The estimate by the best rules known here (variant ``current``).

It differs from the paper's in five points:

* L1 cycles of a sub-group's instruction are the larger of bank conflicts and tag look-ups, four lines a cycle;
* work-groups of all alignments and at all edges are averaged with their number in the grid;
* L1 capacity misses follow the mean of the paper's curve and the later one of its authors' tool;
* DRAM is accessed by pairs of sectors, and the alignment of arrays counts;
* the y set is one row of work-groups high, and what a reuse has to survive is that set and what the wave newly loads.

The curves' coefficients are those of the authors' tool (2025 state; its L1 curve and the four of L2), found by them on
other kernels and devices than those in the tests.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.footprints import Layout
from perflex.features.gpu.geometry import filled_groups, wave_of
from perflex.features.gpu.l1 import Lines
from perflex.features.gpu.rules import Oversubscription, Parts, Rates, as_volumes, gompertz
from perflex.features.gpu.sampling import whole_grid
from perflex.features.gpu.wavefronts import bank_conflicts, distinct

if TYPE_CHECKING:
    from perflex.features.gpu.resolved import ResolvedLaunch
    from perflex.features.gpu.result import Volumes
    from perflex.machines.machine import Machine

_L1_MISS_PAPER = (0.73, 4.6, 0.34)
_L1_MISS_LATER = (0.66, 6.77, 1.45)
_OVERLAP_MISS = (1.0, 37.1, 3.2)
_LOAD_MISS = (0.2, 7.56, 0.67)
_STORE_MISS = (0.38, 3.79, 0.55)
# The sizes of caches that the later curves are stated for, in bytes.
_L1_REFERENCE = 128 * 1024
_L2_REFERENCE = 4 * 1024 * 1024
# Rows shorter than this, in bytes, share sectors with their neighbours often enough to count that.
_SHORT_ROWS = 1024
_LINES_PER_CYCLE = 4
_TAG_OFFSET = 2


def current_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the cycles of each iteration's instructions: the larger of data and tag cycles of each.

    Elements of eight bytes and more are served to parts of a sub-group in turn, 128 bytes at most.
    """
    # 32 banks of 4 bytes: smaller elements share a bank's word, larger ones span banks.
    lanes, width = addresses.shape[-1], max(itemsize, 4)
    split = addresses.reshape(*addresses.shape[:-1], max(1, lanes * itemsize // 128), -1)
    data = bank_conflicts(split, 128 // width, width, width).sum(axis=-1)
    tags = distinct(addresses, 128)
    tag_cycles = np.where(tags > 0, -(-(tags + _TAG_OFFSET) // _LINES_PER_CYCLE), 0)
    cycles: np.ndarray = np.maximum(data, tag_cycles).sum(axis=-1)
    return cycles


def current_volumes(
    launch: ResolvedLaunch, machine: Machine, resident: int, granule: int | None, offsets: dict[str, int]
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
    units = int(machine.need("compute_units"))
    l1, l2 = machine.need("l1_bytes"), machine.need("l2_effective_bytes")
    wave = wave_of(launch.groups, filled_groups(launch), resident * units, full_y_set=False)
    layout = Layout(granule or 2 * lines.sector, offsets, _SHORT_ROWS)
    parts = Parts.of(launch, whole_grid(launch, lines.line), wave, layout, lines, offsets, current_cycles)
    group, volumes = parts.group, parts.wave
    load, overlap = sum(volumes.load.values()), [sum(part) for part in zip(*volumes.overlap.values(), strict=True)]
    # `zip` of nothing, for a kernel without loads, yields no sums.
    overlap = overlap or [0, 0, 0]
    alloc = sum(group.allocated.values()) / group.groups
    footprint = load + sum(volumes.store.values())
    over = Oversubscription(
        l1=alloc * resident / l1,
        l2_y=(volumes.sets[1] + load - overlap[0] - overlap[1]) / l2,
        l2_z=(volumes.sets[2] + load - overlap[2]) / l2,
        l2=footprint / l2,
    )
    wave_argument = footprint / sqrt(l2 * _L2_REFERENCE)
    l1_curves = (
        gompertz(_L1_MISS_PAPER, over.l1),
        gompertz(_L1_MISS_LATER, alloc / sqrt(l1 * _L1_REFERENCE)),
    )
    own = machine.curves.get("l1_miss_current")
    rates = Rates(
        l1_miss=gompertz(own, over.l1) if own else sum(l1_curves) / 2,
        xy_hit=1 - gompertz(machine.curves.get("xy_miss_current", _OVERLAP_MISS), over.l2_y),
        z_hit=1 - gompertz(machine.curves.get("z_miss_current", _OVERLAP_MISS), over.l2_z),
        load_miss=gompertz(machine.curves.get("load_miss_current", _LOAD_MISS), wave_argument),
        store_miss=gompertz(machine.curves.get("store_miss_current", _STORE_MISS), wave_argument),
    )
    return as_volumes(launch, parts, rates, over, resident=resident, units=units)
