"""Formulas over names: read by Python's grammar, limited to a white list; nothing is executed.

One reader serves two kinds of arithmetic: `COLUMNS` for the features and conditions of described kernels, which are
computed for all variants at once, and `SCALARS` for constraints on the settings of one variant, which mean what they
mean in Python.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

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

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_BITS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
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
}


@dataclass(frozen=True)
class Arithmetic:
    """What the parts of a formula mean; `what` and `example` are for messages.

    `every`, `some` and `choose` are ``and``, ``or`` and ``if else`` of parts that are not computed yet; functions have
    their least and largest number of arguments. With `texts` there are texts, tuples and lists, too.
    """

    what: str
    example: str
    constant: Callable[[Any], Any]
    operators: Mapping[type[ast.operator], Callable[[Any, Any], Any]]
    binary: Callable[[type[ast.operator], Any, Any], Any]
    compare: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]
    negate: Callable[[Any], Any]
    every: Callable[[Sequence[Part], Values], Any]
    some: Callable[[Sequence[Part], Values], Any]
    choose: Callable[[Part, Part, Part, Values], Any]
    functions: Mapping[str, tuple[int, int | None, Callable[..., Any]]]
    texts: bool = False


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
    return SCALARS.operators[kind](left, right)


def _range(*limits: Any) -> range:
    found = range(*limits)
    if len(found) > _MAX_RANGE:
        msg = f"a range may not have more than {_MAX_RANGE} numbers"
        raise ValueError(msg)
    return found


def _first_that(holds: bool, parts: Sequence[Part], values: Values) -> Any:
    """Return the first value that counts as true, or as false; without one the last, as ``or`` and ``and`` do."""
    found: Any = None
    for part in parts:
        found = part(values)
        if bool(found) is holds:
            break
    return found


def _gcd(x: Any, y: Any) -> Any:
    # numpy's gcd takes integers only; columns are floats.
    return np.gcd(np.asarray(x, dtype=np.int64), np.asarray(y, dtype=np.int64)).astype(np.float64)


SCALARS = Arithmetic(
    what="constraint",
    example="rows * columns <= 32",
    constant=lambda value: value,
    operators={**_BINARY, **_BITS},
    binary=_of_numbers,
    compare={
        **_COMPARE,
        ast.In: lambda value, group: value in group,
        ast.NotIn: lambda value, group: value not in group,
    },
    negate=operator.not_,
    # Parts are computed one after the other: an earlier one may guard a later one from a division by zero.
    every=lambda parts, values: _first_that(False, parts, values),
    some=lambda parts, values: _first_that(True, parts, values),
    choose=lambda test, yes, no, values: yes(values) if test(values) else no(values),
    functions={
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
    },
    texts=True,
)

COLUMNS = Arithmetic(
    what="formula",
    example="items * depth / 32",
    # Constants of numpy: 1 / 0 of two Python numbers would raise an error.
    constant=np.float64,
    operators=_BINARY,
    # numpy's own operators, on floats: a division by zero becomes nan or inf instead of an error.
    binary=lambda kind, left, right: _BINARY[kind](np.multiply(left, 1.0), np.multiply(right, 1.0)),
    compare=_COMPARE,
    negate=lambda value: np.equal(value, 0),
    # Rows differ in what holds, so all parts are computed: an earlier one guards no later one.
    every=lambda parts, values: reduce(np.logical_and, [part(values) for part in parts]),
    some=lambda parts, values: reduce(np.logical_or, [part(values) for part in parts]),
    choose=lambda test, yes, no, values: np.where(test(values) != 0, yes(values), no(values)),
    functions={
        "abs": (1, 1, np.abs),
        "ceil": (1, 1, np.ceil),
        "ceil_div": (2, 2, lambda x, y: np.ceil(np.divide(x, y))),
        "exp": (1, 1, np.exp),
        "floor": (1, 1, np.floor),
        "gcd": (2, 2, _gcd),
        "log": (1, 1, np.log),
        "log2": (1, 1, np.log2),
        "max": (2, None, lambda *values: reduce(np.maximum, values)),
        "min": (2, None, lambda *values: reduce(np.minimum, values)),
        "power_of_two": (1, 1, lambda x: np.exp2(np.floor(np.log2(x)))),
        "sqrt": (1, 1, np.sqrt),
    },
)


@dataclass(frozen=True)
class Formula:
    """A formula over names, which are listed in order of appearance; `arithmetic` is ``what`` of its arithmetic."""

    text: str
    names: tuple[str, ...]
    value: Part = field(repr=False, compare=False)
    arithmetic: str = COLUMNS.what

    def __call__(self, columns: Values) -> Any:
        """Return the value on columns (or single numbers) of the names, nan or inf where it is undefined."""
        with np.errstate(all="ignore"):
            # [()] makes a number of an array without axes, and leaves others alone.
            return np.asarray(self.value(columns), dtype=np.float64)[()]

    # The value is made of closures, which pickle cannot send to another process.
    def __reduce__(self) -> tuple[Any, ...]:
        # An arithmetic holds functions that cannot be pickled: its name does.
        return _parsed_again, (self.text, self.arithmetic)


def _parsed_again(text: str, arithmetic: str) -> Formula:
    return parse_formula(text, SCALARS if arithmetic == SCALARS.what else COLUMNS)


def parse_formula(text: str, arithmetic: Arithmetic = COLUMNS) -> Formula:
    """Read a formula; a ModelSyntaxError names the place where the text is none.

    Numbers and names with ``+ - * / // % **``, comparisons, ``and or not``, ``a if condition else b``, and functions.
    """
    if len(text) > _MAX_LENGTH:
        msg = f"a {arithmetic.what} of {len(text)} characters is refused; {_MAX_LENGTH} are the most"
        raise ModelSyntaxError(msg, text=text[:_MAX_LENGTH])
    try:
        tree = ast.parse(text.strip(), mode="eval")
    # Null bytes raise ValueError; deep nesting RecursionError or MemoryError, as the version of Python has it.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        position = getattr(error, "offset", None) or 1
        msg = f"cannot read the {arithmetic.what} {text!r} at character {position}; write e.g. {arithmetic.example!r}"
        raise ModelSyntaxError(msg, text=text, position=position) from error
    found: dict[str, None] = {}
    value = _Reader(text, arithmetic, found).read(tree.body, 0)
    return Formula(text, tuple(found), value, arithmetic.what)


class _Reader:
    """Turns the nodes of the white list into functions of the names' values; refuses every other node."""

    def __init__(self, text: str, arithmetic: Arithmetic, found: dict[str, None]) -> None:
        self.text = text
        self.arithmetic = arithmetic
        self.found = found

    def error(self, node: ast.AST, cause: str) -> ModelSyntaxError:
        position = getattr(node, "col_offset", 0) + 1
        msg = f"cannot use the {self.arithmetic.what} {self.text!r}: at character {position}, {cause}"
        return ModelSyntaxError(msg, text=self.text, position=position)

    def refused(self, node: ast.AST, what: str) -> ModelSyntaxError:
        texts = "texts, in, " if self.arithmetic.texts else ""
        functions = ", ".join(self.arithmetic.functions)
        cause = f"{what}, which is not allowed; use numbers, names, {texts}arithmetic, comparisons, and, or, not, "
        return self.error(node, f"{cause}if-else and {functions}")

    def read(self, node: ast.expr, depth: int) -> Part:  # noqa: C901, PLR0911 - one case per node
        if depth > _MAX_DEPTH:
            raise self.error(node, f"it is nested more than {_MAX_DEPTH} deep; write it in parts")
        arithmetic = self.arithmetic
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return self._constant(node)
            case ast.Constant(value=str(text)) if arithmetic.texts:
                return lambda _: text
            case ast.Name(id=name):
                self.found[name] = None
                return lambda values: values[name]
            case ast.BinOp() if type(node.op) in arithmetic.operators:
                kind, left, right = type(node.op), *self._all([node.left, node.right], depth)
                return lambda values: arithmetic.binary(kind, left(values), right(values))
            case ast.UnaryOp() if not isinstance(node.op, ast.Invert) or ast.BitXor in arithmetic.operators:
                return self._unary(node, depth)
            case ast.BoolOp():
                combine = arithmetic.every if isinstance(node.op, ast.And) else arithmetic.some
                parts = self._all(node.values, depth)
                return lambda values: combine(parts, values)
            case ast.Compare():
                return self._comparison(node, depth)
            case ast.IfExp():
                test, yes, no = self._all([node.test, node.body, node.orelse], depth)
                return lambda values: arithmetic.choose(test, yes, no, values)
            case ast.Tuple() | ast.List() if arithmetic.texts:
                items = self._all(node.elts, depth)
                return lambda values: tuple([item(values) for item in items])
            case ast.Call():
                return self._call(node, depth)
            case _:
                raise self.refused(node, f"there is a {type(node).__name__}")

    def _all(self, nodes: Sequence[ast.expr], depth: int) -> list[Part]:
        return [self.read(node, depth + 1) for node in nodes]

    def _constant(self, node: ast.Constant) -> Part:
        try:
            number = self.arithmetic.constant(node.value)
        except OverflowError as error:
            raise self.error(node, "the number is too large") from error
        return lambda _: number

    def _unary(self, node: ast.UnaryOp, depth: int) -> Part:
        operand = self.read(node.operand, depth + 1)
        if isinstance(node.op, ast.Not):
            return lambda values: self.arithmetic.negate(operand(values))
        if isinstance(node.op, ast.Invert):
            return lambda values: self.arithmetic.binary(ast.BitXor, operand(values), -1)
        sign = self.arithmetic.constant(-1 if isinstance(node.op, ast.USub) else 1)
        # As a product: `binary` then checks the operand as for any other operator.
        return lambda values: self.arithmetic.binary(ast.Mult, sign, operand(values))

    def _comparison(self, node: ast.Compare, depth: int) -> Part:
        parts = self._all([node.left, *node.comparators], depth)
        for kind in map(type, node.ops):
            if kind not in self.arithmetic.compare:
                raise self.refused(node, f"there is {kind.__name__}")
        functions = [self.arithmetic.compare[type(comparison)] for comparison in node.ops]

        # A function of its own: lambdas made in the loop would all see its last pair.
        def pair(function: Callable[[Any, Any], Any], left: Part, right: Part) -> Part:
            return lambda values: function(left(values), right(values))

        # a < b < c is a < b and b < c, as in Python.
        pairs = [pair(*entry) for entry in zip(functions, parts, parts[1:], strict=False)]
        return lambda values: self.arithmetic.every(pairs, values)

    def _call(self, node: ast.Call, depth: int) -> Part:
        known = self.arithmetic.functions
        if not isinstance(node.func, ast.Name) or node.func.id not in known or node.keywords:
            raise self.refused(node, "there is a call of an unknown function or with keywords")
        least, most, function = known[node.func.id]
        if not least <= len(node.args) <= (len(node.args) if most is None else most):
            wanted = least if least == most else f"{least} or more"
            raise self.error(node, f"{node.func.id} takes {wanted} argument(s), not {len(node.args)}")
        arguments = self._all(node.args, depth)
        return lambda values: function(*(argument(values) for argument in arguments))
