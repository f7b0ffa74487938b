"""How long a work-group waits: ``f_peak_latency``.

A work-group keeps its place on a compute unit until the sub-group that waits longest is through; and a launch lasts
until the work-groups that wait longer than others are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from perflex.compiled.nvidia.waits import Latencies
from perflex.features.counting.chains import chains_of, sequential_loops
from perflex.features.counting.scop_counts import counts_of
from perflex.features.families.machine_run import MachineRun
from perflex.features.gpu.volume_result import ArrayVolumes
from perflex.features.gpu.waves import Filling
from perflex.features.instructions.instruction_counts import remaining_or_all
from perflex.features.instructions.operation_slots import slots_of
from perflex.features.scop.register_reuse import made_of
from perflex.features.scop.scop import Access, Statement
from perflex.isl import ISL_LOCK, isl

# Every other instruction waits for the one before it.
_DEPENDENT = 0.5
# Cycles of an update of a float in local memory, which is a loop of compare-and-swap: atomicPerf of HeCBench on an
# RTX 3080, where each sub-group updates a word of its own (gpuFLOPBench).
_FLOAT_UPDATE = 127
# Cycles from the last sub-group's arrival at a barrier until instructions go on, beyond a trip to local memory: about
# what reductions of the NVBench collection take for each step.
_AFTER_BARRIER = 30


@dataclass(frozen=True)
class _Wait:
    """What the sub-groups that execute something wait for it."""

    cycles: float  # of each of these sub-groups, in one launch
    share: float  # of the work-groups that have any of them


def latency_seconds(run: MachineRun) -> float:
    """Return the time of all launches if only waiting counted."""
    total = run.volumes().total
    return sum(one.repeats * _launch_cycles(run, one, total) for one in run.fillings()) / run.need("clock_hz")


def _launch_cycles(run: MachineRun, filling: Filling, volumes: ArrayVolumes) -> float:
    if run.code is not None:
        sub_groups = filling.groups * filling.sub_groups
        return filling.waves * run.code[filling.number].alone_cycles(_latencies(run, volumes)) / sub_groups
    waits = list(_waits(run, filling, volumes))
    usual = sum(one.cycles * one.share for one in waits)
    # Of the work-groups that wait longer than others one at least runs alone in the end.
    longer = sum(one.cycles * (1 - one.share) for one in waits)
    return filling.waves * (usual + _everywhere(run, filling)) + longer


def _latencies(run: MachineRun, volumes: ArrayVolumes) -> Latencies:
    """Return how long a sub-group that is alone waits for its instructions, if every load is as far as the mean one."""
    arithmetic, near, local = map(run.need, ("arithmetic_latency", "l1_latency", "local_latency"))
    return Latencies(arithmetic, _load_cycles(run, volumes, 0.0), local, near, local + _AFTER_BARRIER)


def _everywhere(run: MachineRun, filling: Filling) -> float:
    """Return the cycles that the instructions of a sub-group and the barriers of its work-group take, on average."""
    sub_groups = sum(one.repeats * one.groups * one.sub_groups for one in run.fillings())
    cycles = run.slots()["all"] / sub_groups * _DEPENDENT * run.need("arithmetic_latency")
    if met := run.at(counts_of(run.scop).barriers("local", filling.number)):
        each = run.need("local_latency") + _AFTER_BARRIER
        cycles += met / (filling.repeats * filling.groups) * each
    return cycles


def _waits(run: MachineRun, filling: Filling, volumes: ArrayVolumes) -> Iterator[_Wait]:
    for one in _loads(run, filling.number, "global"):
        yield _wait(run, filling, one.domain, one.trips * _load_cycles(run, volumes, one.new))
    for one in _loads(run, filling.number, "local"):
        yield _wait(run, filling, one.domain, one.trips * run.need("local_latency"))
    yield from _float_updates(run, filling)
    for (launch, _), variables in chains_of(run.scop, barriers_end_them=False).items():
        if launch == filling.number:
            # Those of several variables in the same loops run beside each other.
            chains = [[_chained(run, filling, one) for one in statements] for statements in variables.values()]
            yield from max(chains, key=lambda waits: sum(one.cycles for one in waits))


def _float_updates(run: MachineRun, filling: Filling) -> Iterator[_Wait]:
    """Yield the waits for atomic updates of floats in local memory: those of one word follow one another."""
    counts = counts_of(run.scop)
    for item in counts.accesses:
        mine = item.access.atomic and item.access.direction == "store" and item.statement.launch == filling.number
        if mine and item.array.space == "local" and "float" in item.array.dtype:
            words = max(1.0, run.at(counts.footprint_among((item,)).elements))
            updates = run.at(counts.instances(item.statement)) / (filling.repeats * filling.groups)
            yield _Wait(updates / words * _FLOAT_UPDATE, 1.0)


def _wait(run: MachineRun, filling: Filling, domain: Any, cycles: float) -> _Wait:
    """Return the wait of those who execute a set of instances, of whose cycles all of them have so many together."""
    found = counts_of(run.scop).executing(domain, filling.number, int(run.need("sub_group_size")))
    # Each once, however often the launch is repeated.
    sub_groups, groups = map(run.at, found)
    share = min(1.0, groups / filling.groups)
    return _Wait(cycles / filling.repeats / sub_groups, share) if sub_groups else _Wait(0.0, 1.0)


def _chained(run: MachineRun, filling: Filling, statement: Statement) -> _Wait:
    """Return the wait for the operations of an update that follow one another."""
    operations = () if statement.recurrence is None else statement.recurrence.operations
    each = sum(one.count * sum(slots_of(one.kind, one.dtype).values()) for one in operations)
    met = run.at(counts_of(run.scop).instances(statement, int(run.need("sub_group_size"))))
    return _wait(run, filling, statement.domain, met * each * run.need("arithmetic_latency"))


def _load_cycles(run: MachineRun, volumes: ArrayVolumes, new: float) -> float:
    """Return the mean latency of loads of which a share touches sectors that none touched before."""
    near, far = run.need("l1_latency"), run.need("l2_latency")
    memory = run.need("dram_latency") * run.need("clock_hz")
    # Who finds a sector on its way waits as long as who asked for it; who finds it gone again, too.
    beyond_l1 = min(1.0, max(new, volumes.l2_l1_load / max(volumes.l1_load, 1.0)))
    beyond_l2 = beyond_l1 * min(1.0, volumes.dram_load / max(volumes.l2_l1_load, 1.0))
    return near + beyond_l1 * max(0.0, far - near) + beyond_l2 * max(0.0, memory - far)


@dataclass(frozen=True)
class _Load:
    """Loads that sub-groups wait for together."""

    trips: float  # how often all sub-groups wait
    new: float  # in which share of the trips for sectors that none touched before
    domain: Any  # isl set of the instances that do


def _loads(run: MachineRun, launch: int, space: str) -> Iterable[_Load]:
    """Return the loads of an address space that a launch waits for."""
    scop, lanes = run.scop, int(run.need("sub_group_size"))
    remaining = remaining_or_all(scop)
    barriers = [one for one in scop.barriers if one.launch == launch]
    # Loads in the same loops wait together, up to a barrier; one that is kept over loops waits outside of them.
    most: dict[tuple[tuple[int, ...], int], _Load] = {}
    for number, statement in enumerate(scop.statements):
        for place, access in enumerate(statement.accesses):
            left = [one for one in made_of(remaining, scop, number, place) if one.times]
            wanted = statement.launch == launch and access.direction == "load" and left
            if not wanted or scop.array(access.array).memory != space:
                continue
            kept_over, domain = left[0].loops, left[0].executions
            dims = domain.dim(isl.dim_type.set)
            met = sum(run.at(counts_of(scop).executions(one.executions, launch, lanes)) for one in left)
            loops = sequential_loops(scop, statement)
            loops = loops[: len(loops) - kept_over]
            stopped = any(sequential_loops(scop, one)[: len(loops)] == loops for one in barriers)
            # So many iterations issue their loads together.
            together = int(run.need("iterations_together")) if loops and not stopped else 1
            new = _new(run, access, dims - 1) if space == "global" and loops else 1.0
            found = _Load(met * float(scop.weight(statement)) / together, min(1.0, new * together), domain)
            phase = loops, sum(one.order < statement.order for one in barriers)
            before = most.get(phase, found)
            most[phase] = replace(max(before, found, key=lambda one: one.trips), new=max(before.new, found.new))
    return most.values()


def _new(run: MachineRun, access: Access, dim: int) -> float:
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
