"""Formulas of sizes in launches and shapes, such as ``ceil_div(nx, 32*tile)``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from perflex.errors import UnsupportedKernelError
from perflex.features.from_source.integers import Integer, NotAffineError, constant, is_size_name, variable

_ARITHMETIC: Mapping[type[ast.operator], Callable[[Integer, Integer], Integer]] = {
    ast.Add: lambda one, two: one.plus(two),
    ast.Sub: lambda one, two: one.plus(two, -1),
}
_NUMBERS: Mapping[type[ast.operator], Callable[[int, int], int]] = {ast.Pow: operator.pow, ast.LShift: operator.lshift}


def read_formula(formula: str | int, values: Mapping[str, object]) -> Integer:
    """Return a formula's value; names that have no value are sizes. Division rounds down.

    Raises
    ------
    UnsupportedKernelError
        It cannot be read, or is not affine in the sizes.
    """
    text = str(formula)
    try:
        return _Reader(values).read(ast.parse(text, mode="eval").body)
    except (SyntaxError, NotAffineError, ZeroDivisionError, ValueError, RecursionError) as error:
        reason = (
            str(error)
            if isinstance(error, NotAffineError)
            else "use +, -, *, /, %, ceil_div, min, max, sizes and numbers"
        )
        msg = f"cannot read the formula {text!r}; {reason}"
        raise UnsupportedKernelError(msg) from error


def read_formulas(text: str, values: Mapping[str, object]) -> tuple[Integer, ...]:
    """Return the values of formulas with commas between them, as `read_formula` does."""
    try:
        parsed = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, ValueError):
        parsed = None
    parts = map(ast.unparse, parsed.elts) if isinstance(parsed, ast.Tuple) else [text]
    return tuple(read_formula(part, values) for part in parts)


class _Reader:
    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def read(self, node: ast.expr) -> Integer:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value == int(node.value):
            return Integer.of(int(node.value))
        if isinstance(node, ast.Name):
            known = self._values.get(node.id)
            if known is None and not is_size_name(node.id):
                msg = f"{node.id!r} is no name that a size can have"
                raise NotAffineError(msg)
            return Integer.of(int(str(known))) if known is not None else Integer.of(variable(node.id))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.read(node.operand).scaled(-1)
        if isinstance(node, ast.BinOp):
            return self._binary(type(node.op), self.read(node.left), self.read(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            # Divisions round down: only that of a quotient itself can be rounded up.
            first = node.args[0] if node.args else None
            if node.func.id == "ceil" and isinstance(first, ast.BinOp) and isinstance(first.op, ast.Div):
                return self._call("ceil_div", [self.read(first.left), self.read(first.right)])
            return self._call(node.func.id, [self.read(argument) for argument in node.args])
        raise SyntaxError

    def _binary(self, kind: type[ast.operator], one: Integer, two: Integer) -> Integer:
        if kind in _ARITHMETIC:
            return _ARITHMETIC[kind](one, two)
        if kind is ast.Mult:
            return one.times(two, one.names | two.names)
        first, second = one.value, two.value
        if kind in _NUMBERS and first is not None and second is not None:
            return Integer.of(_NUMBERS[kind](first, second))
        if second is not None and kind in {ast.Div, ast.FloorDiv, ast.Mod}:
            below = one.affine.div(constant(second)).floor()
            return Integer.of(one.affine.sub(below.mul(constant(second))) if kind is ast.Mod else below)
        raise SyntaxError

    def _call(self, name: str, arguments: list[Integer]) -> Integer:
        if name in {"ceil_div", "cdiv"} and len(arguments) == 2 and (divisor := arguments[1].value) is not None:
            return Integer.of(arguments[0].affine.add(constant(divisor - 1)).div(constant(divisor)).floor())
        if name in {"min", "max"} and len(arguments) == 2:
            one, two = (each.affine for each in arguments)
            return Integer.of(one.min(two) if name == "min" else one.max(two))
        if name in {"int", "floor"} and len(arguments) == 1:
            return arguments[0]
        raise SyntaxError
