"""loopy's schedule of a kernel, with reductions and calls written out; or why loopy cannot order it."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import loopy as lp
from loopy.diagnostic import DependencyCycleFound
from loopy.kernel.data import ConcurrentTag
from loopy.kernel.function_interface import CallableKernel
from loopy.schedule import MinRecursionLimitForScheduling, generate_loop_schedules
from pytools.graph import CycleError

from perflex.caches import repair_pytools_cache
from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.terms import require_short_numbers
from perflex.isl import isl

repair_pytools_cache()

# What loopy raises for kernels that cannot be scheduled, besides its own errors, which are the first.
_FAILURES = (RuntimeError, CycleError, isl.Error, LookupError, AttributeError, ValueError, TypeError, AssertionError)
# What loopy says of a maximum or minimum of a type of 8 or 16 bits.
_NO_START = re.compile(r"neutral element for (.)= and .*?(\w+)'\)")


def linearized(t_unit: Any) -> tuple[Any, Any]:
    """Return (scheduled kernel, callables table) of the single entry point."""
    name = _only_entry(t_unit)
    given = t_unit
    try:
        # Inlined, a callee's accesses have subscripts in the caller's arrays and loops, which is what is counted.
        for callee, callable_ in list(t_unit.callables_table.items()):
            if callee != name and isinstance(callable_, CallableKernel):
                t_unit = lp.inline_callable_kernel(t_unit, callee)
        # This realizes reductions: accumulators and their updates are instructions, as in the generated code.
        t_unit = lp.preprocess_program(t_unit)
        # Variables of realized reductions get their types when code is generated, and so here.
        if any(variable.dtype is None for variable in t_unit[name].temporary_variables.values()):
            t_unit = lp.infer_unknown_types(t_unit, expect_completion=True)
        kernel = t_unit[name]
        # A missing global barrier is found when code is generated; loopy's check takes a millisecond per pair of
        # instructions. With insert_gbarriers loopy does not check but inserts.
        if not kernel.options.insert_gbarriers:
            kernel = kernel.copy(options=kernel.options.copy(disable_global_barriers=True))
        # Nothing is kept on disk: code is generated of a kernel with other options.
        callables = _Callables(t_unit.callables_table)
        with MinRecursionLimitForScheduling(kernel):
            kernel = next(iter(generate_loop_schedules(kernel, callables)))
    except _FAILURES as error:
        for array, variable in {**t_unit[name].arg_dict, **t_unit[name].temporary_variables}.items():
            strides = (getattr(tag, "stride", 1) for tag in getattr(variable, "dim_tags", None) or ())
            for expr in (*(getattr(variable, "shape", None) or ()), *strides):
                require_short_numbers(expr, f"the shape or a stride of array {array!r}")
        # Names of the kernel as its author knows it come first.
        msg = f"loopy cannot schedule kernel {name!r}: {_cause_of(error, given[name], t_unit[name])}"
        raise UnsupportedKernelError(msg, kernel=name) from error
    return kernel, callables


class _Callables(dict[Any, Any]):
    """A table of callables by identity: loopy hashes it, with all kernels in it, wherever it remembers a result."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def _only_entry(t_unit: Any) -> str:
    if not isinstance(t_unit, lp.TranslationUnit):
        msg = f"expected a loopy TranslationUnit or a Scop, got {type(t_unit).__name__}"
        if isinstance(t_unit, lp.LoopKernel):
            msg += f"; give the whole translation unit, such as t_unit.with_entrypoints({t_unit.name!r})"
        if isinstance(t_unit, (str, Path)):
            msg += f"; source code is given with source_kernel(path, name), so give source_kernel({str(t_unit)!r}, ...)"
        raise UnsupportedKernelError(msg)
    if len(t_unit.entrypoints) != 1:
        names = ", ".join(sorted(t_unit.entrypoints)) or "none"
        msg = f"the translation unit has {len(t_unit.entrypoints)} entry points ({names}); use t_unit.with_entrypoints"
        raise UnsupportedKernelError(msg)
    return str(next(iter(t_unit.entrypoints)))


def _cause_of(error: Exception, *kernels: Any) -> str:
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
        reached, paths = {start}, [[start]]
        for path in paths:
            for other in graph.get(path[-1], ()):
                if other == start:
                    cycles.append([*path, start])
                elif other not in reached:
                    reached.add(other)
                    paths.append([*path, other])
    return min(cycles, key=len, default=[])
