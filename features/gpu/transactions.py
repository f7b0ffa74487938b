"""Memory transactions of a kernel on each level of a machine, from the addresses of its sub-groups (Section III)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from perflex.errors import MachineError
from perflex.features.gpu.estimate import estimate_volumes
from perflex.features.gpu.group import PERIOD, instructions
from perflex.features.gpu.local_memory import local_wavefronts
from perflex.features.gpu.resolved import accessing_launches
from perflex.features.gpu.sampling import representatives, whole_grid
from perflex.features.gpu.wavefronts import distinct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.scop.scop import Scop
    from perflex.machines.machine import Machine


def l1_transactions(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, *, register_reuse: bool = True
) -> dict[str, float]:
    """Return the transactions of global and of local memory, and both together, per run of the kernel.

    Both together are ``global + 4*local`` (Section III-B) where a local transaction moves four times the bytes of a
    global one, as on NVIDIA's GPUs. Without register reuse, each access of the source is an instruction.

    Raises
    ------
    MachineError
        The machine is no GPU, or a fact is not known.
    UnsupportedKernelError
        An access is too irregular.
    """
    require_gpu(machine)
    of_global, of_local = sum(global_transactions(scop, sizes, machine, register_reuse=register_reuse).values()), 0.0
    if any(scop.array(access.array).space == "local" for part in scop.statements for access in part.accesses):
        of_local = sum(local_transactions(scop, sizes, machine, register_reuse=register_reuse).values())
    # A machine file without facts on local memory is enough for kernels that use none.
    together = of_global + (local_factor(machine) * of_local if of_local else 0.0)
    return {"f_txn_global": of_global, "f_txn_local": of_local, "f_txn_l1": together}


def global_transactions(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, *, register_reuse: bool = True
) -> dict[tuple[str, str], float]:
    """Return the distinct sectors of each sub-group's loads and stores of global arrays, by array and direction.

    Exact at the given sizes: all sub-groups are counted, those whose addresses differ by multiples of a kibibyte and
    that guards treat alike by one that stands for them. Arrays begin at multiples of a cache line.
    """
    lanes, sector = int(machine.need("sub_group_size")), int(machine.need("sector_bytes"))
    line = int(machine.need("line_bytes"))
    total: dict[tuple[str, str], float] = defaultdict(float)
    for _, launch in accessing_launches(scop, sizes, register_reuse=register_reuse):
        for group, weight in representatives(launch, whole_grid(launch, line), PERIOD):
            for item in instructions(launch, group, lanes, "global", {}):
                # Coalescing works within an instruction: a sector counts anew for each sub-group.
                each = distinct(item.addresses, sector).sum(axis=-1)
                total[item.array, item.direction] += launch.repeats * weight * item.count * float(each @ item.weights)
    return total


def local_transactions(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, *, register_reuse: bool = True
) -> dict[tuple[str, str], float]:
    """Return the accesses of local memory with their replays, by array and direction.

    A sub-group's access is as many transactions as there are distinct words in the fullest bank; elements of eight
    bytes are served to halves of a sub-group in turn. All sub-groups are counted, so that one that straddles rows of
    the work-group conflicts as it does.
    """
    total: dict[tuple[str, str], float] = defaultdict(float)
    for _, launch in accessing_launches(scop, sizes, register_reuse=register_reuse):
        for key, count in local_wavefronts(launch, machine).items():
            total[key] += launch.repeats * count
    return total


def cache_transactions(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None, *, register_reuse: bool = True
) -> dict[str, float]:
    """Return the sectors between L2 and L1 and between DRAM and L2, from the data volumes, per run of the kernel.

    Raises
    ------
    MachineError, UnsupportedKernelError
        As the volumes.
    """
    require_gpu(machine)
    volumes = estimate_volumes(scop, sizes, machine, registers=registers, register_reuse=register_reuse).total
    sector = machine.need("sector_bytes")
    return {
        "f_txn_l2": (volumes.l2_l1_load + volumes.l2_l1_store) / sector,
        "f_txn_dram": (volumes.dram_load + volumes.dram_store) / sector,
    }


def local_factor(machine: Machine) -> float:
    """Return how many transactions of global memory move as many bytes as one of local memory (4: 128 B of 32 B)."""
    return machine.need("local_banks") * machine.need("local_bank_bytes") / machine.need("sector_bytes")


def require_gpu(machine: Machine) -> None:
    """Stop if a machine has no sub-groups and memory transactions of their own.

    Raises
    ------
    MachineError
        It is no GPU.
    """
    if machine.kind != "gpu":
        msg = (
            f"machine {machine.name} is a {machine.kind.upper()}: transactions of sub-groups and the instruction "
            "roofline are for GPUs; name one of 'perflex machine list'"
        )
        raise MachineError(msg, machine=machine.name)
