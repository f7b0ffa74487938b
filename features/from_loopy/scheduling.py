"""loopy's schedule of a kernel, with reductions and calls written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import loopy as lp
from loopy.kernel.function_interface import CallableKernel
from pytools.graph import CycleError

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.cycles import cause_of
from perflex.features.from_loopy.terms import require_short_numbers
from perflex.isl import isl

# What loopy lets through besides its own errors, for kernels that cannot be scheduled.
_SCHEDULING_FAILURES = (RuntimeError, isl.Error, LookupError, AttributeError, ValueError, TypeError, AssertionError)


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
        kernel = lp.get_one_linearized_kernel(kernel, t_unit.callables_table)
    except (lp.diagnostic.LoopyError, CycleError, *_SCHEDULING_FAILURES) as error:
        for array, variable in {**t_unit[name].arg_dict, **t_unit[name].temporary_variables}.items():
            strides = [tag.stride for tag in getattr(variable, "dim_tags", None) or () if hasattr(tag, "stride")]
            for expr in (*(getattr(variable, "shape", None) or ()), *strides):
                require_short_numbers(expr, f"the shape or a stride of array {array!r}")
        # Names of the kernel as its author knows it come first.
        msg = f"loopy cannot schedule kernel {name!r}: {cause_of(error, given[name], t_unit[name])}"
        raise UnsupportedKernelError(msg, kernel=name) from error
    return kernel, t_unit.callables_table


def _only_entry(t_unit: Any) -> str:
    """Return the name of a translation unit's single entry point."""
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
