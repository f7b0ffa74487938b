"""The estimate as the paper describes it (variant ``paper2022``).

The paper's tool is cruder in three points, where its numbers and these differ:

* it counts work-items that guards keep from running, at the L1 cache and in work-groups that leave the domain;
* it takes the wave's extents in y and z from the domain before thread folding, so that a folded wave is too shallow;
* it places and cuts waves and sets in work-items of the domain before folding, which matters where the grid's upper
  edge cuts a work-group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.footprints import Layout
from perflex.features.gpu.guards import guards_of
from perflex.features.gpu.l1 import Lines
from perflex.features.gpu.l1_rules import require_nvidia
from perflex.features.gpu.rules import Oversubscription, Parts, Rates, as_volumes, gompertz, repeated_by_curve
from perflex.features.gpu.sampling import first_groups, whole_grid
from perflex.features.gpu.wave_sampling import waves_of
from perflex.features.gpu.wavefronts import bank_conflicts, distinct

if TYPE_CHECKING:
    from perflex.features.gpu.resolved import ResolvedLaunch
    from perflex.features.gpu.result import Volumes
    from perflex.machines.machine import Machine

# Bytes from which on addresses share no wavefront: Section 4.2 chose it and found no exact value.
_FAR = 1024
# The curves of the paper's tool at the time of the paper; the first and fourth predict misses, the others hits.
_L1_MISS = (0.73, 4.6, 0.34)
_Y_HIT = (1.0, 0.06347897995, -1.03)
_Z_HIT = (1.0, 0.0036, -3.97)
_LOAD_MISS = (0.5, 13.0, 1.8)
_STORE_HIT = (1.0, 0.044, -0.61)


def paper_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the cycles of each iteration's instructions (Section 4.2).

    A half sub-group takes as many as there are addresses on one of 16 banks of 8 bytes, or segments of 1024 bytes.
    """
    halves = addresses.reshape(len(addresses), -1, addresses.shape[-1] // 2)
    conflicts = bank_conflicts(halves, 16, 8, itemsize)
    cycles: np.ndarray = np.maximum(conflicts, distinct(halves, _FAR)).sum(axis=-1)
    return cycles


def paper_volumes(
    launch: ResolvedLaunch, machine: Machine, resident: int, granule: int | None, offsets: dict[str, int]
) -> Volumes:
    """Return the volumes of one launch by the rules of the paper; arguments and errors as `current_volumes`.

    The granule is a sector where none is given.
    """
    require_nvidia(machine, "paper2022")
    lines = Lines.of(machine)
    units, capacity = int(machine.need("compute_units")), machine.need("l2_effective_bytes")
    waves = waves_of(launch, resident * units, full_y_set=True, edges=False)
    # The paper's tool looks at the first work-groups, which in an uneven grid may stand for nothing but themselves.
    even = guards_of(launch).even
    groups = first_groups(waves.members[0][0].now[0], 4) if even else whole_grid(launch, lines.line)
    # Addresses are (sector of the row, y, z), so that alignment does not enter.
    layout = Layout(granule or lines.sector)
    parts = Parts.of(launch, groups, waves, layout, lines, offsets, paper_cycles)
    group, volumes = parts.group, parts.wave
    # Eq. 4: data over capacity, in the L1 what its resident work-groups allocate (whole lines).
    over = Oversubscription(
        l1=group.allocated_bytes * resident / machine.need("l1_bytes"),
        l2_y=(volumes.sets[0] + volumes.sets[1]) / capacity,
        l2_z=volumes.sets[2] / capacity,
        l2=(sum(volumes.load.values()) + sum(volumes.store.values())) / capacity,
    )
    below_l1 = repeated_by_curve(group, gompertz(machine.curves.get("l1_miss", _L1_MISS), over.l1))
    rates = Rates(
        xy_hit=gompertz(machine.curves.get("y_hit", _Y_HIT), _clamped(over.l2_y)),
        z_hit=gompertz(machine.curves.get("z_hit", _Z_HIT), _clamped(over.l2_z)),
        load_miss=gompertz(machine.curves.get("load_miss", _LOAD_MISS), over.l2),
        store_miss=1 - gompertz(machine.curves.get("store_hit", _STORE_HIT), over.l2),
    )
    return as_volumes(launch, parts, below_l1, rates, over, resident=resident, units=units)


def _clamped(oversubscription: float) -> float:
    """Return the argument of the curves of overlaps; 0.1 stands for no set."""
    return min(max(oversubscription, 0.01), 10.0) if oversubscription else 0.1
