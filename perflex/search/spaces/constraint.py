"""Constraints on settings: functions, or texts such as ``"rows * columns <= 32 and n % tile == 0"``.

Texts are parsed by Python's ``ast`` and interpreted through a white list of nodes: nothing is executed.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from perflex.errors import SpaceError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Constraint", "read_constraint"]

Settings = Mapping[str, Any]

_MAX_LENGTH = 2000
_MAX_EXPONENT = 64
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, group: value in group,
    ast.NotIn: lambda value, group: value not in group,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"abs": abs, "max": max, "min": min}


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
    tree = _parsed(given)
    needed = _names_in(tree, given, parameters)
    return Constraint(" ".join(given.split()), frozenset(needed), partial(_fulfilled, tree, given))


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


def _parsed(text: str) -> ast.expr:
    if len(text) > _MAX_LENGTH:
        msg = f"a constraint of {len(text)} characters is refused; {_MAX_LENGTH} are the most"
        raise SpaceError(msg)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        msg = f"cannot read constraint {text!r}: {getattr(error, 'msg', error)}; write e.g. 'rows * columns <= 32'"
        raise SpaceError(msg, constraint=text) from error


def _names_in(tree: ast.expr, text: str, parameters: Sequence[str]) -> list[str]:
    """Return the parameters in a tree, after checking that everything in it is allowed."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and id(node) not in called:
            if node.id not in parameters:
                near = difflib.get_close_matches(node.id, parameters, n=1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                msg = f"constraint {text!r} names {node.id!r}, which is no parameter; {hint}there are "
                raise SpaceError(msg + ", ".join(parameters), constraint=text)
            found.append(node.id)
        elif not _allowed(node):
            what = type(node).__name__
            msg = (
                f"constraint {text!r} holds a {what}, which is not allowed; use parameters, numbers, texts, "
                f"arithmetic, comparisons, and, or, not, in, if-else and {', '.join(_FUNCTIONS)}"
            )
            raise SpaceError(msg, constraint=text)
    return found


def _allowed(node: ast.AST) -> bool:
    match node:
        case ast.Call():
            return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
        case ast.Constant():
            return isinstance(node.value, (bool, int, float, str))
        case _:
            structure = (ast.BoolOp, ast.boolop, ast.IfExp, ast.Tuple, ast.List, ast.expr_context, ast.Name)
            operations = (ast.BinOp, ast.UnaryOp, ast.Compare, *_BINARY, *_UNARY, *_COMPARISONS)
            return isinstance(node, structure + operations)


def _fulfilled(tree: ast.expr, text: str, settings: Settings) -> bool:
    try:
        return bool(_value(tree, settings))
    except (TypeError, ZeroDivisionError, OverflowError, ValueError, RecursionError) as error:
        msg = f"constraint {text!r} cannot be evaluated for {_shown(settings)}: {error}; guard it with 'and' or 'or'"
        raise SpaceError(msg, constraint=text) from error


def _value(node: ast.expr, settings: Settings) -> Any:
    found: Any
    match node:
        case ast.Constant():
            found = node.value
        case ast.Name():
            found = settings[node.id]
        case ast.BinOp():
            left, right = _value(node.left, settings), _value(node.right, settings)
            _require_numbers(node.op, left, right)
            found = _BINARY[type(node.op)](left, right)
        case ast.UnaryOp():
            found = _UNARY[type(node.op)](_value(node.operand, settings))
        case ast.BoolOp():
            values = (_value(part, settings) for part in node.values)
            found = all(values) if isinstance(node.op, ast.And) else any(values)
        case ast.Compare():
            found = _compared(node, settings)
        case ast.IfExp():
            found = _value(node.body if _value(node.test, settings) else node.orelse, settings)
        case ast.Tuple() | ast.List():
            found = tuple(_value(item, settings) for item in node.elts)
        case ast.Call(func=ast.Name(id=name)):
            found = _FUNCTIONS[name](*(_value(argument, settings) for argument in node.args))
        case _:
            msg = f"no value is defined for {type(node).__name__}"
            raise TypeError(msg)
    return found


def _require_numbers(operation: ast.operator, left: Any, right: Any) -> None:
    # A text times a large number, or a power of powers, would fill the memory.
    for value in (left, right):
        if not isinstance(value, (bool, int, float)):
            msg = f"{value!r} is no number"
            raise TypeError(msg)
    if isinstance(operation, ast.Pow) and abs(right) > _MAX_EXPONENT:
        msg = f"an exponent may not exceed {_MAX_EXPONENT}"
        raise ValueError(msg)


def _compared(node: ast.Compare, settings: Settings) -> bool:
    left = _value(node.left, settings)
    for comparison, part in zip(node.ops, node.comparators, strict=True):
        right = _value(part, settings)
        if not _COMPARISONS[type(comparison)](left, right):
            return False
        left = right
    return True


def _shown(settings: Settings) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
