"""Which arguments of a loopy kernel are its size parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.terms import operands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.features.annotation import CountingOptions


def size_parameters(kernel: Any, options: CountingOptions) -> tuple[str, ...]:
    """Return the arguments that loop bounds, shapes, strides or subscripts depend on, sorted."""
    from loopy.kernel.array import ArrayBase
    from loopy.kernel.data import ValueArg
    from loopy.symbolic import DependencyMapper, get_dependencies

    names = set(kernel.outer_params())
    for variable in (*kernel.args, *kernel.temporary_variables.values()):
        if isinstance(variable, ArrayBase) and isinstance(variable.shape, tuple):
            strides = [tag.stride for tag in variable.dim_tags or () if hasattr(tag, "stride")]
            names |= get_dependencies((*variable.shape, *strides))
    # Arguments in subscripts are sizes as well: x[i + offset] has a stride only if offset is one number.
    subscripts = DependencyMapper(include_subscripts=True)
    for insn in kernel.instructions:
        for expr in (*getattr(insn, "assignees", ()), getattr(insn, "expression", None)):
            if expr is not None:
                for dependency in subscripts(expr):
                    if getattr(dependency, "mapper_method", "") == "map_subscript":
                        names |= get_dependencies(dependency.index)
    # Counted by domain, affine conditions become constraints, and the arguments in them parameters.
    if options.branches == "domain":
        names |= {name for insn in kernel.instructions for name in _deciding_names(insn)}
    # This finds loops and functions, too; only arguments are kept.
    names |= {name for text in _stated_texts(options) for name in re.findall(r"[A-Za-z_]\w*", text)}
    values = {name: kernel.arg_dict[name] for name in names if isinstance(kernel.arg_dict.get(name), ValueArg)}
    # isl's parameters are integers; a floating-point argument decides no count.
    return tuple(sorted(name for name, value in values.items() if _type(kernel, value).is_integral()))


def _type(kernel: Any, argument: Any) -> Any:
    if argument.dtype is None:
        msg = (
            f"argument {argument.name!r} of kernel {kernel.name!r} decides counts and has no type; "
            f'declare it, e.g. loopy.ValueArg("{argument.name}", numpy.int32)'
        )
        raise UnsupportedKernelError(msg, kernel=kernel.name, argument=argument.name)
    return argument.dtype


def _stated_texts(options: CountingOptions) -> Iterator[str]:
    yield from (count for _, count in options.trip_counts if isinstance(count, str))
    yield from (value for _, value in options.accesses)
    for _, counts in options.instructions:
        yield from (*counts.loads, *counts.stores)


def _deciding_names(insn: Any) -> Iterator[str]:
    """Names in an instruction's conditions that may be affine."""
    for predicate in insn.predicates:
        yield from _compared_names(predicate)
    pending = [getattr(insn, "expression", None)]
    while pending:
        expr = pending.pop()
        if getattr(expr, "mapper_method", None) in {"map_if", "map_logical_and", "map_logical_or"}:
            yield from _compared_names(getattr(expr, "condition", expr))
        pending += operands(expr)


def _compared_names(condition: Any) -> Iterator[str]:
    """Names in the comparisons of a condition that compare no data."""
    if getattr(condition, "mapper_method", None) in {"map_logical_and", "map_logical_or", "map_logical_not"}:
        for part in operands(condition):
            yield from _compared_names(part)
    elif not _touches_data(condition):
        from loopy.symbolic import get_dependencies

        yield from get_dependencies(condition)


def _touches_data(expr: Any) -> bool:
    method = getattr(expr, "mapper_method", None)
    return method in {"map_subscript", "map_call"} or any(map(_touches_data, operands(expr)))
