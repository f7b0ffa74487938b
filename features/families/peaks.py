"""Times at a machine's peaks: ``f_peak_<resource>``, seconds that a kernel takes if one resource alone limits it.

Work-groups are dealt evenly to compute units, so that the busiest unit counts, not the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeVar

from perflex.features.counting.chains import chains_of, sequential_loops
from perflex.features.counting.scop_counts import counts_of
from perflex.features.families.feature import Cost, Family, any_of, estimated_of_all, kept
from perflex.features.gpu.volume_estimate import estimate_volumes, local_atomic_cycles, require_gpu
from perflex.features.gpu.volume_result import ArrayVolumes, Volumes
from perflex.features.gpu.waves import Filling, fillings
from perflex.features.instructions.instruction_counts import (
    instruction_class,
    instructions_of,
    remaining_or_all,
    spared_tests,
    unrolled_overhead,
)
from perflex.features.instructions.operation_slots import slots_of
from perflex.features.scop.scop import Access, Scop, Statement
from perflex.features.target import Target
from perflex.isl import ISL_LOCK, isl
from perflex.machines.machine import Machine

_Value = TypeVar("_Value")
# A wavefront is what four-byte words of 32 work-items take.
_WAVEFRONT_BYTES = 128
# Compilers unroll innermost loops of many iterations by four.
_UNROLLED = 4
# A line takes 1.5 updates of neighbouring words in the time of one update of a single word: histograms of 256 and 512
# bins on Turing and Ampere (gpuperf and NVBench collections). An update of 8 bytes takes 3.2 times as long as one of 4:
# HeCBench's atomicPerf and atomicIntrinsics on an RTX 3080 (gpuFLOPBench).
_NEIGHBOURS = 1.5
_WIDE_UPDATE = 3.2
_WORD_BYTES = 4


@dataclass(frozen=True)
class _Run:
    """A kernel at given sizes on a target's machine, and what several resources ask of it."""

    scop: Scop
    sizes: Mapping[str, int]
    target: Target

    @property
    def machine(self) -> Machine:
        machine = self.target.need_machine()
        require_gpu(machine)
        return machine

    def need(self, fact: str) -> float:
        return self.machine.need(fact)

    def over(self, amount: float, fact: str) -> float:
        """Return an amount over what the machine does of it in a second or cycle; zero needs no fact of the machine."""
        return amount / self.need(fact) if amount else 0.0

    def at(self, count: Any) -> float:
        return float(count.evaluate(self.sizes))

    def fillings(self) -> list[Filling]:
        """Return how each launch fills the machine."""
        registers = self.target.registers_per_item
        return self._kept("fillings", lambda: fillings(self.scop, self.sizes, self.machine, registers))

    def volumes(self) -> Volumes:
        """Return the data volumes; zero for a kernel that accesses no memory."""
        given: dict[str, Any] = {"registers": self.target.registers_per_item, "caches": self.target.caches}
        return self._kept("volumes", lambda: estimate_volumes(self.scop, self.sizes, self.machine, **given))

    def slots(self) -> Mapping[str, float]:
        """Return the sub-groups' instructions by pipeline, and beside them ``"all"``."""
        return self._kept("slots", lambda: _slots(self))

    def unit_seconds(self, cycles: float, what: str = "on_busiest") -> float:
        """Return the time of cycles that all compute units share, times a factor of fillings."""
        if not cycles:
            return 0.0
        # Of several launches the mean with the work-groups as weights.
        parts = self.fillings()
        whole = sum(one.repeats * one.groups for one in parts)
        share = sum(one.repeats * one.groups * getattr(one, what) for one in parts) / whole if whole else 0.0
        return cycles * share / (self.need("compute_units") * self.need("clock_hz"))

    def piped(self, pipe: str, operations: int = 1) -> float:
        """Return the time of a pipeline's instructions, of which each is so many operations."""
        lanes = self.slots()[pipe] * self.target.sub_group_size * operations
        return self.unit_seconds(self.over(lanes, f"{pipe}_per_cycle"), "on_schedulers")

    def _kept(self, what: str, compute: Callable[[], _Value]) -> _Value:
        target = self.target
        key = (what, target.machine, target.registers_per_item, target.sub_group_size, target.caches)
        return kept(self.scop, "peaks", self.sizes, key, compute)


def _slots(run: _Run) -> dict[str, float]:
    scop, size = run.scop, run.target.sub_group_size
    by_class = {kind: run.at(count) for kind, count in instructions_of(scop, size).items()}
    spared, branches = (run.at(one) * (1 - 1 / _UNROLLED) for one in unrolled_overhead(scop, size))
    tests, test_branches = map(run.at, spared_tests(scop, size))
    spared += tests
    found = {"fp32": 0.0, "fp64": 0.0, "int32": by_class["int"] - spared, "int32_mul": 0.0, "special": 0.0}
    extra = -spared - branches - test_branches
    for statement in scop.statements:
        if not statement.operations:
            continue
        met = run.at(counts_of(scop).instances(statement, size))
        for operation in statement.operations:
            number, slots = met * operation.count, slots_of(operation.kind, operation.dtype)
            for pipe, each in slots.items():
                found[pipe] += number * each
            if operation.kind == "atomic":
                continue
            # The classes have each operation once already, whatever it is made of.
            if instruction_class(operation.dtype, operation.kind) == "int":
                found["int32"] -= number
            extra += number * (sum(slots.values()) - 1)
    return {**found, "all": sum(by_class.values()) + extra}


def _dram(run: _Run) -> float:
    total = run.volumes().total
    return run.over(total.dram_load + total.dram_store, "dram_bandwidth")


def _l2(run: _Run) -> float:
    total = run.volumes().total
    moved = total.l2_l1_load + total.l2_l1_store
    # One compute unit alone gets less than all of the bandwidth.
    return max(run.over(moved, "l2_bandwidth"), run.unit_seconds(run.over(moved, "l2_bytes_per_cycle")))


def _l1(run: _Run) -> float:
    wavefronts = run.volumes().total.l1_wavefronts
    if not wavefronts:
        return 0.0
    # Rules count cycles of a cache that serves a sub-group's four-byte words in one.
    wide = min(1.0, run.need("l1_bytes_per_cycle") / _WAVEFRONT_BYTES)
    rules_know = run.machine.need_l1_rules().startswith("amd")
    return run.unit_seconds(wavefronts if rules_know else wavefronts / wide)


def _local(run: _Run) -> float:
    total = run.volumes().total
    return run.unit_seconds(total.local_wavefronts_load + total.local_wavefronts_store)


def _ldst(run: _Run) -> float:
    """Return the time that the addresses of loads and stores take, of global and of local memory."""
    found = instructions_of(run.scop, run.target.sub_group_size)
    lanes = run.at(found["ldst_global"] + found["ldst_local"]) * run.target.sub_group_size
    return run.unit_seconds(lanes / run.machine.load_store_units)


def _atomic(run: _Run) -> float:
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
        added_up = item.is_uniform and not item.access.assumed and "int" in item.array.dtype
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


def _barrier(run: _Run) -> float:
    """Return the time of barriers if a compute unit let one sub-group through in each cycle."""
    counts, lanes = counts_of(run.scop), run.need("sub_group_size")
    launches = enumerate(run.scop.launches)
    return run.unit_seconds(
        sum(run.at(counts.barriers("local", number)) * ceil(one.group_size / lanes) for number, one in launches)
    )


def _group(run: _Run) -> float:
    return run.over(sum(one.repeats * one.groups for one in run.fillings()), "group_start_rate")


def _latency(run: _Run) -> float:
    total = run.volumes().total
    cycles = sum(one.repeats * one.waves * _waited(run, one, total) for one in run.fillings())
    return cycles / run.need("clock_hz")


def _waited(run: _Run, filling: Filling, volumes: ArrayVolumes) -> float:
    """Return the cycles that a work-item of a launch waits, on average over its sub-groups."""
    # Counts are of all repeats together.
    groups = filling.repeats * filling.groups
    launch, each = filling.number, 1.0 / (groups * filling.sub_groups)
    cycles = 0.0
    for trips, missed in _waits(run, launch, "global"):
        cycles += trips * each * _load_cycles(run, volumes, missed)
    for trips, _ in _waits(run, launch, "local"):
        cycles += trips * each * run.need("local_latency")
    if chained := _chained(run, launch):
        cycles += chained * each * run.need("arithmetic_latency")
    if met := run.at(counts_of(run.scop).barriers("local", launch)):
        # All sub-groups of a work-group arrive, and the next instructions start: about a trip to local memory.
        cycles += met / groups * run.need("local_latency")
    return cycles


def _load_cycles(run: _Run, volumes: ArrayVolumes, new: float) -> float:
    """Return the mean latency of loads of which a share touches sectors that none touched before."""
    near, far = run.need("l1_latency"), run.need("l2_latency")
    memory = run.need("dram_latency") * run.need("clock_hz")
    # Who finds a sector on its way waits as long as who asked for it; who finds it gone again, too.
    beyond_l1 = min(1.0, max(new, volumes.l2_l1_load / max(volumes.l1_load, 1.0)))
    beyond_l2 = beyond_l1 * min(1.0, volumes.dram_load / max(volumes.l2_l1_load, 1.0))
    return near + beyond_l1 * max(0.0, far - near) + beyond_l2 * max(0.0, memory - far)


def _waits(run: _Run, launch: int, space: str) -> list[tuple[float, float]]:
    """Return for each nest of loops how often all sub-groups wait for loads, and in which share for new sectors."""
    scop, lanes = run.scop, int(run.need("sub_group_size"))
    remaining = remaining_or_all(scop)
    # Loads in the same loops wait together; one that is kept over loops waits outside of them.
    most: dict[tuple[int, ...], tuple[float, float]] = {}
    for number, statement in enumerate(scop.statements):
        for place, access in enumerate(statement.accesses):
            loads, kept_over = remaining.get((number, place), (1, 0))
            wanted = statement.launch == launch and access.direction == "load" and loads
            if not wanted or scop.array(access.array).memory != space:
                continue
            dims = statement.domain.dim(isl.dim_type.set) - kept_over
            domain = statement.domain.project_out(isl.dim_type.set, dims, kept_over)
            met = run.at(counts_of(scop).executions(domain, launch, lanes))
            loops = sequential_loops(scop, statement)
            loops = loops[: len(loops) - kept_over]
            barriers = (sequential_loops(scop, one) for one in scop.barriers if one.launch == launch)
            stopped = any(around[: len(loops)] == loops for around in barriers)
            # So many iterations issue their loads together.
            together = int(run.need("iterations_together")) if loops and not stopped else 1
            new = _new(run, access, dims - 1) if space == "global" and loops else 1.0
            before = most.get(loops, (0.0, 0.0))
            trips = met * float(scop.weight(statement)) / together
            most[loops] = max(before[0], trips), max(before[1], min(1.0, new * together))
    return list(most.values())


def _new(run: _Run, access: Access, dim: int) -> float:
    """Return the share of a loop's iterations in which an access touches a new sector."""
    array, total = run.scop.array(access.array), 0.0
    with ISL_LOCK:
        if not access.relation.is_single_valued():
            return 1.0
        function = access.relation.as_pw_multi_aff()
        for axis, stride in enumerate(array.strides if access.strides is None else access.strides):
            pieces = [piece for _, piece in function.get_pw_aff(axis).get_pieces()]
            steps = {float(piece.get_coefficient_val(isl.dim_type.in_, dim).to_python()) for piece in pieces}
            # By how much it moves from one iteration to the next is not one number.
            if len(steps) != 1 or any(piece.dim(isl.dim_type.div) for piece in pieces):
                return 1.0
            total += run.at(stride) * steps.pop()
    return min(1.0, abs(total * array.itemsize) / run.need("sector_bytes"))


def _chained(run: _Run, launch: int) -> float:
    """Return the instructions of all sub-groups' longest chains of operations that wait for one another."""
    lanes = int(run.need("sub_group_size"))

    def length(statement: Statement) -> float:
        operations = () if statement.recurrence is None else statement.recurrence.operations
        each = sum(one.count * sum(slots_of(one.kind, one.dtype).values()) for one in operations)
        return each * run.at(counts_of(run.scop).instances(statement, lanes))

    return sum(
        max(sum(map(length, statements)) for statements in variables.values())
        for (where, _), variables in chains_of(run.scop, barriers_end_them=False).items()
        if where == launch
    )


_RESOURCES: Mapping[str, Callable[[_Run], float]] = {
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
    lambda scop, sizes, target, resource: _RESOURCES[resource](_Run(scop, sizes, target)),
    examples=tuple(f"f_peak_{name}" for name in _RESOURCES),
    remarks=estimated_of_all,
    needs="machine",
    cost=lambda resource: _COSTS.get(resource, "on-chip"),
    # Launches are resolved at one tuple of sizes, where their extents are numbers.
    one_size=True,
)
