"""Constraints on settings: functions, or texts such as ``"rows * columns <= 32 and n % tile == 0"``.

Texts are formulas of single values, see `perflex.search.formula`: nothing is executed.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from perflex.errors import ModelSyntaxError, SpaceError
from perflex.search.formula import SCALARS, parse_formula

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.search.formula import Formula

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Constraint:
    """What settings must fulfil.

    Attributes
    ----------
    text
        As it was written, or the function's name: its name in counts of what was excluded.
    names
        Parameters that it needs: it is checked as soon as these are set.
    holds
        Whether settings fulfil it.
    """

    text: str
    names: frozenset[str]
    holds: Callable[[Settings], bool]


def read_constraint(given: object, parameters: Sequence[str]) -> Constraint:
    """Return a constraint given as a text over the parameters, or as a function that takes some of them by name.

    Raises
    ------
    SpaceError
        The text cannot be read, or names something that is no parameter.
    """
    if callable(given):
        return _from_function(given, parameters)
    if not isinstance(given, str):
        msg = f"a constraint is a text or a function of the parameters, not {type(given).__name__}"
        raise SpaceError(msg)
    try:
        formula = parse_formula(given, SCALARS)
    except ModelSyntaxError as error:
        raise SpaceError(error.message, constraint=given) from error
    for name in formula.names:
        if name not in parameters:
            near = difflib.get_close_matches(name, parameters, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            msg = f"constraint {given!r} names {name!r}, which is no parameter; {hint}there are {', '.join(parameters)}"
            raise SpaceError(msg, constraint=given)
    return Constraint(" ".join(given.split()), frozenset(formula.names), partial(_fulfilled, formula))


def _from_function(function: Callable[..., Any], parameters: Sequence[str]) -> Constraint:
    name = str(getattr(function, "__name__", type(function).__name__))
    try:
        wanted = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        msg = f"constraint {name} has no signature; give a function of the parameters it needs"
        raise SpaceError(msg, constraint=name) from error
    everything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in wanted)
    named = [parameter for parameter in wanted if parameter.kind != parameter.VAR_KEYWORD]
    unknown = [p.name for p in named if p.name not in parameters and p.default is p.empty]
    if unknown or any(p.kind in {p.POSITIONAL_ONLY, p.VAR_POSITIONAL} for p in named):
        what = ", ".join(unknown) or "arguments by position"
        msg = f"constraint {name} wants {what}; it is called with parameters by name: {', '.join(parameters)}"
        raise SpaceError(msg, constraint=name)
    taken = tuple(parameters) if everything else tuple(p.name for p in named if p.name in parameters)
    label = f"function {name}" if name == "<lambda>" else name
    return Constraint(label, frozenset(taken), partial(_returned, function, name, taken))


def _returned(function: Callable[..., Any], name: str, taken: tuple[str, ...], settings: Settings) -> bool:
    try:
        return bool(function(**{key: settings[key] for key in taken}))
    except Exception as error:
        msg = f"constraint {name} fails for {_shown(settings)}: {type(error).__name__}: {error}; let it return False"
        raise SpaceError(msg, constraint=name) from error


def _fulfilled(formula: Formula, settings: Settings) -> bool:
    try:
        # Not the formula's own call, which is for columns and turns errors into nan.
        return bool(formula.value(settings))
    except (TypeError, ZeroDivisionError, OverflowError, ValueError) as error:
        msg = (
            f"constraint {formula.text!r} cannot be evaluated for {_shown(settings)}: {error}; "
            "guard it with 'and' or 'or'"
        )
        raise SpaceError(msg, constraint=formula.text) from error


def _shown(settings: Settings) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
