"""The rules of data volumes of the 2022 paper, as its authors' tool has them; see `perflex.features.gpu.volume_rules`.

The paper's tool is cruder than the paper in three points, where its numbers and these differ:

* it counts work-items that guards keep from running, at the L1 cache and in work-groups that leave the domain;
* it takes the wave's extents in y and z from the domain before thread folding, so that a folded wave is too shallow;
* it places and cuts waves and sets in work-items of the domain before folding, which matters where the grid's upper
  edge cuts a work-group.
"""

from itertools import product

import numpy as np

from perflex.features.gpu.l1 import Lines
from perflex.features.gpu.launch_footprints import Layout
from perflex.features.gpu.left_in_l2 import gompertz
from perflex.features.gpu.memory_instructions import bank_conflicts, distinct
from perflex.features.gpu.resolved_launch import accessing_launches
from perflex.features.gpu.volume_rules import L1Loads, Oversubscription, Parts, Rates, as_volumes
from perflex.features.gpu.waves import launch_residency, waves_of
from perflex.features.gpu.work_group_kinds import guards_of, whole_grid

# Bytes from which on addresses share no wavefront: Section 4.2 chose it and found no exact value.
_FAR = 1024
# The curves of the paper's tool at the time of the paper; the first and fourth predict misses, the others hits.
_L1_MISS = (0.73, 4.6, 0.34)
_Y_HIT = (1.0, 0.06347897995, -1.03)
_Z_HIT = (1.0, 0.0036, -3.97)
_PAPER_LOAD_MISS = (0.5, 13.0, 1.8)
_STORE_HIT = (1.0, 0.044, -0.61)


def paper_estimate(scop, machine, registers, offsets):
    """Return the volumes of a Scop of one launch without sizes; arguments as `perflex.estimate_volumes`."""
    ((number, launch),) = accessing_launches(scop, {})
    resident = launch_residency(scop, number, {}, machine, registers).groups_per_unit
    return paper_volumes(launch, machine, resident, dict(offsets))


def first_groups(wave, most):
    """Return the grid's first work-groups, along each axis up to so many and no more than a wave has, with weight 1."""
    axes = [range(min(most, end + 1 - start)) for start, end in wave]
    return dict.fromkeys(product(*axes), 1)


def paper_cycles(addresses, itemsize):
    """Return the cycles of each iteration's instructions (Section 4.2).

    A half sub-group takes as many as there are addresses on one of 16 banks of 8 bytes, or segments of 1024 bytes.
    """
    halves = addresses.reshape(len(addresses), -1, addresses.shape[-1] // 2)
    conflicts = bank_conflicts(halves, 16, 8, itemsize)
    return np.maximum(conflicts, distinct(halves, _FAR)).sum(axis=-1)


def paper_volumes(launch, machine, resident, offsets):
    """Return the volumes of one launch by the rules of the paper; `resident` work-groups are on a compute unit."""
    lines = Lines.of(machine)
    units, capacity = int(machine.need("compute_units")), machine.need("l2_effective_bytes")
    waves = waves_of(launch, resident * units, full_y_set=True, edges=False)
    # The paper's tool looks at the first work-groups, which in an uneven grid may stand for nothing but themselves.
    even = guards_of(launch).even
    groups = first_groups(waves.members[0][0].now[0], 4) if even else whole_grid(launch, lines.line)
    # Addresses are (sector of the row, y, z), so that alignment does not enter.
    layout = Layout(lines.sector)
    parts = Parts.of(launch, groups, waves, layout, lines, offsets, paper_cycles)
    group, volumes = parts.group, parts.wave
    # Eq. 4: data over capacity, in the L1 what its resident work-groups allocate (whole lines).
    over = Oversubscription(
        l1=group.allocated_bytes * resident / machine.need("l1_bytes"),
        l2_x=(volumes.sets[0] + volumes.sets[1]) / capacity,
        l2_y=(volumes.sets[0] + volumes.sets[1]) / capacity,
        l2_z=volumes.sets[2] / capacity,
        l2=(sum(volumes.load.values()) + sum(volumes.store.values())) / capacity,
    )
    miss = gompertz(_L1_MISS, over.l1)
    # The redundant volume is what is asked for beyond the compulsory one (Eqs. 2 and 5).
    repeated = {name: miss * max(0.0, group.loads[name] - group.compulsory[name]) for name in group.loads}
    below_l1 = L1Loads({}, repeated)
    # Section 4.5 fits no rate for the x set: the y set's serves both.
    y_hit = gompertz(_Y_HIT, _clamped(over.l2_y))
    z_hit = gompertz(_Z_HIT, _clamped(over.l2_z))
    rates = Rates(
        sliding=(y_hit, y_hit, z_hit),
        recurring=(y_hit, y_hit, z_hit),
        load_miss=gompertz(_PAPER_LOAD_MISS, over.l2),
        store_miss=1 - gompertz(_STORE_HIT, over.l2),
    )
    return as_volumes(launch, parts, below_l1, rates, over, resident=resident, units=units)


def _clamped(oversubscription):
    """Return the argument of the curves of overlaps; 0.1 stands for no set."""
    return min(max(oversubscription, 0.01), 10.0) if oversubscription else 0.1
