"""Waves of a kernel's work-groups on a machine: how many, how full, and what the last one costs."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError, WorkGroupTooLargeError
from perflex.features.gpu.geometry import launch_residency
from perflex.machines.residency import residency

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.scop.scop import Scop
    from perflex.machines.machine import Machine


def wave_values(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None = None
) -> dict[str, float]:
    """Return the features of residency.

    Of several launches, waves add up and the others are means with the waves as weights.

    Parameters
    ----------
    scop, sizes
        The kernel, and an integer per size parameter.
    machine
        The machine.
    registers
        32-bit registers per work-item; None if they limit nothing.

    Returns
    -------
    dict
        ``f_waves``: work-groups by work-groups that are resident at once, not rounded. ``f_wave_quantisation``: the
        same rounded up by not rounded, the factor by which an unfilled last wave lengthens a launch whose time goes
        with full waves. ``f_occupancy``: resident sub-groups as a fraction of the most that a compute unit can hold.
        ``f_su_imbalance``: Su's factor (1 + 1/waves) / (occupancy / highest occupancy) (Su et al. 2015, Eq. 18), where
        the highest occupancy is that of any work-group size with the same registers.

    Raises
    ------
    UnsupportedKernelError
        There are no work-groups at these sizes.
    WorkGroupTooLargeError
        A work-group exceeds a limit of the machine.
    MachineError
        A fact is not known.
    """
    waves = rounded = occupancy = imbalance = 0.0
    for number, launch in enumerate(scop.launches):
        repeats = float(launch.repeats.evaluate(sizes))
        groups = prod(int(extent.evaluate(sizes)) for extent in launch.groups)
        # A launch of nothing takes no part of a wave.
        if groups <= 0 or repeats <= 0:
            continue
        held = launch_residency(scop, number, sizes, machine, registers)
        # Su's number of groups is rounded up (Eq. 10), and Eq. 18 divides by it.
        share, whole = groups / held.wave_groups, ceil(groups / held.wave_groups)
        waves += repeats * share
        rounded += repeats * whole
        occupancy += repeats * share * held.occupancy
        imbalance += repeats * share * (1 + 1 / whole) * _highest_occupancy(machine, registers) / held.occupancy
    if not waves:
        msg = f"kernel {scop.name!r} has no work-groups at these sizes; give larger ones"
        raise UnsupportedKernelError(msg, kernel=scop.name)
    return {
        "f_waves": waves,
        "f_wave_quantisation": rounded / waves,
        "f_occupancy": occupancy / waves,
        "f_su_imbalance": imbalance / waves,
    }


def _highest_occupancy(machine: Machine, registers: int | None) -> float:
    size = int(machine.need("sub_group_size"))
    highest = 0.0
    for items in range(size, int(machine.need("max_items_per_group")) + 1, size):
        try:
            highest = max(highest, residency(machine, items, 0, registers).occupancy)
        except WorkGroupTooLargeError:
            break  # larger ones do not fit either
    return highest
