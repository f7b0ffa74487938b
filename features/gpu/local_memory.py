"""Bank conflicts of local memory."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from perflex.features.gpu.group import instructions
from perflex.features.gpu.sampling import representatives, whole_grid
from perflex.features.gpu.wavefronts import bank_conflicts

if TYPE_CHECKING:
    from perflex.features.gpu.resolved import ResolvedLaunch
    from perflex.machines.machine import Machine


def local_wavefronts(launch: ResolvedLaunch, machine: Machine) -> dict[tuple[str, str], float]:
    """Return the cycles that accesses of local arrays take in a launch, by array and direction.

    An instruction takes as many as there are distinct words on one bank, over all sub-groups of a work-group; elements
    of more than a word are served to parts of a sub-group in turn.
    """
    total: dict[tuple[str, str], float] = defaultdict(float)
    if "local" not in launch.spaces.values():
        return total
    lanes, banks, word = (int(machine.need(name)) for name in ("sub_group_size", "local_banks", "local_bank_bytes"))
    # Period 1: a work-group's local addresses start anew, so that only guards tell work-groups apart.
    for group, weight in representatives(launch, whole_grid(launch, 1), 1):
        for item in instructions(launch, group, lanes, "local", {}):
            width = max(item.itemsize, word)
            parts = max(1, lanes * width // (banks * word))
            split = item.addresses.reshape(*item.addresses.shape[:-1], parts, -1)
            each = bank_conflicts(split, banks * word // width, width, width).sum(axis=(-1, -2))
            total[item.array, item.direction] += weight * item.count * float(each @ item.weights)
    return total
