"""Dependence chains: operations that wait for one another, from one iteration of a loop to the next."""

from __future__ import annotations

from collections import defaultdict

from perflex.features.scop.address_maps import host_loops, loops_with_barriers
from perflex.features.scop.scop import Barrier, Scop, Statement

# By launch and loops, then by variable: the statements that update it from its own old value.
Chains = dict[tuple[int, tuple[int, ...]], dict[str, list["Statement"]]]


def chains_of(scop: Scop, *, barriers_end_them: bool = True) -> Chains:
    """Return a kernel's chains; those of several variables in the same loops run beside each other."""
    chains: Chains = defaultdict(lambda: defaultdict(list))
    # Where each iteration sets a variable afresh, nothing waits for the one before.
    begun = {
        (one.launch, sequential_loops(scop, one), one.resets)
        for one in scop.statements
        if one.resets and not one.guarded
    }
    for one in scop.statements:
        # What is left of a loop with a barrier in each iteration are the loops inside of it.
        loops = sequential_loops(scop, one)
        held = max(0, loops_with_barriers(scop, one) - host_loops(scop, one))
        anew = one.recurrence is not None and (one.launch, loops, one.recurrence.variable) in begun
        if one.recurrence and len(loops) > (held if barriers_end_them else 0) and not anew:
            chains[one.launch, loops][one.recurrence.variable].append(one)
    return chains


def sequential_loops(scop: Scop, statement: Statement | Barrier) -> tuple[int, ...]:
    """Return the loops of a device program whose iterations follow one another: copies side by side do not."""
    kinds = (loop.kind for loop in scop.loops_of(statement))
    return tuple(loop for loop, kind in zip(statement.loops, kinds, strict=True) if kind not in {"interleaved", "host"})


def outer_loops(scop: Scop, statement: Statement) -> int:
    """Return how many loops around an update also enclose the statement that sets its variable afresh."""
    mine = sequential_loops(scop, statement)
    shared = [
        len(loops)
        for other in scop.statements
        if statement.recurrence is not None
        and other.resets == statement.recurrence.variable
        and other.launch == statement.launch
        and len(loops := sequential_loops(scop, other)) < len(mine)
        and mine[: len(loops)] == loops
    ]
    return host_loops(scop, statement) + max(shared, default=0)


def chained_operations(statement: Statement, kind: str = "", dtype: str = "") -> int:
    """Return how many operations of an update wait for its old value, all or those of a kind and type."""
    operations = () if statement.recurrence is None else statement.recurrence.operations
    return sum(one.count for one in operations if not kind or (one.kind, one.dtype) == (kind, dtype))
