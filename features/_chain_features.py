"""Dependence chains: ``f_chain_<dtype>_<op>``, operations that must wait for one another.

A sequential loop that updates a private variable from its own old value runs no faster than the latency
of that update, unless other work-items fill the wait. GPUs and simultaneous multithreading mostly do;
CPUs run the work-items of a work-group one vector after the other, so that a long chain is paid in full.
The paper notes the effect for its work-removed kernels (Section 7.1.1) and leaves it open.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features._counts import counts_of
from perflex.features._operation_features import OperationFamily
from perflex.features._quasipolynomial import QuasiPolynomial

if TYPE_CHECKING:
    from perflex.features._feature import Amount, Sizes
    from perflex.features._scop import Scop, Statement

__all__ = ["ChainFamily", "ChainFeature"]

_PREFIX = "f_chain_"


@dataclass(frozen=True)
class ChainFeature:
    """Operations of one kind in the longest dependence chain, counted once per sub-group.

    Of several variables updated in the same loops only the one with the most operations counts: their chains
    run beside each other. Loops that meet a barrier in each iteration count for nothing: between barriers
    the work-items of a work-group take turns, and short runs of theirs overlap.
    """

    dtype: str
    kind: str

    @property
    def identifier(self) -> str:
        """The identifier in model strings."""
        return f"{_PREFIX}{self.dtype}_{self.kind}"

    @property
    def unit(self) -> str:
        """What is counted."""
        return "chained sub-group operation"

    def value(self, scop: Scop, sizes: Sizes, sub_group_size: int) -> Any:
        """Return the count at the given sizes."""
        scop.check_sizes(sizes)
        counts = counts_of(scop)
        total: Any = 0
        for variables in _chains(scop).values():
            longest: Any = None
            for statements in variables.values():
                every, own = QuasiPolynomial.constant(0), QuasiPolynomial.constant(0)
                for statement in statements:
                    instances = counts.sub_group_instances(statement, sub_group_size)
                    every = every + instances * _operations(statement)
                    own = own + instances * _operations(statement, self.kind, self.dtype)
                length, matching = every.evaluate(sizes), own.evaluate(sizes)
                if longest is None:
                    longest = (length, matching)
                else:
                    longer = np.asarray(length, dtype=float) > np.asarray(longest[0], dtype=float)
                    longest = (np.where(longer, length, longest[0]), np.where(longer, matching, longest[1]))
            if longest is not None:
                total = total + longest[1]
        return total

    def matches(self, scop: Scop, sizes: Sizes) -> bool:  # noqa: ARG002 - protocol
        """Return whether any chain has such an operation."""
        return self.identifier in self.inventory(scop)

    def inventory(self, scop: Scop) -> list[str]:
        """Return the chain features the kernel has."""
        found = {
            f"{_PREFIX}{operation.dtype}_{operation.kind}"
            for variables in _chains(scop).values()
            for statements in variables.values()
            for statement in statements
            if statement.recurrence is not None
            for operation in statement.recurrence.operations
        }
        return sorted(found)

    def amount(self, scop: Scop, sizes: Sizes, sub_group_size: int) -> Amount | None:  # noqa: ARG002 - protocol
        """Return None: a latency has no rate."""
        return None


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
        if statement.recurrence is not None and statement.loops and not _is_interrupted(scop, statement):
            chains[statement.launch, statement.loops][statement.recurrence.variable].append(statement)
    return chains


def _is_interrupted(scop: Scop, statement: Statement) -> bool:
    return any(
        barrier.launch == statement.launch and barrier.loops and statement.loops[: len(barrier.loops)] == barrier.loops
        for barrier in scop.barriers
    )


class ChainFamily:
    """Reads ``f_chain_...``."""

    def parse(self, identifier: str) -> ChainFeature | None:
        """Return the feature of an identifier that starts with ``f_chain_``.

        Raises
        ------
        UnknownFeatureError
            The type or operation is unknown.
        """
        if not identifier.startswith(_PREFIX):
            return None
        operation = OperationFamily().parse(f"f_op_{identifier.removeprefix(_PREFIX)}")
        return None if operation is None else ChainFeature(operation.dtype, operation.kind)

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest."""
        return tuple(f"{_PREFIX}float32_{kind}" for kind in ("add", "mul", "madd"))
