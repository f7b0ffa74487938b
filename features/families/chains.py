"""Dependence chains: ``f_chain_<dtype>_<op>``, operations that must wait for one another.

A sequential loop that updates a private variable from its own old value runs no faster than the latency
of that update, unless other work-items fill the wait. GPUs and simultaneous multithreading mostly do;
CPUs run the work-items of a work-group one vector after the other, so that a long chain is paid in full.
A short one is not: out-of-order execution starts the next work-item's chain meanwhile. The paper notes
the chains of its work-removed kernels (Section 7.1.1) and leaves them open.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import UnknownFeatureError
from perflex.features.counting.counts import ScopCounts, counts_of
from perflex.features.families.feature import FeatureDefaults
from perflex.features.families.operations import OperationFamily

if TYPE_CHECKING:
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop, Statement
    from perflex.features.target import Target

_PREFIX = "f_chain_"


@dataclass(frozen=True)
class ChainFeature(FeatureDefaults):
    """Operations of one kind in the longest dependence chain, counted once per sub-group.

    A chain runs from where its variable is set afresh to the end of the loops that update it. Of several
    variables updated in the same loops only the one with the most operations counts: their chains run beside
    each other. A barrier ends a chain, because the other work-items of the work-group have their turn then: an
    update in a loop inside of the barrier's makes a chain that begins anew after each barrier, one in the
    barrier's own loop waits for nothing.

    Attributes
    ----------
    dtype, kind
        Element type and name of the operations counted, as in ``f_op_...``.
    after
        So many operations at the beginning of each chain are not counted.
    """

    dtype: str
    kind: str
    after: int = 0

    @property
    def identifier(self) -> str:
        """The identifier in model strings."""
        return f"{_PREFIX}{self.dtype}_{self.kind}" + (f"_after:{self.after}" if self.after else "")

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
        outer = max(_outer_loops(counts.scop, first), _interrupted_loops(counts.scop, first))
        runs = counts.sub_group_runs(first, outer, sub_group_size).evaluate(sizes)
        beyond = np.maximum(0.0, every - self.after * np.asarray(runs, dtype=float))
        # `after` is a number of operations of all kinds: what is free is spread over them in proportion.
        share = np.divide(beyond, every, out=np.zeros_like(beyond), where=np.asarray(every) > 0)
        return beyond, matching * share

    def matches(self, scop: Scop, _sizes: Sizes, /) -> bool:
        """Return whether any chain has such an operation."""
        return f"{_PREFIX}{self.dtype}_{self.kind}" in self.inventory(scop)

    def statements(self, scop: Scop) -> list[Statement]:
        """Return the statements whose recurrences have such an operation."""
        return [statement for statement in _chained(scop) if _operations(statement, self.kind, self.dtype)]

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the chain features the kernel has."""
        updates = [statement.recurrence.operations for statement in _chained(scop) if statement.recurrence is not None]
        return sorted({f"{_PREFIX}{one.dtype}_{one.kind}" for operations in updates for one in operations})


def _operations(statement: Statement, kind: str = "", dtype: str = "") -> int:
    if statement.recurrence is None:
        return 0
    return sum(
        operation.count
        for operation in statement.recurrence.operations
        if not kind or (operation.kind, operation.dtype) == (kind, dtype)
    )


def _chains(scop: Scop) -> dict[tuple[int, tuple[str, ...]], dict[str, list[Statement]]]:
    """Group the statements that carry a recurrence by launch and loops, then by variable."""
    chains: dict[tuple[int, tuple[str, ...]], dict[str, list[Statement]]] = defaultdict(lambda: defaultdict(list))
    for statement in scop.statements:
        if statement.recurrence is not None and len(statement.loops) > _interrupted_loops(scop, statement):
            chains[statement.launch, statement.loops][statement.recurrence.variable].append(statement)
    return chains


def _chained(scop: Scop) -> list[Statement]:
    return [one for variables in _chains(scop).values() for statements in variables.values() for one in statements]


def _interrupted_loops(scop: Scop, statement: Statement) -> int:
    """Return how many loops around a statement, from the outermost, meet a barrier in each iteration."""
    # A loop that is around both meets the barrier, wherever else either of them lies.
    shared = [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(barrier.loops, statement.loops, strict=False)))
        for barrier in scop.barriers
        if barrier.launch == statement.launch
    ]
    return max(shared, default=0)


def _outer_loops(scop: Scop, statement: Statement) -> int:
    """Return how many loops around a recurrence also enclose the statement that sets its variable afresh."""
    assert statement.recurrence is not None  # noqa: S101 - chains only
    shared = [
        len(other.loops)
        for other in scop.statements
        if other.assigns == statement.recurrence.variable
        and other.launch == statement.launch
        and len(other.loops) < len(statement.loops)
        and statement.loops[: len(other.loops)] == other.loops
    ]
    return max(shared, default=0)


class ChainFamily:
    """Reads ``f_chain_...``."""

    def parse(self, identifier: str) -> ChainFeature | None:
        """Return the feature of an identifier that starts with ``f_chain_``.

        Raises
        ------
        UnknownFeatureError
            The type or operation is unknown, or the field ``after`` is malformed.
        """
        if not identifier.startswith(_PREFIX):
            return None
        name, found, after = identifier.partition("_after:")
        if found and not re.fullmatch(r"[0-9]{1,9}", after):
            msg = f"feature {identifier!r}: the field after must be a number of operations, e.g. _after:48"
            raise UnknownFeatureError(msg, feature=identifier)
        operation = OperationFamily().parse(f"f_op_{name.removeprefix(_PREFIX)}")
        return None if operation is None else ChainFeature(operation.dtype, operation.kind, int(after or 0))

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest."""
        return tuple(f"{_PREFIX}float32_{kind}" for kind in ("add", "mul", "madd"))
