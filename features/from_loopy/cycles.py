"""Why loopy cannot order a kernel: cycles of dependencies, of loop priorities and through loops, and what it lacks."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_Graph = dict[str, list[str]]
# What loopy says of a maximum or minimum of a type of 8 or 16 bits.
_NO_START = re.compile(r"neutral element for (.)= and .*?(\w+)'\)")


def cause_of(error: Exception, *kernels: Any) -> str:
    """Return why loopy cannot order a kernel, given its error and the kernel's forms, the author's first."""
    from loopy.diagnostic import DependencyCycleFound
    from pytools.graph import CycleError

    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, (CycleError, DependencyCycleFound)):
        # It states one place only.
        cycles = filter(None, map(cycle_in, kernels))
        return next(cycles, f"there is a cycle through {first}")
    found = _NO_START.match(first)
    return _without_start(*found.groups()) if found else first


def _without_start(relation: str, dtype: str) -> str:
    function = "max" if relation == ">" else "min"
    step = f"f{function}(m, x[k])" if dtype.startswith("float") else f"x[k] if x[k] {relation} m else m"
    return (
        f"it has no number of type {dtype} to begin a {function} reduction with; write it out and begin with an "
        f"element: <{dtype}> m = x[0] {{id=m0}}, and in the loop m = {step} {{dep=m0}}"
    )


def cycle_in(kernel: Any) -> str | None:
    """Return the cycle that keeps a loopy kernel from being ordered, and what resolves it; None where none is found."""
    waits = {insn.id: sorted(insn.depends_on & set(kernel.id_to_insn)) for insn in kernel.instructions}
    return _of_dependencies(waits) or _of_priorities(kernel.loop_priority) or _of_loops(kernel, waits)


def _of_dependencies(waits: _Graph) -> str | None:
    path = _cycle(waits)
    if path is None:
        return None
    steps = ", ".join(f"{one!r} on {other!r}" for one, other in pairwise(path))
    return (
        f"its dependencies form a cycle: instruction {steps}; state for one of them only those that hold, "
        "with {dep=*...}, whose asterisk keeps loopy from adding others"
    )


def _of_priorities(priorities: Iterable[tuple[str, ...]]) -> str | None:
    inside: _Graph = {}
    for order in sorted(priorities):
        for outer, inner in pairwise(order):
            inside.setdefault(outer, []).append(inner)
    path = _cycle(inside)
    if path is None:
        return None
    steps = ", ".join(f"loop {one!r} around {other!r}" for one, other in pairwise(path))
    return (
        f"its loop priorities contradict each other in a cycle: {steps}; leave out one of them, in lp.prioritize_loops"
    )


def _of_loops(kernel: Any, waits: _Graph) -> str | None:
    from loopy.kernel.data import ConcurrentTag

    needs = {name: _reached(waits, name) for name in waits}
    for loop in sorted(kernel.inames):
        if any(isinstance(tag, ConcurrentTag) for tag in kernel.inames[loop].tags):
            continue
        within = {insn.id for insn in kernel.instructions if loop in insn.within_inames}
        for outside in sorted(set(waits) - within):
            before = sorted(within & needs[outside])
            after = sorted(name for name in within if outside in needs[name])
            if before and after:
                return (
                    f"its dependencies form a cycle through loop {loop!r}: {outside!r}, which is not in the loop, "
                    f"depends on {before[0]!r} in it, and {after[0]!r} in it on {outside!r}; make it two loops, e.g. "
                    f"lp.duplicate_inames(kernel, {loop!r}, 'id:{after[0]}')"
                )
    return None


def _reached(graph: Mapping[str, list[str]], start: str) -> set[str]:
    found: set[str] = set()
    open_ = list(graph.get(start, ()))
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_.extend(graph.get(name, ()))
    return found


def _cycle(graph: Mapping[str, list[str]]) -> list[str] | None:
    """Return a shortest cycle, its first name again at its end."""
    best: list[str] | None = None
    for start in sorted(graph):
        came = {start: ""}
        open_ = [start]
        for name in open_:
            for other in graph.get(name, ()):
                if other == start:
                    path = [name]
                    while path[-1] != start:
                        path.append(came[path[-1]])
                    path = [*reversed(path), start]
                    best = path if best is None or len(path) < len(best) else best
                elif other not in came:
                    came[other] = name
                    open_.append(other)
    return best
