"""Arithmetic: ``f_op_<dtype>_<op>``, per sub-group (paper Sections 5 and 6.1.2), and what is said of some of it.

A sub-group executes a statement if the condition holds for any of its work-items, and both sides of an if/else where
they differ.

``f_chain_<dtype>_<op>`` are operations that must wait for one another. A sequential loop that updates a private
variable from its own old value runs no faster than the latency of that update, unless other work-items fill the wait.
GPUs and simultaneous multithreading mostly do; CPUs run the work-items of a work-group one vector after the other, so
that a long chain is paid in full. A short one is not: out-of-order execution starts the next work-item's chain
meanwhile.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import UnknownFeatureError
from perflex.features.counting.scop_counts import ScopCounts, counts_of
from perflex.features.families.feature import Amount, Family, FeatureDefaults, NamedFeature, named_family
from perflex.features.instructions.instruction_counts import INSTRUCTION_CLASSES, instructions_of
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.address_maps import loops_with_barriers
from perflex.features.scop.words import OPERATIONS, read_operation

if TYPE_CHECKING:
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop, Statement
    from perflex.features.target import Target


@dataclass(frozen=True)
class OperationFeature(FeatureDefaults):
    """Executed operations of one kind and type, counted once per sub-group."""

    dtype: str
    kind: str

    @property
    def identifier(self) -> str:
        """The identifier in model strings."""
        return f"f_op_{self.dtype}_{self.kind}"

    @property
    def unit(self) -> str:
        """What is counted."""
        return "sub-group operation"

    def count(self, scop: Scop, sub_group_size: int) -> QuasiPolynomial:
        """Return the symbolic count."""
        return counts_of(scop).operation_total(self.kind, self.dtype, sub_group_size)

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the count at the given sizes."""
        scop.check_sizes(sizes)
        return self.count(scop, target.sub_group_size).evaluate(sizes)

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the operation features the kernel contains."""
        kinds = {(op.dtype, op.kind) for statement in scop.statements for op in statement.operations}
        return [f"f_op_{dtype}_{kind}" for dtype, kind in sorted(kinds)]

    def amount(self, _scop: Scop, _sizes: Sizes, target: Target, /) -> Amount | None:
        """Return operations per sub-group operation."""
        return Amount(float(target.sub_group_size), "op")


def _operation(identifier: str) -> OperationFeature | None:
    return OperationFeature(*read_operation(identifier)) if identifier.startswith("f_op_") else None


OPERATION_FAMILY = Family(
    _operation, tuple(f"f_op_{dtype}_{kind}" for dtype in ("float32", "float64", "int32") for kind in OPERATIONS)
)
_CHAIN = "f_chain_"


@dataclass(frozen=True)
class ChainFeature(FeatureDefaults):
    """Operations of one kind in the longest dependence chain, counted once per sub-group.

    A chain runs from where its variable is set afresh to the end of the loops that update it. Of several variables
    updated in the same loops only the one with the most operations counts: their chains run beside each other. A
    barrier ends a chain, because the other work-items of the work-group have their turn then.
    """

    # dtype, kind: element type and name of the operations counted, as in ``f_op_...``.
    dtype: str
    kind: str
    after: int = 0  # So many operations at the beginning of each chain are not counted

    @property
    def identifier(self) -> str:
        """The identifier in model strings."""
        return f"{_CHAIN}{self.dtype}_{self.kind}" + (f"_after:{self.after}" if self.after else "")

    @property
    def unit(self) -> str:
        """What is counted."""
        return "chained sub-group operation"

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the count at the given sizes."""
        scop.check_sizes(sizes)
        counts = counts_of(scop)
        total: Any = 0
        size = target.sub_group_size
        for variables in _chains(scop).values():
            lengths = [self._lengths(counts, statements, sizes, size) for statements in variables.values()]
            longest, matching = lengths[0]
            for other, other_matching in lengths[1:]:
                longer = np.asarray(other) > np.asarray(longest)
                longest = np.where(longer, other, longest)
                matching = np.where(longer, other_matching, matching)
            total = total + matching
        return total if np.ndim(total) else float(total)

    def _lengths(
        self, counts: ScopCounts, statements: list[Statement], sizes: Sizes, sub_group_size: int
    ) -> tuple[Any, Any]:
        """Return all operations of one variable's chains and those of this kind, beyond ``after`` per chain."""
        every: Any = 0.0
        matching: Any = 0.0
        for statement in statements:
            instances = np.asarray(counts.instances(statement, sub_group_size).evaluate(sizes), dtype=float)
            every = every + instances * _operations(statement)
            matching = matching + instances * _operations(statement, self.kind, self.dtype)
        if not self.after:
            return every, matching
        first = statements[0]
        # A chain begins anew each time the loops are entered, and `after` operations of each are free.
        outer = max(_outer_loops(counts.scop, first), loops_with_barriers(counts.scop, first))
        runs = counts.sub_group_runs(first, outer, sub_group_size).evaluate(sizes)
        beyond = np.maximum(0.0, every - self.after * np.asarray(runs, dtype=float))
        # `after` is a number of operations of all kinds: what is free is spread over them in proportion.
        share = np.divide(beyond, every, out=np.zeros_like(beyond), where=np.asarray(every) > 0)
        return beyond, matching * share

    def matches(self, scop: Scop, _sizes: Sizes, /) -> bool:
        """Return whether any chain has such an operation."""
        return f"{_CHAIN}{self.dtype}_{self.kind}" in self.inventory(scop)

    def statements(self, scop: Scop) -> list[Statement]:
        """Return the statements whose recurrences have such an operation."""
        return [statement for statement in _chained(scop) if _operations(statement, self.kind, self.dtype)]

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the chain features the kernel has."""
        updates = [statement.recurrence.operations for statement in _chained(scop) if statement.recurrence is not None]
        return sorted({f"{_CHAIN}{one.dtype}_{one.kind}" for operations in updates for one in operations})


def _operations(statement: Statement, kind: str = "", dtype: str = "") -> int:
    if statement.recurrence is None:
        return 0
    return sum(
        operation.count
        for operation in statement.recurrence.operations
        if not kind or (operation.kind, operation.dtype) == (kind, dtype)
    )


def _chains(scop: Scop) -> dict[tuple[object, ...], dict[str, list[Statement]]]:
    """Group the statements that carry a recurrence by launch and loops, then by variable."""
    chains: dict[tuple[object, ...], dict[str, list[Statement]]] = defaultdict(lambda: defaultdict(list))
    for statement in scop.statements:
        # A barrier in each iteration of a loop ends chains: what is left are the loops inside of it.
        if statement.recurrence is not None and len(statement.loops) > loops_with_barriers(scop, statement):
            chains[statement.launch, statement.places][statement.recurrence.variable].append(statement)
    return chains


def _chained(scop: Scop) -> list[Statement]:
    return [one for variables in _chains(scop).values() for statements in variables.values() for one in statements]


def _outer_loops(scop: Scop, statement: Statement) -> int:
    """Return how many loops around a recurrence also enclose the statement that sets its variable afresh."""
    assert statement.recurrence is not None  # noqa: S101 - chains only
    shared = [
        len(other.loops)
        for other in scop.statements
        if other.assigns == statement.recurrence.variable
        and other.launch == statement.launch
        and len(other.loops) < len(statement.loops)
        and statement.places[: len(other.loops)] == other.places
    ]
    return max(shared, default=0)


def _chain(identifier: str) -> ChainFeature | None:
    if not identifier.startswith(_CHAIN):
        return None
    name, found, after = identifier.partition("_after:")
    if found and not re.fullmatch(r"[0-9]{1,9}", after):
        msg = f"feature {identifier!r}: the field after must be a number of operations, e.g. _after:48"
        raise UnknownFeatureError(msg, feature=identifier)
    dtype, kind = read_operation(f"f_op_{name.removeprefix(_CHAIN)}")
    return ChainFeature(dtype, kind, int(after or 0))


CHAIN_FAMILY = Family(_chain, tuple(f"{_CHAIN}float32_{kind}" for kind in ("add", "mul", "madd")))


_WARP = "sub-group instruction"
INSTRUCTION_FEATURES = {
    **{f"f_inst_{kind}": _WARP for kind in INSTRUCTION_CLASSES},
    "f_inst_total": _WARP,
    "f_inst_thread": "work-item instruction",
    "f_inst_predication": "1",
}


@dataclass(frozen=True)
class InstructionFeature(NamedFeature):
    """Executed instructions of a class, or what follows from them.

    ``f_inst_total`` is the sum of all classes, ``f_inst_thread`` the same sum over work-items, and
    ``f_inst_predication`` the share of work-items that are active in an executed instruction. Branches whose condition
    depends on data count for all work-items.
    """

    units = INSTRUCTION_FEATURES

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value at the given sizes, over all launches of the kernel."""
        scop.check_sizes(sizes)
        size = target.sub_group_size
        if self.identifier != "f_inst_predication":
            return self.count(scop, size).evaluate(sizes)
        threads, places = (
            InstructionFeature(name).count(scop, size).evaluate(sizes) for name in ("f_inst_thread", "f_inst_total")
        )
        # Thread predication (Ding and Williams): work-item instructions over the lanes of all issued instructions.
        places = places * size
        # Where nothing runs, nothing is predicated.
        share = np.where(places > 0, threads / np.maximum(places, 1), 1.0)
        return share if np.ndim(places) else float(share)

    def count(self, scop: Scop, sub_group_size: int) -> QuasiPolynomial:
        """Return the symbolic count; the predication is a ratio of two and has none."""
        whose = None if self.identifier == "f_inst_thread" else sub_group_size
        by_class = instructions_of(scop, whose)
        if self.identifier in {"f_inst_total", "f_inst_thread"}:
            return QuasiPolynomial.total(by_class.values())
        return by_class[self.identifier.removeprefix("f_inst_")]

    def counts_class(self, kind: str) -> bool:
        """Return whether instructions of a class are among those that it counts."""
        return self.identifier in {f"f_inst_{kind}", "f_inst_total", "f_inst_thread"}

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the features of this family that the kernel has."""
        by_class = instructions_of(scop, None)
        there = {f"f_inst_{kind}" for kind, count in by_class.items() if not count.is_zero}
        return [
            name
            for name in INSTRUCTION_FEATURES
            if name in there or name.removeprefix("f_inst_") not in INSTRUCTION_CLASSES
        ]


INSTRUCTION_FAMILY = named_family(INSTRUCTION_FEATURES, InstructionFeature)
