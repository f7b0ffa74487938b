"""Data volumes of any kernel from its Scop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from perflex.errors import FeatureError, MachineError, warn
from perflex.features.counting.private_memory import PrivateUse, private_uses
from perflex.features.from_loopy.extract import extract_scop
from perflex.features.gpu.launch_footprints import beforehand
from perflex.features.gpu.memory_instructions import PERIOD, distinct, instructions, local_wavefronts
from perflex.features.gpu.private_volumes import PRIVATE, private_volumes
from perflex.features.gpu.resolved_launch import ResolvedLaunch, accessing_launches
from perflex.features.gpu.source_registers import source_registers
from perflex.features.gpu.volume_result import ArrayVolumes, Volumes
from perflex.features.gpu.volume_rules import current_layout, current_volumes
from perflex.features.gpu.waves import launch_residency, launched
from perflex.features.gpu.work_group_kinds import launch_instances, representatives, whole_grid
from perflex.features.scop.register_reuse import remaining_loads
from perflex.features.scop.scop import Scop
from perflex.features.target import CACHES
from perflex.machines.files import load_machine
from perflex.machines.machine import Machine


def estimate_volumes(
    kernel: Any,
    sizes: Mapping[str, int],
    machine: Machine | str | Path,
    *,
    registers: int | None = None,
    offsets: Mapping[str, int] | None = None,
    caches: str | None = None,
    private: Mapping[int, PrivateUse] | None = None,
) -> Volumes:
    """Estimate what a kernel moves between the levels of a GPU's memory hierarchy.

    Parameters
    ----------
    kernel
        Loopy kernel, measurement kernel, or Scop.
    sizes
        Value of each size parameter.
    machine
        The machine, its name, or its file.
    registers
        32-bit registers of a work-item; by default those that the source lets expect (`source_registers`).
    offsets
        Byte address of the first element of arrays, modulo a cache line; 0 where not given.
    caches
        What a run of the kernel finds in the L2 cache. ``"warm"``, the default: what of its own data the same run just
        before has left, as where a kernel is timed again and again; data that fit are then neither loaded from DRAM nor
        written back. ``"cold"``: each launch finds nothing, not even what the launch before it in the run has left, as
        where Nsight Compute empties caches before each; DRAM loads are then at least the distinct bytes that a launch
        loads, and stores count as written back.
    private
        What each launch, by its number, does with work-items' own memory, as its compiled code says; by default what
        `perflex.features.counting.private_memory` says of the source.

    Returns
    -------
    Volumes
        Bytes and wavefronts per run of the kernel, over all its launches; zero where it accesses no memory.

    Raises
    ------
    MachineError, FileFormatError
        There is no such machine, its file is wrong, or a fact that is needed is not known.
    MissingSizeError
        A size has no value.
    WorkGroupTooLargeError
        A work-group does not fit the machine.
    UnsupportedKernelError
        The kernel cannot be described, has no grid of work-groups, or an access is too irregular.
    FeatureError
        `caches` is none of these, or `offsets` fit no array.

    Warns
    -----
    PerflexWarning
        The kernel takes as many registers as a work-item can have: values that compilers keep may be spilled.

    Notes
    -----
    Source: Ernst, Holzer, Hager, Knorr, Wellein, Analytical Performance Estimation during Code Generation on Modern
    GPUs, Sections 3 and 4.
    """
    if caches is not None and caches not in CACHES:
        msg = f"data volumes have no caches {caches!r}; give {' or '.join(CACHES)}"
        raise FeatureError(msg, caches=caches)
    scop, machine = extract_scop(kernel, sizes), load_machine(machine)
    require_gpu(machine)
    scop.check_sizes(sizes)
    # Where nothing is kept, the registers are not full of what is loaded; what code spills is known.
    if registers is not None and private is None and remaining_loads(scop):
        _warn_of_spills(scop.name, machine, registers)
    given = dict(offsets or {})
    _check_offsets(scop, given)
    # Guards may leave nothing of a launch that has accesses, and loops of the host may not come to it.
    launches = [(n, one) for n, one in accessing_launches(scop, sizes) if launch_instances(one) and one.repeats]
    resident = [launch_residency(scop, n, sizes, machine, registers) for n, _ in launches]
    layout = current_layout(machine, given)
    before = beforehand(scop, sizes, [one for _, one in launches], layout, warm=caches != "cold")
    found = [
        current_volumes(launch, machine, held, given, left)
        for (_, launch), held, left in zip(launches, resident, before, strict=True)
    ]
    if private is None:
        numbers = range(len(scop.launches)) if registers is None else ()
        spilt = {n: source_registers(scop, n, sizes, machine).spilt for n in numbers}
        private = private_uses(scop, sizes, int(machine.need("sub_group_size")), spilt)
    own = {
        n: private_volumes(private[n], held.groups_per_unit * scop.launches[n].group_size, machine)
        for (n, _), held in zip(launches, resident, strict=True)
        if n in private
    }
    results = [
        (launch.repeats, _with_others(one, launch, machine, own.get(n)))
        for (n, launch), one in zip(launches, found, strict=True)
    ]
    total = _summed(results) if results else _nothing(scop, sizes, machine, registers)
    return replace(total, machine=machine.name, caches=caches or CACHES[0])


def _check_offsets(scop: Scop, offsets: Mapping[str, int]) -> None:
    names = [array.name for array in scop.arrays if array.memory == "global"]
    for name, offset in offsets.items():
        if name not in names:
            msg = f"kernel {scop.name!r} has no array {name!r} in global memory; offsets are of {', '.join(names)}"
            raise FeatureError(msg, kernel=scop.name, array=name)
        if offset != int(offset) or offset < 0:
            msg = f"array {name!r} cannot begin at byte {offset} of a cache line; give a whole number"
            raise FeatureError(msg, kernel=scop.name, array=name)


def _nothing(scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None) -> Volumes:
    """Return the volumes of a kernel that accesses no memory."""
    waves = [
        (repeats * groups / held.wave_groups, held)
        for _, repeats, groups, held in launched(scop, sizes, machine, registers)
    ]
    last = launch_residency(scop, len(scop.launches) - 1, sizes, machine, registers)
    _, longest = max(waves, key=itemgetter(0), default=(0.0, last))
    return Volumes(
        kernel=scop.name,
        machine="",
        arrays={},
        total=ArrayVolumes(),
        resident_groups=longest.groups_per_unit,
        waves=sum(weight for weight, _ in waves),
        wave_items=0,
        l1_alloc=0.0,
        oversub_l1=0.0,
        oversub_l2_y=0.0,
        oversub_l2_z=0.0,
        oversub_l2=0.0,
    )


def _warn_of_spills(kernel: str, machine: Machine, registers: int) -> None:
    # More than all are refused where resident work-groups are counted.
    if registers == machine.need("registers_per_item_max"):
        msg = (
            f"kernel {kernel!r} takes all {registers} registers of a work-item on {machine.name}: compilers spill "
            "values that do not fit, whose loads and stores are not counted; fewer outputs per work-item avoid it"
        )
        warn(msg)


def _with_others(result: Volumes, launch: ResolvedLaunch, machine: Machine, private: ArrayVolumes | None) -> Volumes:
    # Local memory is served within the compute unit: it has wavefronts, but no volume below.
    found = local_wavefronts(launch, machine)
    arrays = dict(result.arrays)
    for name in dict.fromkeys(name for name, _ in found):
        arrays[name] = ArrayVolumes(
            local_wavefronts_load=found.get((name, "load"), 0.0), local_wavefronts_store=found.get((name, "store"), 0.0)
        )
    if private is not None:
        arrays[PRIVATE] = private
    return replace(result, arrays=arrays, total=ArrayVolumes.total(arrays.values()))


def _summed(results: Sequence[tuple[int, Volumes]]) -> Volumes:
    """Return the volumes of all launches; what is no volume is a mean, with the launches' waves as weights."""
    waves = [repeats * one.waves for repeats, one in results]
    longest = results[waves.index(max(waves))][1]
    # Part of a wave waits as long as a whole one.
    loading = sum(repeats * max(1.0, one.waves) for repeats, one in results if one.total.dram_load > 0)
    names = dict.fromkeys(name for _, result in results for name in result.arrays)
    arrays = {
        name: ArrayVolumes.total(
            result.arrays[name].times(repeats) for repeats, result in results if name in result.arrays
        )
        for name in names
    }
    means = {
        name: sum(weight * getattr(one, name) for weight, (_, one) in zip(waves, results, strict=True)) / sum(waves)
        for name in ("wave_items", "l1_alloc", "oversub_l1", "oversub_l2_y", "oversub_l2_z", "oversub_l2")
    }
    total = ArrayVolumes.total(arrays.values())
    return replace(longest, arrays=arrays, total=total, waves=sum(waves), loading_waves=loading, **means)


def l1_transactions(scop: Scop, sizes: Mapping[str, int], machine: Machine) -> dict[str, float]:
    """Return the transactions of global and of local memory, and both together, per run of the kernel.

    Both together are ``global + 4*local`` (Section III-B) where a local transaction moves four times the bytes of a
    global one, as on NVIDIA's GPUs. Without register reuse, each access of the source is an instruction.
    """
    require_gpu(machine)
    of_global, of_local = sum(global_transactions(scop, sizes, machine).values()), 0.0
    if any(scop.array(access.array).space == "local" for part in scop.statements for access in part.accesses):
        of_local = sum(local_transactions(scop, sizes, machine).values())
    # A machine file without facts on local memory is enough for kernels that use none.
    together = of_global + (local_factor(machine) * of_local if of_local else 0.0)
    return {"f_txn_global": of_global, "f_txn_local": of_local, "f_txn_l1": together}


def global_transactions(scop: Scop, sizes: Mapping[str, int], machine: Machine) -> dict[tuple[str, str], float]:
    """Return the distinct sectors of each sub-group's loads and stores of global arrays, by array and direction.

    Exact at the given sizes: all sub-groups are counted, those whose addresses differ by multiples of a kibibyte and
    that guards treat alike by one that stands for them. Arrays begin at multiples of a cache line. Of launches in a
    loop of the host, which may do more and less, one stands for all, by the number of instances.
    """
    lanes, sector = int(machine.need("sub_group_size")), int(machine.need("sector_bytes"))
    line = int(machine.need("line_bytes"))
    total: dict[tuple[str, str], float] = defaultdict(float)
    for _, launch in accessing_launches(scop, sizes):
        for group, weight in representatives(launch, whole_grid(launch, line), PERIOD):
            for item in instructions(launch, group, lanes, "global", {}):
                # Coalescing works within an instruction: a sector counts anew for each sub-group.
                each = distinct(item.addresses, sector).sum(axis=-1)
                number = launch.repeats * weight * item.count * item.times
                total[item.array, item.direction] += number * float(each @ item.weights)
    return total


def local_transactions(scop: Scop, sizes: Mapping[str, int], machine: Machine) -> dict[tuple[str, str], float]:
    """Return the accesses of local memory with their replays, by array and direction.

    A sub-group's access is as many transactions as there are distinct words in the fullest bank; elements of eight
    bytes are served to halves of a sub-group in turn. All sub-groups are counted.
    """
    total: dict[tuple[str, str], float] = defaultdict(float)
    for _, launch in accessing_launches(scop, sizes):
        for key, count in local_wavefronts(launch, machine).items():
            total[key] += launch.repeats * count
    return total


def local_atomic_cycles(scop: Scop, sizes: Mapping[str, int], machine: Machine) -> float:
    """Return the cycles that atomic updates of local memory take, over all compute units.

    Different words on one bank take turns. What the work-items of a sub-group add to one word the hardware adds up
    first: on an RTX 3070 Ti a histogram with all elements in one bin takes no longer than its other work.
    """
    updated = {
        access.array
        for statement in scop.statements
        for access in statement.accesses
        if access.atomic and access.direction == "store" and scop.array(access.array).space == "local"
    }
    if not updated:
        return 0.0
    found = local_transactions(scop, sizes, machine)
    return sum(found.get((array, "store"), 0.0) for array in updated)


def cache_transactions(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None, caches: str | None = None
) -> dict[str, float]:
    """Return the sectors between L2 and L1 and between DRAM and L2, from the data volumes, per run of the kernel."""
    require_gpu(machine)
    volumes = estimate_volumes(scop, sizes, machine, registers=registers, caches=caches).total
    sector = machine.need("sector_bytes")
    return {
        "f_txn_l2": (volumes.l2_l1_load + volumes.l2_l1_store) / sector,
        "f_txn_dram": (volumes.dram_load + volumes.dram_store) / sector,
    }


def local_factor(machine: Machine) -> float:
    """Return how many transactions of global memory move as many bytes as one of local memory (4: 128 B of 32 B)."""
    return machine.need("local_banks") * machine.need("local_bank_bytes") / machine.need("sector_bytes")


def require_gpu(machine: Machine) -> None:
    """Stop if a machine is no GPU."""
    if machine.kind != "gpu":
        msg = (
            f"machine {machine.name} is a {machine.kind.upper()}: waves and volumes of work-groups, transactions of "
            "sub-groups and the instruction roofline are for GPUs; name one of 'perflex list machines'"
        )
        raise MachineError(msg, machine=machine.name)
