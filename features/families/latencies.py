"""Latencies that one work-item waits for, one after the other: loads, local memory, chained arithmetic, barriers.

A loop's loads in one iteration are issued together; compilers unroll loops and issue the loads of some iterations
together, unless a barrier stands in the loop. What hides the rest is other resident sub-groups, so that
the time of a launch is at least that of one work-item times the waves.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.features.counting.counts import counts_of
from perflex.features.instructions.instructions import remaining_or_all
from perflex.features.instructions.slots import slots_of
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.gpu.peaks import Filling
    from perflex.features.gpu.result import ArrayVolumes
    from perflex.features.scop.scop import Access, Scop
    from perflex.machines.machine import Machine


def latency_cycles(
    scop: Scop,
    sizes: Mapping[str, int],
    machine: Machine,
    filling: Filling,
    volumes: ArrayVolumes,
    *,
    register_reuse: bool = True,
) -> float:
    """Return the cycles that a work-item of a launch waits, on average over its sub-groups.

    Parameters
    ----------
    scop, sizes, machine
        The kernel, an integer per size parameter, and the machine.
    filling
        The launch and its sub-groups.
    volumes
        The kernel's, which say in which share of loads L1 and L2 miss.
    register_reuse
        Whether loads of values that are in registers are left out.

    Raises
    ------
    MachineError
        A latency is needed that is not known.
    """
    lanes, each = int(machine.need("sub_group_size")), 1.0 / (filling.groups * filling.sub_groups)
    waits = _Waits(scop, sizes, machine, filling.number, register_reuse)
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
    register_reuse: bool

    def of(self, space: str) -> list[tuple[float, float]]:
        """Return for each nest of loops how often all sub-groups wait in it, and in which share for new sectors."""
        counts, lanes = counts_of(self.scop), int(self.machine.need("sub_group_size"))
        remaining = remaining_or_all(self.scop) if self.register_reuse else {}
        # Loads in the same loops wait together; one that is kept over loops waits outside of them.
        most: dict[tuple[str, ...], tuple[float, float]] = {}
        for number, statement in enumerate(self.scop.statements):
            if statement.launch != self.launch:
                continue
            for place, access in enumerate(statement.accesses):
                loads, kept = remaining.get((number, place), (1, 0))
                if self.scop.array(access.array).space != space or access.direction != "load" or not loads:
                    continue
                dims = statement.domain.dim(isl.dim_type.set)
                domain = statement.domain.project_out(isl.dim_type.set, dims - kept, kept)
                met = float(counts.executions(domain, self.launch, lanes).evaluate(self.sizes))
                loops = statement.loops[: len(statement.loops) - kept]
                trips, new = most.get(loops, (0.0, 0.0))
                together = self._together(loops)
                here = self._new(access, dims - kept - 1) if space == "global" and loops else 1.0
                most[loops] = (
                    max(trips, met * float(statement.weight()) / together),
                    max(new, min(1.0, here * together)),
                )
        return list(most.values())

    def _together(self, loops: tuple[str, ...]) -> int:
        """Return of how many iterations the loads are issued together."""
        if not loops:
            return 1
        stopped = any(one.launch == self.launch and one.loops[: len(loops)] == loops for one in self.scop.barriers)
        return 1 if stopped else int(self.machine.need("iterations_together"))

    def _new(self, access: Access, dim: int) -> float:
        """Return the share of a loop's iterations in which an access touches a new sector."""
        step = self._step(access, dim)
        return 1.0 if step is None else min(1.0, abs(step) / self.machine.need("sector_bytes"))

    def _step(self, access: Access, dim: int) -> float | None:
        """Return by how many bytes an access moves from one iteration to the next; None if that is not one number."""
        array = self.scop.array(access.array)
        strides = access.strides if access.strides is not None else array.strides
        numbers = [float(stride.evaluate(self.sizes)) for stride in strides]
        with ISL_LOCK:
            relation = access.relation
            if not relation.is_single_valued():
                return None
            total = 0.0
            for axis, stride in enumerate(numbers):
                pieces = relation.as_pw_multi_aff().get_pw_aff(axis).get_pieces()
                steps = {float(piece.get_coefficient_val(isl.dim_type.in_, dim).to_python()) for _, piece in pieces}
                divided = any(piece.dim(isl.dim_type.div) for _, piece in pieces)
                if len(steps) != 1 or divided:
                    return None
                total += stride * steps.pop()
        return total * array.itemsize


def _chained(scop: Scop, sizes: Mapping[str, int], lanes: int, launch: int) -> float:
    """Return the instructions of all sub-groups' longest chains of operations that wait for one another."""
    counts = counts_of(scop)
    lengths: dict[tuple[tuple[str, ...], str], float] = defaultdict(float)
    for statement in scop.statements:
        if statement.recurrence is None or statement.launch != launch:
            continue
        each = sum(one.count * sum(slots_of(one.kind, one.dtype).values()) for one in statement.recurrence.operations)
        met = float(counts.instances(statement, lanes).evaluate(sizes))
        lengths[statement.loops, statement.recurrence.variable] += met * each
    longest: dict[tuple[str, ...], float] = defaultdict(float)
    for (loops, _), length in lengths.items():
        longest[loops] = max(longest[loops], length)
    return sum(longest.values())
