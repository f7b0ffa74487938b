"""A kernel at given sizes on a machine, and what several of its resources' times are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from perflex.features.counting.scop_counts import counts_of
from perflex.features.families.feature import kept
from perflex.features.families.machine_code import GpuLaunch, amd_private_uses, gpu_launches
from perflex.features.gpu.volume_estimate import estimate_volumes, require_gpu
from perflex.features.gpu.volume_result import Volumes
from perflex.features.gpu.waves import Filling, fillings
from perflex.features.instructions.instruction_counts import (
    instruction_class,
    instructions_of,
    spared_tests,
    unrolled_overhead,
)
from perflex.features.instructions.operation_slots import slots_of
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import Scop
from perflex.features.scop.words import UPDATES
from perflex.features.target import Target
from perflex.machines.machine import Machine

_Value = TypeVar("_Value")
# Compilers unroll innermost loops of many iterations by four.
_UNROLLED = 4


@dataclass(frozen=True)
class MachineRun:
    """A kernel at given sizes on a target's machine, and what several resources ask of it."""

    scop: Scop
    sizes: Mapping[str, int]
    target: Target

    @property
    def machine(self) -> Machine:
        """The target's, which is a GPU."""
        machine = self.target.need_machine()
        require_gpu(machine)
        return machine

    def need(self, fact: str) -> float:
        """Return a fact of the machine."""
        return self.machine.need(fact)

    def over(self, amount: float, fact: str) -> float:
        """Return an amount over what the machine does of it in a second or cycle; zero needs no fact of the machine."""
        return amount / self.need(fact) if amount else 0.0

    def at(self, count: Any) -> float:
        """Return a count at the sizes."""
        return float(count.evaluate(self.sizes))

    def fillings(self) -> list[Filling]:
        """Return how each launch fills the machine."""
        registers = self.target.registers_per_item
        return self._kept("fillings", lambda: fillings(self.scop, self.sizes, self.machine, registers))

    def volumes(self) -> Volumes:
        """Return the data volumes; zero for a kernel that accesses no memory."""
        given: dict[str, Any] = {"registers": self.target.registers_per_item, "caches": self.target.caches}
        target = self.target
        if self.code is not None:
            given["private"] = {number: one.private for number, one in enumerate(self.code) if one.private.loads}
        else:
            given["private"] = amd_private_uses(self.scop, self.sizes, target.code, target.sub_group_size)
        return self._kept("volumes", lambda: estimate_volumes(self.scop, self.sizes, self.machine, **given))

    @property
    def code(self) -> list[GpuLaunch] | None:
        """What its launches execute by their compiled code; None where that is not there, or data decide it."""
        code = self.target.code
        if code is None:
            return None
        whole = {name: int(self.sizes[name]) for name in self.scop.parameters}
        return kept(self.scop, "launches by code", whole, code, lambda: gpu_launches(whole, code))

    def accesses(self) -> float:
        """Return the instructions of sub-groups that load or store, of any memory but constants, whose way is apart."""
        if self.code is not None:
            return self.of_code("loads", "stores")
        found = instructions_of(self.scop, self.target.sub_group_size)
        kinds = (kind for kind in found if kind.startswith("ldst") and kind != "ldst_constant")
        return self.at(QuasiPolynomial.total(found[kind] for kind in kinds))

    def of_code(self, *names: str) -> float:
        """Return instructions of some classes in the compiled code, of all launches."""
        repeats = [self.at(one.repeats) for one in self.scop.launches]
        return sum(
            times * sum(one.counts.get(name, 0.0) for name in names)
            for times, one in zip(repeats, self.code or (), strict=True)
        )

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
        key = (what, target.machine, target.registers_per_item, target.sub_group_size, target.caches, target.code)
        return kept(self.scop, "peaks", self.sizes, key, compute)


def _slots_of_code(run: MachineRun) -> dict[str, float]:
    # Products of integers take the unit of float32 arithmetic, where it is twice as wide one half of it.
    products = run.of_code("unit_imad")
    halves = run.over(products * run.need("fp32_per_cycle") / 2, "int32_mul_per_cycle")
    return {
        "fp32": run.of_code("unit_fma") + halves,
        "fp64": run.of_code("float64"),
        "int32": run.of_code("unit_alu"),
        "int32_mul": 0.0,
        "special": run.of_code("unit_special"),
        "all": run.of_code("instructions"),
    }


def _slots(run: MachineRun) -> dict[str, float]:
    if run.code is not None:
        return _slots_of_code(run)
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
            if operation.kind in UPDATES:
                continue
            # The classes have each operation once already, whatever it is made of.
            if instruction_class(operation.dtype, operation.kind) == "int":
                found["int32"] -= number
            extra += number * (sum(slots.values()) - 1)
    return {**found, "all": sum(by_class.values()) + extra}
