"""Formulas over names: read by Python's grammar, limited to a white list; nothing is executed.

They are constraints on the settings of a variant or the arguments of a generator, and what else a space states of
them; they mean what they mean in Python.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perflex.errors import ModelSyntaxError

Values = Mapping[str, Any]
Part = Callable[[Values], Any]

# More than anyone writes: formulas come from files, and must exhaust neither Python's stack nor the memory.
_MAX_LENGTH = 2000
# Each level takes a few frames of the interpreter, which has a thousand.
_MAX_DEPTH = 150
_MAX_EXPONENT = 64
_MAX_BITS = 64
_MAX_RANGE = 100_000

_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, group: value in group,
    ast.NotIn: lambda value, group: value not in group,
}


def _of_numbers(kind: type[ast.operator], left: Any, right: Any) -> Any:
    # A text times a large number, or a power of powers, would fill the memory.
    for value in (left, right):
        if not isinstance(value, (bool, int, float)):
            msg = f"{value!r} is no number"
            raise TypeError(msg)
    grows = kind in {ast.Pow, ast.LShift}
    if grows and (abs(right) > _MAX_EXPONENT or (isinstance(left, int) and left.bit_length() > _MAX_BITS)):
        msg = f"an exponent may not exceed {_MAX_EXPONENT}, nor what is raised {_MAX_BITS} bits"
        raise ValueError(msg)
    return _OPERATORS[kind](left, right)


def _range(*limits: Any) -> range:
    found = range(*limits)
    if len(found) > _MAX_RANGE:
        msg = f"a range may not have more than {_MAX_RANGE} numbers"
        raise ValueError(msg)
    return found


# The least and largest number of arguments of each function.
_FUNCTIONS: Mapping[str, tuple[int, int | None, Callable[..., Any]]] = {
    "abs": (1, 1, abs),
    "bool": (1, 1, bool),
    "ceil": (1, 1, math.ceil),
    "float": (1, 1, float),
    "floor": (1, 1, math.floor),
    "int": (1, 1, int),
    "max": (1, None, max),
    "min": (1, None, min),
    "range": (1, 3, _range),
    "round": (1, 2, round),
}


def _first_that(holds: bool, parts: Sequence[Part], values: Values) -> Any:
    """Return the first value that counts as true, or as false; without one the last, as ``or`` and ``and`` do.

    Parts are computed one after the other: an earlier one may guard a later one from a division by zero.
    """
    found: Any = None
    for part in parts:
        found = part(values)
        if bool(found) is holds:
            break
    return found


@dataclass(frozen=True)
class Formula:
    """A formula over names, which are listed in order of appearance."""

    text: str
    names: tuple[str, ...]
    # Of the names' values; raises what Python raises.
    value: Part = field(repr=False, compare=False)

    # The value is made of closures, which pickle cannot send to another process.
    def __reduce__(self) -> tuple[Any, ...]:
        return parse_formula, (self.text,)


def parse_formula(text: str) -> Formula:
    """Read a formula; a ModelSyntaxError names the place where the text is none.

    Numbers, texts, tuples, lists and names with the operators of arithmetic and bits, comparisons, ``in``, ``and or
    not``, ``a if condition else b``, and functions.
    """
    if len(text) > _MAX_LENGTH:
        msg = f"a constraint of {len(text)} characters is refused; {_MAX_LENGTH} are the most"
        raise ModelSyntaxError(msg, text=text[:_MAX_LENGTH])
    try:
        tree = ast.parse(text.strip(), mode="eval")
    # Null bytes raise ValueError; deep nesting RecursionError or MemoryError, as the version of Python has it.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        position = getattr(error, "offset", None) or 1
        msg = f"cannot read the constraint {text!r} at character {position}; write e.g. 'rows * columns <= 32'"
        raise ModelSyntaxError(msg, text=text, position=position) from error
    found: dict[str, None] = {}
    value = _Reader(text, found).read(tree.body, 0)
    return Formula(text, tuple(found), value)


class _Reader:
    """Turns the nodes of the white list into functions of the names' values; refuses every other node."""

    def __init__(self, text: str, found: dict[str, None]) -> None:
        self.text = text
        self.found = found

    def error(self, node: ast.AST, cause: str) -> ModelSyntaxError:
        position = getattr(node, "col_offset", 0) + 1
        msg = f"cannot use the constraint {self.text!r}: at character {position}, {cause}"
        return ModelSyntaxError(msg, text=self.text, position=position)

    def refused(self, node: ast.AST, what: str) -> ModelSyntaxError:
        cause = f"{what}, which is not allowed; use numbers, names, texts, in, arithmetic, comparisons, and, or, not, "
        return self.error(node, f"{cause}if-else and {', '.join(_FUNCTIONS)}")

    def read(self, node: ast.expr, depth: int) -> Part:  # noqa: C901, PLR0911 - one case per node
        if depth > _MAX_DEPTH:
            raise self.error(node, f"it is nested more than {_MAX_DEPTH} deep; write it in parts")
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as constant):
                return lambda _: constant
            case ast.Name(id=name):
                self.found[name] = None
                return lambda values: values[name]
            case ast.BinOp() if type(node.op) in _OPERATORS:
                kind, left, right = type(node.op), *self._all([node.left, node.right], depth)
                return lambda values: _of_numbers(kind, left(values), right(values))
            case ast.UnaryOp():
                return self._unary(node, depth)
            case ast.BoolOp():
                until, parts = isinstance(node.op, ast.Or), self._all(node.values, depth)
                return lambda values: _first_that(until, parts, values)
            case ast.Compare():
                return self._comparison(node, depth)
            case ast.IfExp():
                test, yes, no = self._all([node.test, node.body, node.orelse], depth)
                return lambda values: yes(values) if test(values) else no(values)
            case ast.Tuple() | ast.List():
                items = self._all(node.elts, depth)
                return lambda values: tuple([item(values) for item in items])
            case ast.Call():
                return self._call(node, depth)
            case _:
                raise self.refused(node, f"there is a {type(node).__name__}")

    def _all(self, nodes: Sequence[ast.expr], depth: int) -> list[Part]:
        return [self.read(node, depth + 1) for node in nodes]

    def _unary(self, node: ast.UnaryOp, depth: int) -> Part:
        operand = self.read(node.operand, depth + 1)
        if isinstance(node.op, ast.Not):
            return lambda values: not operand(values)
        if isinstance(node.op, ast.Invert):
            return lambda values: _of_numbers(ast.BitXor, operand(values), -1)
        sign = -1 if isinstance(node.op, ast.USub) else 1
        # As a product, whose operand is checked as that of any other operator.
        return lambda values: _of_numbers(ast.Mult, sign, operand(values))

    def _comparison(self, node: ast.Compare, depth: int) -> Part:
        parts = self._all([node.left, *node.comparators], depth)
        for kind in map(type, node.ops):
            if kind not in _COMPARE:
                raise self.refused(node, f"there is {kind.__name__}")
        functions = [_COMPARE[type(comparison)] for comparison in node.ops]

        # A function of its own: lambdas made in the loop would all see its last pair.
        def pair(function: Callable[[Any, Any], Any], left: Part, right: Part) -> Part:
            return lambda values: function(left(values), right(values))

        # a < b < c is a < b and b < c, as in Python.
        pairs = [pair(*entry) for entry in zip(functions, parts, parts[1:], strict=False)]
        return lambda values: _first_that(False, pairs, values)

    def _call(self, node: ast.Call, depth: int) -> Part:
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
            raise self.refused(node, "there is a call of an unknown function or with keywords")
        least, most, function = _FUNCTIONS[node.func.id]
        if not least <= len(node.args) <= (len(node.args) if most is None else most):
            wanted = least if least == most else f"{least} or more"
            raise self.error(node, f"{node.func.id} takes {wanted} argument(s), not {len(node.args)}")
        arguments = self._all(node.args, depth)
        return lambda values: function(*(argument(values) for argument in arguments))
