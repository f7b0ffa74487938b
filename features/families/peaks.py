"""Times at a machine's peaks: ``f_peak_<resource>``, seconds that a kernel takes if one resource alone limits it.

Each is the kernel's work for one resource of a GPU over what the machine's file says the resource does at best.
Work-groups are dealt evenly to compute units, so that the busiest unit counts, not the mean: a launch of fewer
work-groups than units uses only as many. Costs relative to these times have no unit, and carry over to other machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from perflex.features.counting.chains import chains_of
from perflex.features.counting.scop_counts import counts_of
from perflex.features.families.feature import Family, any_of, kept
from perflex.features.gpu.volume_estimate import estimate_volumes, local_atomic_cycles
from perflex.features.gpu.waves import Filling, fillings
from perflex.features.instructions.instruction_counts import (
    instruction_class,
    instructions_of,
    remaining_or_all,
    slots_of,
    spared_tests,
    unrolled_overhead,
)
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from perflex.features.families.feature import Cost
    from perflex.features.gpu.volume_result import ArrayVolumes, Volumes
    from perflex.features.scop.scop import Access, Operation, Scop, Statement
    from perflex.features.target import Target
    from perflex.machines.machine import Machine


def latency_cycles(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, filling: Filling, volumes: ArrayVolumes
) -> float:
    """Return the cycles that a work-item of a launch waits, on average over its sub-groups."""
    lanes, each = int(machine.need("sub_group_size")), 1.0 / (filling.groups * filling.sub_groups)
    waits = _Waits(scop, sizes, machine, filling.number)
    cycles = 0.0
    for trips, missed in waits.of("global"):
        cycles += trips * each * _load_cycles(machine, volumes, missed)
    for trips, _ in waits.of("local"):
        cycles += trips * each * machine.need("local_latency")
    chained = _chained(scop, sizes, lanes, filling.number)
    if chained:
        cycles += chained * each * machine.need("arithmetic_latency")
    met = float(counts_of(scop).barriers("local", filling.number).evaluate(sizes))
    if met:
        # All sub-groups of a work-group arrive, and the next instructions start: about a trip to local memory.
        cycles += met / filling.groups * machine.need("local_latency")
    return cycles


def _load_cycles(machine: Machine, volumes: ArrayVolumes, new: float) -> float:
    """Return the mean latency of loads of which a share touches sectors that none touched before."""
    near, far = machine.need("l1_latency"), machine.need("l2_latency")
    memory = machine.need("dram_latency") * machine.need("clock_hz")
    # Who finds a sector on its way waits as long as who asked for it; who finds it gone again, too.
    beyond_l1 = min(1.0, max(new, volumes.l2_l1_load / max(volumes.l1_load, 1.0)))
    beyond_l2 = beyond_l1 * min(1.0, volumes.dram_load / max(volumes.l2_l1_load, 1.0))
    return near + beyond_l1 * max(0.0, far - near) + beyond_l2 * max(0.0, memory - far)


@dataclass(frozen=True)
class _Waits:
    """Loads of a launch that wait for one another."""

    scop: Scop
    sizes: Mapping[str, int]
    machine: Machine
    launch: int

    def of(self, space: str) -> list[tuple[float, float]]:
        """Return for each nest of loops how often all sub-groups wait in it, and in which share for new sectors."""
        counts, lanes = counts_of(self.scop), int(self.machine.need("sub_group_size"))
        remaining = remaining_or_all(self.scop)
        # Loads in the same loops wait together; one that is kept over loops waits outside of them.
        most: dict[tuple[object, ...], tuple[float, float]] = {}
        for number, statement in enumerate(self.scop.statements):
            if statement.launch != self.launch:
                continue
            for place, access in enumerate(statement.accesses):
                loads, kept = remaining.get((number, place), (1, 0))
                if self.scop.array(access.array).memory != space or access.direction != "load" or not loads:
                    continue
                dims = statement.domain.dim(isl.dim_type.set)
                domain = statement.domain.project_out(isl.dim_type.set, dims - kept, kept)
                met = float(counts.executions(domain, self.launch, lanes).evaluate(self.sizes))
                loops = statement.places[: len(statement.loops) - kept]
                trips, new = most.get(loops, (0.0, 0.0))
                together = self._together(loops)
                here = self._new(access, dims - kept - 1) if space == "global" and loops else 1.0
                most[loops] = (
                    max(trips, met * float(statement.weight()) / together),
                    max(new, min(1.0, here * together)),
                )
        return list(most.values())

    def _together(self, loops: tuple[object, ...]) -> int:
        """Return of how many iterations the loads are issued together."""
        if not loops:
            return 1
        stopped = any(one.launch == self.launch and one.places[: len(loops)] == loops for one in self.scop.barriers)
        return 1 if stopped else int(self.machine.need("iterations_together"))

    def _new(self, access: Access, dim: int) -> float:
        """Return the share of a loop's iterations in which an access touches a new sector."""
        array, total = self.scop.array(access.array), 0.0
        strides = access.strides if access.strides is not None else array.strides
        with ISL_LOCK:
            if not access.relation.is_single_valued():
                return 1.0
            function = access.relation.as_pw_multi_aff()
            for axis, stride in enumerate(strides):
                pieces = [piece for _, piece in function.get_pw_aff(axis).get_pieces()]
                steps = {float(piece.get_coefficient_val(isl.dim_type.in_, dim).to_python()) for piece in pieces}
                # By how much it moves from one iteration to the next is not one number.
                if len(steps) != 1 or any(piece.dim(isl.dim_type.div) for piece in pieces):
                    return 1.0
                total += float(stride.evaluate(self.sizes)) * steps.pop()
        return min(1.0, abs(total * array.itemsize) / self.machine.need("sector_bytes"))


def _chained(scop: Scop, sizes: Mapping[str, int], lanes: int, launch: int) -> float:
    """Return the instructions of all sub-groups' longest chains of operations that wait for one another."""

    def length(statement: Statement) -> float:
        operations = () if statement.recurrence is None else statement.recurrence.operations
        each = sum(one.count * sum(slots_of(one.kind, one.dtype).values()) for one in operations)
        return each * float(counts_of(scop).instances(statement, lanes).evaluate(sizes))

    return sum(
        max(sum(map(length, statements)) for statements in variables.values())
        for (where, _), variables in chains_of(scop, barriers_end_them=False).items()
        if where == launch
    )


_Value = TypeVar("_Value")
# A wavefront is what four-byte words of 32 work-items take.
_WAVEFRONT_BYTES = 128
# Compilers unroll innermost loops of many iterations by four.
_UNROLLED = 4


@dataclass(frozen=True)
class _Run:
    """A kernel at given sizes on a target's machine, and what several resources ask of it."""

    scop: Scop
    sizes: Mapping[str, int]
    target: Target

    @property
    def machine(self) -> Machine:
        return self.target.need_machine()

    def fillings(self) -> list[Filling]:
        """Return how each launch fills the machine."""
        registers = self.target.registers_per_item
        return self._kept("fillings", lambda: fillings(self.scop, self.sizes, self.machine, registers))

    def volumes(self, caches: str = "warm") -> Volumes:
        """Return the data volumes; zero for a kernel that accesses no memory."""

        def compute() -> Volumes:
            return estimate_volumes(
                self.scop, self.sizes, self.machine, registers=self.target.registers_per_item, caches=caches
            )

        return self._kept(f"volumes {caches}", compute)

    def slots(self) -> Mapping[str, float]:
        """Return the sub-groups' instructions by pipeline, and beside them ``"all"``."""
        return self._kept("slots", lambda: _slots(self.scop, self.sizes, self.target))

    def share(self, what: str = "on_busiest") -> float:
        """Return a filling's factor, of several launches the mean with the work-groups as weights."""
        parts = self.fillings()
        whole = sum(one.repeats * one.groups for one in parts)
        return sum(one.repeats * one.groups * getattr(one, what) for one in parts) / whole if whole else 0.0

    def unit_seconds(self, cycles: float, what: str = "on_busiest") -> float:
        """Return the time of cycles that all compute units share."""
        if not cycles:
            return 0.0
        rate = self.machine.need("compute_units") * self.machine.need("clock_hz")
        return cycles * self.share(what) / rate

    def piped(self, pipe: str, fact: str, operations: int = 1) -> float:
        """Return the time of a pipeline's instructions, of which each is so many operations of a fact."""
        number = self.slots().get(pipe, 0.0)
        if not number:
            return 0.0
        return self.unit_seconds(
            number * self.target.sub_group_size * operations / self.machine.need(fact), "on_schedulers"
        )

    def _kept(self, what: str, compute: Callable[[], _Value]) -> _Value:
        target = self.target
        key = (what, target.machine, target.registers_per_item, target.sub_group_size)
        return kept(self.scop, "peaks", self.sizes, key, compute)


def _slots(scop: Scop, sizes: Mapping[str, int], target: Target) -> dict[str, float]:
    size = target.sub_group_size
    by_class = {kind: float(count.evaluate(sizes)) for kind, count in instructions_of(scop, size).items()}
    spared, branches = (float(one.evaluate(sizes)) * (1 - 1 / _UNROLLED) for one in unrolled_overhead(scop, size))
    tests, test_branches = (float(one.evaluate(sizes)) for one in spared_tests(scop, size))
    spared += tests
    found = {"fp32": 0.0, "fp64": 0.0, "int32": by_class["int"] - spared, "int32_mul": 0.0, "special": 0.0}
    extra = -spared - branches - test_branches
    for operation, number in _operations(scop, sizes, size):
        slots = slots_of(operation.kind, operation.dtype)
        for pipe, each in slots.items():
            found[pipe] += number * each
        if operation.kind == "atomic":
            continue
        # The classes have each operation once already, whatever it is made of.
        if instruction_class(operation.dtype, operation.kind) == "int":
            found["int32"] -= number
        extra += number * (sum(slots.values()) - 1)
    return {**found, "all": sum(by_class.values()) + extra}


def _operations(scop: Scop, sizes: Mapping[str, int], size: int) -> Iterator[tuple[Operation, float]]:
    """Yield the operations of all statements, and how many sub-groups execute each; tests of guards are none."""
    counts = counts_of(scop)
    for statement in scop.statements:
        if statement.operations and not statement.test_of:
            met = float(counts.instances(statement, size).evaluate(sizes))
            for operation in statement.operations:
                yield operation, met * operation.count


def _dram(run: _Run, caches: str = "warm") -> float:
    total = run.volumes(caches).total
    moved = total.dram_load + total.dram_store
    return moved / run.machine.need("dram_bandwidth") if moved else 0.0


def _l2(run: _Run) -> float:
    total = run.volumes().total
    moved = total.l2_l1_load + total.l2_l1_store
    if not moved:
        return 0.0
    # One compute unit alone gets less than all of the bandwidth.
    alone = run.unit_seconds(moved / run.machine.need("l2_bytes_per_cycle"))
    return max(moved / run.machine.need("l2_bandwidth"), alone)


def _l1(run: _Run) -> float:
    wavefronts = run.volumes().total.l1_wavefronts
    if not wavefronts:
        return 0.0
    # Rules count cycles of a cache that serves a sub-group's four-byte words in one.
    wide = min(1.0, run.machine.need("l1_bytes_per_cycle") / _WAVEFRONT_BYTES)
    rules_know = run.machine.need_l1_rules().startswith("amd")
    return run.unit_seconds(wavefronts if rules_know else wavefronts / wide)


def _local(run: _Run) -> float:
    total = run.volumes().total
    return run.unit_seconds(total.local_wavefronts_load + total.local_wavefronts_store)


def _atomic(run: _Run) -> float:
    """Return the time of updates of global memory, which the L2 cache does for all sub-groups of a launch together.

    An element's queue is as long as its updates, whichever sub-group makes them. Elements that depend on data are as
    many as the array may have, all updated equally often.
    """
    counts, seconds = counts_of(run.scop), 0.0
    clock = run.machine.need("clock_hz")
    for statement in run.scop.statements:
        for access in statement.accesses:
            if not access.atomic or access.direction != "store" or run.scop.array(access.array).space != "global":
                continue
            chosen = tuple(item for item in counts.accesses if item.access is access and item.statement is statement)
            print_of = counts.footprint_among(chosen)
            updates = float(print_of.accesses.evaluate(run.sizes))
            elements = max(1.0, float(print_of.elements.evaluate(run.sizes)))
            seconds += max(
                updates / elements / run.machine.need("atomics_per_cycle"),
                updates / run.machine.need("distinct_atomics_per_cycle") if elements > 1 else 0.0,
            )
    return seconds / clock


def _group(run: _Run) -> float:
    groups = sum(one.repeats * one.groups for one in run.fillings())
    return groups / run.machine.need("group_start_rate") if groups else 0.0


def _latency(run: _Run) -> float:
    total = run.volumes().total
    cycles = 0.0
    for one in run.fillings():
        each = latency_cycles(run.scop, run.sizes, run.machine, one, total)
        cycles += one.repeats * one.waves * each
    return cycles / run.machine.need("clock_hz")


_RESOURCES: Mapping[str, Callable[[_Run], float]] = {
    "dram": _dram,
    "dram_cold": lambda run: _dram(run, "cold"),
    "l2": _l2,
    "l1": _l1,
    "local": _local,
    "fp32": lambda run: run.piped("fp32", "fp32_per_cycle", 2),
    "fp64": lambda run: run.piped("fp64", "fp64_per_cycle", 2),
    "int32": lambda run: run.piped("int32", "int32_per_cycle") + run.piped("int32_mul", "int32_mul_per_cycle"),
    "special": lambda run: run.piped("special", "special_per_cycle"),
    "issue": lambda run: run.unit_seconds(run.slots()["all"] / (run.machine.schedulers_per_unit or 1), "on_schedulers"),
    "atomic": _atomic,
    "atomic_local": lambda run: run.unit_seconds(local_atomic_cycles(run.scop, run.sizes, run.machine)),
    "group": _group,
    "latency": _latency,
}


_MEMORY = {"dram", "dram_cold", "l2", "atomic"}


def _cost(resource: str) -> Cost:
    # Latencies are those of memory, local memory and arithmetic.
    apart: dict[str, Cost] = {"group": "overhead", "latency": "other"}
    return "memory" if resource in _MEMORY else apart.get(resource, "on-chip")


PEAKS = Family(
    "Seconds that a kernel would take on a machine if one resource alone limited it",
    f"f_peak_({any_of(_RESOURCES)})",
    "s",
    lambda scop, sizes, target, resource: _RESOURCES[resource](_Run(scop, sizes, target)),
    examples=tuple(f"f_peak_{name}" for name in _RESOURCES),
    needs="machine",
    cost=_cost,
    # Launches are resolved at one tuple of sizes, where their extents are numbers.
    one_size=True,
)
