"""Kernel Tuner's restrictions as constraints of a space: texts, functions, and functions with the names they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Constraint: TypeAlias = str | Callable[..., Any]


def constraints_of(restrictions: Any, names: Sequence[str]) -> list[Constraint]:
    """Return the constraints that the restrictions of a call state, which are one or several."""
    one = isinstance(restrictions, str) or callable(restrictions) or _is_pair(restrictions)
    given = [restrictions] if one else list(restrictions or ())
    return [_constraint(each, names, alone=len(given) == 1) for each in given]


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) > 1 and callable(given[0]) and isinstance(given[1], (list, tuple))


def _constraint(given: Any, names: Sequence[str], *, alone: bool) -> Constraint:
    if _is_pair(given):
        return _by_name(given[0], [str(each) for each in given[1]], mapping=False)
    if not callable(given):
        return str(given)
    taken = _parameters(given)
    # A function that is the only restriction takes a mapping even where its parameter is called like a tunable.
    unknown = [each for each in taken if each.name not in names or (alone and len(names) > 1)]
    single = len(taken) == 1 and taken[0].kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
    return _by_name(given, names, mapping=single and bool(unknown))


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of some built-in functions, which take values in order
        return [Parameter("values", Parameter.VAR_POSITIONAL)]


def _by_name(function: Callable[..., Any], names: Sequence[str], *, mapping: bool) -> Constraint:
    """Return a function that takes tunables by name of one that takes them so, in their order, or as a mapping."""
    taken = _parameters(function)
    in_order = any(
        each.kind in {Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL}
        or (each.name not in names and each.default is each.empty and each.kind != Parameter.VAR_KEYWORD)
        for each in taken
    )
    everything = mapping or in_order or any(each.kind == Parameter.VAR_KEYWORD for each in taken)
    wanted = names if everything else [each.name for each in taken if each.name in names]

    def holds(**settings: Any) -> Any:
        if mapping:
            return function(settings)
        values = {name: settings[name] for name in wanted}
        return function(*values.values()) if in_order else function(**values)

    holds.__name__ = str(getattr(function, "__name__", "restriction"))
    signature = inspect.Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in wanted])
    holds.__signature__ = signature  # type: ignore[attr-defined]  # which is what the space asks
    return holds
