"""Why loopy cannot order a kernel: cycles of dependencies, of loop priorities and through loops, and what it lacks."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from loopy.diagnostic import DependencyCycleFound
from loopy.kernel.data import ConcurrentTag
from pytools.graph import CycleError

# What loopy says of a maximum or minimum of a type of 8 or 16 bits.
_NO_START = re.compile(r"neutral element for (.)= and .*?(\w+)'\)")


def cause_of(error: Exception, *kernels: Any) -> str:
    """Return why loopy cannot order a kernel, given its error and the kernel's forms, the author's first."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, (CycleError, DependencyCycleFound)):
        # It states one place only.
        return next(filter(None, map(_cycle_in, kernels)), f"there is a cycle through {first}")
    if (found := _NO_START.match(first)) is None:
        return first
    relation, dtype = found.groups()
    function = "max" if relation == ">" else "min"
    step = f"f{function}(m, x[k])" if dtype.startswith("float") else f"x[k] if x[k] {relation} m else m"
    return (
        f"it has no number of type {dtype} to begin a {function} reduction with; write it out and begin with an "
        f"element: <{dtype}> m = x[0] {{id=m0}}, and in the loop m = {step} {{dep=m0}}"
    )


def _cycle_in(kernel: Any) -> str | None:
    """Return the cycle that keeps a kernel from being ordered, and what resolves it; None where none is found."""
    waits = {insn.id: sorted(insn.depends_on & set(kernel.id_to_insn)) for insn in kernel.instructions}
    if path := _shortest_cycle(waits):
        steps = ", ".join(f"{one!r} on {other!r}" for one, other in pairwise(path))
        return (
            f"its dependencies form a cycle: instruction {steps}; state for one of them only those that hold, "
            "with {dep=*...}, whose asterisk keeps loopy from adding others"
        )
    inside: dict[str, list[str]] = {}
    for order in sorted(kernel.loop_priority):
        for outer, inner in pairwise(order):
            inside.setdefault(outer, []).append(inner)
    if path := _shortest_cycle(inside):
        steps = ", ".join(f"loop {one!r} around {other!r}" for one, other in pairwise(path))
        what = "its loop priorities contradict each other in a cycle"
        return f"{what}: {steps}; leave out one of them, in lp.prioritize_loops"
    needs = kernel.recursive_insn_dep_map()
    for loop in sorted(name for name, iname in kernel.inames.items() if not iname.tags_of_type(ConcurrentTag)):
        within = {insn.id for insn in kernel.instructions if loop in insn.within_inames}
        for outside in sorted(set(waits) - within):
            before, after = sorted(within & needs[outside]), sorted(name for name in within if outside in needs[name])
            if before and after:
                return (
                    f"its dependencies form a cycle through loop {loop!r}: {outside!r}, which is not in the loop, "
                    f"depends on {before[0]!r} in it, and {after[0]!r} in it on {outside!r}; make it two loops, e.g. "
                    f"lp.duplicate_inames(kernel, {loop!r}, 'id:{after[0]}')"
                )
    return None


def _shortest_cycle(graph: dict[str, list[str]]) -> list[str]:
    """Return a shortest cycle, its first name again at its end; empty if there is none."""
    cycles = []
    for start in sorted(graph):
        paths = {start: [start]}
        for name in (reached := [start]):
            for other in graph.get(name, ()):
                if other == start:
                    cycles.append([*paths[name], start])
                elif other not in paths:
                    paths[other] = [*paths[name], other]
                    reached.append(other)
    return min(cycles, key=len, default=[])
