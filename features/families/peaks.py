"""Times at a machine's peaks: ``f_peak_<resource>``, seconds that a kernel takes if one resource alone limits it.

Work-groups are dealt evenly to compute units, so that the busiest unit counts, not the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from perflex.features.counting.scop_counts import counts_of
from perflex.features.families.feature import Cost, Family, any_of, estimated_of_all
from perflex.features.families.latency import latency_seconds
from perflex.features.families.machine_run import MachineRun
from perflex.features.gpu.volume_estimate import local_atomic_cycles

# A wavefront is what four-byte words of 32 work-items take.
_WAVEFRONT_BYTES = 128
# A line takes 1.5 updates of neighbouring words in the time of one update of a single word: histograms of 256 and 512
# bins on Turing and Ampere (gpuperf and NVBench collections). An update of 8 bytes takes 3.2 times as long as one of 4:
# HeCBench's atomicPerf and atomicIntrinsics on an RTX 3080 (gpuFLOPBench).
_NEIGHBOURS = 1.5
_WIDE_UPDATE = 3.2
_WORD_BYTES = 4
# What `general_gpu` usually has as p_sharp.
_SHARPNESS = 3.5
# The L2 cache takes a sector that a store writes in part as if it moved what is left of it three times: transposes and
# strided stores on an H100, an RTX 4070 and a GTX TITAN X, which write 5 to 24 such sectors in a cycle whether there is
# one word in them or two.
_PARTLY_WRITTEN = 3


def _dram(run: MachineRun) -> float:
    total = run.volumes().total
    return run.over(total.dram_load + total.dram_store, "dram_bandwidth")


def _l2(run: MachineRun) -> float:
    volumes = run.volumes()
    moved = volumes.total.l2_l1_load + volumes.total.l2_l1_store
    updated = {access.array for one in run.scop.statements for access in one.accesses if access.atomic}
    stored = (one for name, one in volumes.arrays.items() if name not in updated)
    beside = _PARTLY_WRITTEN * sum(max(0.0, one.l2_l1_store - one.written) for one in stored)
    # One compute unit alone gets less than all of the bandwidth.
    return max(run.over(moved + beside, "l2_bandwidth"), run.unit_seconds(run.over(moved, "l2_bytes_per_cycle")))


def _l1(run: MachineRun) -> float:
    wavefronts = run.volumes().total.l1_wavefronts
    if not wavefronts:
        return 0.0
    # Rules count cycles of a cache that serves a sub-group's four-byte words in one.
    wide = min(1.0, run.need("l1_bytes_per_cycle") / _WAVEFRONT_BYTES)
    rules_know = run.machine.need_l1_rules().startswith("amd")
    return run.unit_seconds(wavefronts if rules_know else wavefronts / wide)


def _local(run: MachineRun) -> float:
    total = run.volumes().total
    wavefronts = total.local_wavefronts_load + total.local_wavefronts_store
    return run.unit_seconds(wavefronts / run.machine.local_wavefronts_per_cycle)


def _ldst(run: MachineRun) -> float:
    """Return the time that the addresses of loads and stores take, of any memory."""
    lanes = run.accesses() * run.target.sub_group_size
    return run.unit_seconds(lanes / run.machine.load_store_units)


def _atomic(run: MachineRun) -> float:
    """Return the time of updates of global memory, which the L2 cache does for all sub-groups of a launch together.

    Updates of one line wait for one another, whichever sub-group makes them. Where compilers see that a sub-group
    updates one integer, it adds up its values first, and updates once. Elements that depend on data are as many as the
    array may have, all updated equally often.
    """
    counts, cycles = counts_of(run.scop), 0.0
    for item in counts.accesses:
        if not item.access.atomic or item.access.direction != "store" or item.array.space != "global":
            continue
        touched = counts.footprint_among((item,))
        swapped = any(one.kind == "swap" for one in item.statement.operations)
        added_up = item.is_uniform and not item.access.assumed and "int" in item.array.dtype and not swapped
        instances = counts.instances(item.statement, run.target.sub_group_size if added_up else None)
        updates, elements = run.at(instances), max(1.0, run.at(touched.elements))
        lines = max(1.0, elements * item.array.itemsize / run.need("line_bytes"))
        each = _WIDE_UPDATE if item.array.itemsize > _WORD_BYTES else 1.0
        queue = updates / lines * each / run.need("atomics_per_cycle")
        if elements > 1:
            cycles += max(queue / _NEIGHBOURS, updates / run.need("distinct_atomics_per_cycle"))
        else:
            cycles += queue
    return cycles / run.need("clock_hz")


def _latency(run: MachineRun) -> float:
    """Return the time of waits, and of what no other work hides: the instructions of those that take turns.

    While a sub-group waits, others on its compute unit execute; between barriers whole work-groups do. Where one alone
    is there, waits and instructions add up: beyond the instructions' own time in a smooth maximum (`_SHARPNESS`).
    """
    waits, parts = latency_seconds(run), run.fillings()
    whole = sum(one.repeats * one.groups for one in parts)
    if not whole:
        return waits
    met = {one.launch for one in run.scop.barriers if one.kind != "sub_group"}
    taking_turns = (one.resident * (1 if one.number in met else one.sub_groups) for one in parts)
    shares = sum(one.repeats * one.groups / each for one, each in zip(parts, taking_turns, strict=True))
    alone = max(_RESOURCES[name](run) for name in _ON_CHIP) * shares / whole
    together: float = ((waits + alone) ** _SHARPNESS - alone**_SHARPNESS) ** (1 / _SHARPNESS)
    return together


def _barrier(run: MachineRun) -> float:
    """Return the time of barriers if a compute unit let one sub-group through in each cycle."""
    counts, lanes = counts_of(run.scop), run.need("sub_group_size")
    launches = enumerate(run.scop.launches)
    return run.unit_seconds(
        sum(run.at(counts.barriers("local", number)) * ceil(one.group_size / lanes) for number, one in launches)
    )


def _group(run: MachineRun) -> float:
    return run.over(sum(one.repeats * one.groups for one in run.fillings()), "group_start_rate")


_RESOURCES: Mapping[str, Callable[[MachineRun], float]] = {
    "dram": _dram,
    "l2": _l2,
    "l1": _l1,
    "ldst": _ldst,
    "local": _local,
    "fp32": lambda run: run.piped("fp32", 2),
    "fp64": lambda run: run.piped("fp64", 2),
    "int32": lambda run: run.piped("int32") + run.piped("int32_mul"),
    "special": lambda run: run.piped("special"),
    "issue": lambda run: run.unit_seconds(run.over(run.slots()["all"], "schedulers_per_unit"), "on_schedulers"),
    "atomic": _atomic,
    "atomic_local": lambda run: run.unit_seconds(local_atomic_cycles(run.scop, run.sizes, run.machine)),
    "barrier": _barrier,
    "group": _group,
    "latency": _latency,
}
_ON_CHIP = ("issue", "fp32", "fp64", "int32", "special", "ldst", "l1", "local")
# Latencies are those of memory, local memory and arithmetic.
_COSTS: Mapping[str, Cost] = {
    **dict.fromkeys(("dram", "l2", "atomic"), "memory"),
    "group": "overhead",
    "latency": "other",
}
PEAKS = Family(
    "Seconds that a kernel would take on a machine if one resource alone limited it",
    f"f_peak_({any_of(_RESOURCES)})",
    "s",
    lambda scop, sizes, target, resource: _RESOURCES[resource](MachineRun(scop, sizes, target)),
    examples=tuple(f"f_peak_{name}" for name in _RESOURCES),
    remarks=estimated_of_all,
    needs="machine",
    cost=lambda resource: _COSTS.get(resource, "on-chip"),
    # Launches are resolved at one tuple of sizes, where their extents are numbers.
    one_size=True,
)
