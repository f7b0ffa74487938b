"""Formulas over tunables: read by Python's grammar, limited to a white list, computed on columns of numbers."""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import ModelSyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Formula", "parse_formula"]

_MAX_LENGTH = 2000
_MAX_DEPTH = 40


def _ceil_div(x: Any, y: Any) -> Any:
    return np.ceil(np.divide(x, y))


def _power_of_two(x: Any) -> Any:
    return np.exp2(np.floor(np.log2(x)))


_FUNCTIONS: Mapping[str, tuple[int | None, Callable[..., Any]]] = {
    "abs": (1, np.abs),
    "ceil": (1, np.ceil),
    "ceil_div": (2, _ceil_div),
    "exp": (1, np.exp),
    "floor": (1, np.floor),
    "gcd": (2, lambda x, y: np.gcd(np.asarray(x, dtype=np.int64), np.asarray(y, dtype=np.int64)).astype(np.float64)),
    "log": (1, np.log),
    "log2": (1, np.log2),
    "max": (None, lambda *values: reduce(np.maximum, values)),
    "min": (None, lambda *values: reduce(np.minimum, values)),
    "power_of_two": (1, _power_of_two),
    "sqrt": (1, np.sqrt),
}
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: np.divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
    ast.Pow: np.power,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@dataclass(frozen=True)
class Formula:
    """A formula over names.

    Attributes
    ----------
    text
        As written.
    names
        The names in it, each once, in order of appearance.
    """

    text: str
    names: tuple[str, ...]
    _value: Callable[[Mapping[str, Any]], Any] = field(repr=False, compare=False)

    def __call__(self, columns: Mapping[str, Any]) -> Any:
        """Return the value on columns (or single numbers) of the names; conditions give 1 or 0.

        What is undefined (a division by zero) becomes nan or inf.
        """
        with np.errstate(all="ignore"):
            return np.asarray(self._value(columns), dtype=np.float64)[()]

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_formula, (self.text,)


def parse_formula(text: str) -> Formula:
    """Read a formula.

    Parameters
    ----------
    text
        Numbers and names with ``+ - * / // % **``, comparisons, ``and or not``, ``a if condition else b``, and the
        functions ``abs ceil ceil_div exp floor gcd log log2 max min power_of_two sqrt``.

    Raises
    ------
    ModelSyntaxError
        The text is no such formula; the message names the place.
    """
    if len(text) > _MAX_LENGTH:
        msg = f"a formula is a text of at most {_MAX_LENGTH} characters; shorten it"
        raise ModelSyntaxError(msg, text=text[:_MAX_LENGTH])
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        position = getattr(error, "offset", None) or 1
        msg = f"cannot read the formula {text!r} at character {position}; check its operators and parentheses"
        raise ModelSyntaxError(msg, text=text, position=position) from error
    found: dict[str, None] = {}
    value = _Reader(text, found).read(tree.body, 0)
    return Formula(text, tuple(found), value)


class _Reader:
    """Turns the nodes of the white list into functions of the columns; refuses every other node."""

    def __init__(self, text: str, found: dict[str, None]) -> None:
        self.text = text
        self.found = found

    def error(self, node: ast.AST, cause: str) -> ModelSyntaxError:
        position = getattr(node, "col_offset", 0) + 1
        msg = f"cannot use the formula {self.text!r}: at character {position}, {cause}"
        return ModelSyntaxError(msg, text=self.text, position=position)

    def read(self, node: ast.expr, depth: int) -> Callable[[Mapping[str, Any]], Any]:  # noqa: PLR0911  # one per node
        if depth > _MAX_DEPTH:
            raise self.error(node, f"it is nested more than {_MAX_DEPTH} deep; use features for parts of it")
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return self._constant(node, value)
            case ast.Name(id=name):
                self.found[name] = None
                return lambda columns: columns[name]
            case ast.BinOp() if type(node.op) in _BINARY:
                return self._binary(node, depth)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not()):
                return self._unary(node, depth)
            case ast.BoolOp():
                return self._logical(node, depth)
            case ast.Compare():
                return self._comparison(node, depth)
            case ast.IfExp():
                test, yes, no = (self.read(part, depth + 1) for part in (node.test, node.body, node.orelse))
                return lambda columns: np.where(test(columns) != 0, yes(columns), no(columns))
            case ast.Call():
                return self._call(node, depth)
            case _:
                raise self.error(
                    node, f"{type(node).__name__} is not allowed; use arithmetic, conditions and functions"
                )

    def _constant(self, node: ast.Constant, value: float) -> Callable[[Mapping[str, Any]], Any]:
        try:
            number = np.float64(value)
        except OverflowError as error:
            raise self.error(node, "the number is too large") from error
        return lambda _: number

    def _binary(self, node: ast.BinOp, depth: int) -> Callable[[Mapping[str, Any]], Any]:
        left, right = self.read(node.left, depth + 1), self.read(node.right, depth + 1)
        function = _BINARY[type(node.op)]
        return lambda columns: function(left(columns) * 1.0, right(columns) * 1.0)

    def _unary(self, node: ast.UnaryOp, depth: int) -> Callable[[Mapping[str, Any]], Any]:
        operand = self.read(node.operand, depth + 1)
        if isinstance(node.op, ast.Not):
            return lambda columns: np.equal(operand(columns), 0)
        sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
        return lambda columns: sign * operand(columns)

    def _logical(self, node: ast.BoolOp, depth: int) -> Callable[[Mapping[str, Any]], Any]:
        parts = [self.read(value, depth + 1) for value in node.values]
        combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return lambda columns: reduce(combine, [part(columns) for part in parts])

    def _comparison(self, node: ast.Compare, depth: int) -> Callable[[Mapping[str, Any]], Any]:
        parts = [self.read(part, depth + 1) for part in (node.left, *node.comparators)]
        functions = []
        for comparison in node.ops:
            if type(comparison) not in _COMPARE:
                raise self.error(node, f"{type(comparison).__name__} is not allowed; use == != < <= > >=")
            functions.append(_COMPARE[type(comparison)])

        def value(columns: Mapping[str, Any]) -> Any:
            values = [part(columns) for part in parts]
            pairs = zip(functions, values, values[1:], strict=False)
            return reduce(np.logical_and, [function(left, right) for function, left, right in pairs])

        return value

    def _call(self, node: ast.Call, depth: int) -> Callable[[Mapping[str, Any]], Any]:
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
            raise self.error(node, f"there is no such function; known are {', '.join(_FUNCTIONS)}")
        wanted, function = _FUNCTIONS[node.func.id]
        if len(node.args) != wanted if wanted is not None else len(node.args) < 2:
            raise self.error(node, f"{node.func.id} takes {wanted or 'two or more'} argument(s), not {len(node.args)}")
        arguments = [self.read(argument, depth + 1) for argument in node.args]
        return lambda columns: function(*(argument(columns) for argument in arguments))
