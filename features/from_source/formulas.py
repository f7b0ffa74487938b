"""Formulas of sizes in launches and shapes, such as ``ceil_div(nx, 32*tile)``."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from perflex.errors import UnsupportedKernelError
from perflex.features.from_source.integers import Integer, NotAffineError, constant, is_size_name, own_name, variable


def read_formula(formula: str | int, values: Mapping[str, object], *, alone: bool = False) -> Integer:
    """Return a formula's value; sizes are its names without a value. Division rounds down.

    Sizes may be multiplied where nothing else is computed with the product, and not in what stands `alone`.
    """
    text, names = str(formula), ""
    try:
        body = ast.parse(text, mode="eval").body
        names = ", ".join(sorted(_sizes_in(body, values)))
        found = _read(body, values)
        return Integer.of(found.affine) if alone else found
    except NotAffineError as error:
        hint = f"; give numbers for {names}" if names else ""
        raise UnsupportedKernelError(f"cannot read the formula {text!r}; {error}{hint}") from error
    except (SyntaxError, ArithmeticError, ValueError, RecursionError) as error:
        words = "use +, -, *, /, %, ceil_div, min, max, sizes and numbers"
        raise UnsupportedKernelError(f"cannot read the formula {text!r}; {words}") from error


def sizes_in(formula: str | int, values: Mapping[str, object]) -> set[str]:
    """Return the sizes in a formula, which are its names without a value; none of one that cannot be read."""
    try:
        return _sizes_in(ast.parse(str(formula), mode="eval").body, values)
    except (SyntaxError, ValueError, RecursionError):
        return set()


def _sizes_in(body: ast.expr, values: Mapping[str, object]) -> set[str]:
    functions = {id(each.func) for each in ast.walk(body) if isinstance(each, ast.Call)}
    named = (each for each in ast.walk(body) if isinstance(each, ast.Name) and id(each) not in functions)
    return {each.id for each in named if each.id not in values}


def _read(node: ast.expr, values: Mapping[str, object]) -> Integer:
    def read(part: ast.expr) -> Integer:
        return _read(part, values)

    match node:
        case ast.Constant(value=int() | float() as number) if number == int(number):
            return Integer.of(int(number))
        case ast.Name(id=name):
            return _named(name, values)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return read(operand).scaled(-1)
        case ast.BinOp(left=one, op=sign, right=two):
            return _operation(sign, read(one), read(two))
        # Divisions round down: only that of a quotient itself can be rounded up.
        case (
            ast.Call(func=ast.Name(id="ceil_div" | "cdiv"), args=[one, two])
            | ast.Call(func=ast.Name(id="ceil"), args=[ast.BinOp(left=one, op=ast.Div(), right=two)])
        ) if (divisor := read(two).value) is not None:
            return Integer.of(read(one).affine.add(constant(divisor - 1)).div(constant(divisor)).floor())
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[one, two]):
            return Integer.of(getattr(read(one).affine, name)(read(two).affine))
        case ast.Call(func=ast.Name(id="int" | "floor"), args=[one]):
            return read(one)
    raise SyntaxError


def _named(name: str, values: Mapping[str, object]) -> Integer:
    known = values.get(name)
    if isinstance(known, Integer):
        return known
    if known is None and not is_size_name(name):
        raise NotAffineError(f"{name!r} is no name that a size can have")
    return Integer.of(variable(name) if known is None else int(str(known)))


def _operation(sign: ast.operator, one: Integer, two: Integer) -> Integer:
    match sign, one.value, two.value:
        case ((ast.Add() | ast.Sub()), _, _):
            return one.plus(two, 1 if isinstance(sign, ast.Add) else -1)
        case ast.Mult(), _, _:
            return one.times(two, {name for name in one.names | two.names if not name.startswith(own_name(""))})
        case ast.Pow(), int(first), int(second) if second >= 0:
            return Integer.of(first**second)
        case ast.LShift(), int(first), int(second):
            return Integer.of(first << second)
        case ((ast.Div() | ast.FloorDiv() | ast.Mod()), _, int(second)):
            below = one.affine.div(constant(second)).floor()
            return Integer.of(one.affine.sub(below.mul(constant(second))) if isinstance(sign, ast.Mod) else below)
    raise SyntaxError
