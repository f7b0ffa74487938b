"""Constraints of a space: texts, functions of parameters by name, and Kernel Tuner's restrictions."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from perflex.errors import ModelSyntaxError, SpaceError
from perflex.formula import parse_formula
from perflex.search.variants import settings_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perflex.formula import Formula
    from perflex.search.variants import Settings


@dataclass(frozen=True)
class Constraint:
    """What settings must fulfil: by its text (or the function's name) it is counted, by its names it is checked.

    It is checked as soon as these are set.
    """

    text: str
    names: frozenset[str]
    holds: Callable[[Settings], bool]


_How: TypeAlias = Literal["by name", "in order", "as a mapping"]
# A text over parameters, a function that takes some of them by name, or what `constraints_of` made.
Given: TypeAlias = str | Callable[..., Any] | Constraint


def formula_of(text: str, names: Iterable[str]) -> Formula:
    """Read a formula of tunables with such names; a SpaceError where it is none, or names others."""
    try:
        formula = parse_formula(text)
    except ModelSyntaxError as error:
        raise SpaceError(error.message, formula=text) from error
    known = list(names)
    if unknown := [name for name in formula.names if name not in known]:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        msg = f"{text!r} names {unknown[0]!r}, which is no tunable; {hint}there are {', '.join(known)}"
        raise SpaceError(msg, formula=text)
    return formula


def read_constraint(given: object, parameters: Sequence[str]) -> Constraint:
    """Return what is given as a constraint over the parameters; a SpaceError where it is none."""
    if isinstance(given, Constraint):
        return given
    if callable(given):
        return _from_function(given, parameters)
    if not isinstance(given, str):
        msg = f"a constraint is a text or a function of the parameters, not {type(given).__name__}"
        raise SpaceError(msg)
    formula = formula_of(given, parameters)
    return Constraint(" ".join(given.split()), frozenset(formula.names), partial(_fulfilled, formula))


def _from_function(function: Callable[..., Any], parameters: Sequence[str]) -> Constraint:
    name = _name_of(function)
    try:
        wanted = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        msg = f"constraint {name} has no signature; give a function of the parameters it needs"
        raise SpaceError(msg, constraint=name) from error
    named = [each for each in wanted if each.kind != each.VAR_KEYWORD]
    unknown = [p.name for p in named if p.name not in parameters and p.default is p.empty]
    if unknown or any(p.kind in {p.POSITIONAL_ONLY, p.VAR_POSITIONAL} for p in named):
        what = ", ".join(unknown) or "arguments by position"
        msg = f"constraint {name} wants {what}; it is called with parameters by name: {', '.join(parameters)}"
        raise SpaceError(msg, constraint=name)
    everything = len(named) < len(wanted)
    return _called(function, parameters if everything else [p.name for p in named if p.name in parameters])


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _called(function: Callable[..., Any], taken: Sequence[str], how: _How = "by name") -> Constraint:
    name = _name_of(function)
    label = f"function {name}" if name == "<lambda>" else name
    return Constraint(label, frozenset(taken), partial(_returned, function, tuple(taken), how))


def _returned(function: Callable[..., Any], taken: tuple[str, ...], how: _How, settings: Settings) -> bool:
    values = {key: settings[key] for key in taken}
    try:
        if how == "by name":
            return bool(function(**values))
        return bool(function(*values.values()) if how == "in order" else function(values))
    except Exception as error:
        name, shown = _name_of(function), settings_text(settings)
        msg = f"constraint {name} fails for {shown}: {type(error).__name__}: {error}; let it return False"
        raise SpaceError(msg, constraint=name) from error


def _fulfilled(formula: Formula, settings: Settings) -> bool:
    try:
        return bool(formula.value(settings))
    except (TypeError, ZeroDivisionError, OverflowError, ValueError) as error:
        msg = (
            f"constraint {formula.text!r} cannot be evaluated for {settings_text(settings)}: {error}; "
            "guard it with 'and' or 'or'"
        )
        raise SpaceError(msg, constraint=formula.text) from error


def constraints_of(restrictions: Any, names: Sequence[str]) -> list[Constraint]:
    """Return the constraints that Kernel Tuner's restrictions of tunables with such names state, one or several.

    They are texts, functions, or pairs of a function and the names of what it takes.
    """
    one = isinstance(restrictions, str) or callable(restrictions) or _is_pair(restrictions)
    given = [restrictions] if one else list(restrictions or ())
    return [_restriction(each, names, alone=len(given) == 1) for each in given]


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) > 1 and callable(given[0]) and isinstance(given[1], (list, tuple))


def _restriction(given: Any, names: Sequence[str], *, alone: bool) -> Constraint:
    pair = _is_pair(given)
    function, names = (given[0], [str(each) for each in given[1]]) if pair else (given, names)
    if not callable(function):
        return read_constraint(str(given), names)
    try:
        taken = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of some built-in functions, which take values in order
        return _called(function, names, "in order")
    single = len(taken) == 1 and taken[0].kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
    # A function that is the only restriction takes a mapping even where its parameter is called like a tunable.
    if single and not pair and (taken[0].name not in names or (alone and len(names) > 1)):
        return _called(function, names, "as a mapping")
    try:
        return read_constraint(function, names)
    except SpaceError:  # it takes others by name, or none
        return _called(function, names, "in order")
