"""Data volumes of work-items' own memory: private arrays in memory, and spilt registers.

Words of neighbouring work-items lie beside each other: a sub-group moves one of each work-item in one wavefront. L1
caches write through.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from perflex.features.gpu.volume_result import ArrayVolumes

if TYPE_CHECKING:
    from perflex.features.counting.private_memory import PrivateUse
    from perflex.machines.machine import Machine

PRIVATE = "private memory"
"""As what it is among the arrays of data volumes."""
_WORD_BYTES = 4
_ROUNDS = 30


def private_volumes(use: PrivateUse, items: float, machine: Machine) -> ArrayVolumes:
    """Return the volumes of a run of a launch of which each compute unit holds so many work-items at once."""
    word = _WORD_BYTES * machine.need("sub_group_size")
    held = use.bytes_per_item * items
    beyond_l1 = miss_of_sweeps(held / machine.need("l1_bytes")) if machine.l1_keeps_private else 1.0
    loads, stores = beyond_l1 * word * use.loads, word * use.stores
    beyond_l2 = miss_of_sweeps(held * machine.need("compute_units") / machine.need("l2_effective_bytes"))
    return ArrayVolumes(
        l1_wavefronts=use.loads + use.stores,
        written=word * use.stores,
        l1_load=word * use.loads,
        l2_l1_load=loads,
        l2_l1_store=stores,
        dram_load=beyond_l2 * loads,
        dram_store=beyond_l2 * stores,
    )


def miss_of_sweeps(oversubscription: float) -> float:
    """Return the share of accesses that miss a cache where all data are gone through again and again.

    Of a cache that replaces lines at random, a line is still there after all the others' misses with the probability
    exp(-miss x oversubscription).
    """
    if oversubscription <= 1:
        return 0.0
    miss = 1.0
    for _ in range(_ROUNDS):
        miss = 1 - exp(-miss * oversubscription)
    return miss
