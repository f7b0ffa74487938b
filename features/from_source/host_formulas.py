"""Expressions of host code as formulas of sizes, where both have one value for all sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# A cast to a real number binds like the sign that stands for it here.
_REAL = re.compile(r"\(\s*(?:float|double)\s*\)|\bstatic_cast\s*<\s*(?:float|double)\s*>")
_REAL_NUMBER = re.compile(r"\b(\d+\.\d*|\.\d+)[fF]?")
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%"}


class NotFormulaError(Exception):
    """An expression says something else, or may, than a formula can."""


@dataclass(frozen=True)
class _Read:
    """A formula, and what C computes: a whole number, a real one, a real quotient, or whether a remainder is left."""

    text: str
    kind: Literal["whole", "real", "quotient", "left"] = "whole"
    parts: tuple[str, str] = ("", "")


def host_formula(expression: str, names: Mapping[str, str]) -> str:
    """Return an expression of C as a formula of sizes, whose names the host's names stand for.

    Raises
    ------
    NotFormulaError
        It cannot be written so, or there is another name in it.
    """
    if "~" in expression:
        raise NotFormulaError
    text = _REAL_NUMBER.sub(r"\1", _REAL.sub("~", expression))
    try:
        found = _read(ast.parse(_conditional(text).strip(), mode="eval").body, names)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise NotFormulaError from error
    # The extent of a launch is whole: what follows the point is cut off.
    return _require(found, "whole", "real", "quotient").text


def _conditional(text: str) -> str:
    """Return an expression with Python's conditional expressions for those of C."""
    parts, depth, begun = [""], 0, 0
    for place, letter in enumerate(text):
        if letter == "(" and (depth := depth + 1) == 1:
            begun = place + 1
        elif letter == ")" and not (depth := depth - 1):
            parts[-1] += f"({_conditional(text[begun:place])})"
        elif not depth and letter == ",":
            parts.append("")
        elif not depth:
            parts[-1] += letter
    return ",".join(map(_one_conditional, parts))


def _one_conditional(text: str) -> str:
    condition, question, rest = _outside(text, "?")
    if not question:
        return text
    one, colon, other = _outside(rest, ":")
    if not colon or "?" in one:
        raise NotFormulaError
    return f"(({one}) if ({condition}) else ({_one_conditional(other)}))"


def _outside(text: str, sign: str) -> tuple[str, str, str]:
    """Return what is before and behind a sign outside of brackets, as `str.partition` does."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == sign and not depth:
            return text[:place], sign, text[place + 1 :]
    return text, "", ""


def _require(found: _Read, *kinds: str) -> _Read:
    if found.kind not in kinds:
        raise NotFormulaError
    return found


def _read(node: ast.expr, names: Mapping[str, str]) -> _Read:
    match node:
        case ast.Constant(value=int() | float() as number) if number == int(number):
            return _Read(str(int(number)), "whole" if isinstance(number, int) else "real")
        case ast.Name(id=name) if name in names:
            return _Read(names[name])
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return _Read(_require(_read(operand, names), "whole", "real").text, "real")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _Read(f"(-{_require(_read(operand, names), 'whole').text})")
        case ast.BinOp(left=one, op=ast.LShift() | ast.RShift() as sign, right=ast.Constant(value=int(bits))):
            shifted = _require(_read(one, names), "whole").text
            return _Read(f"({shifted} {'*' if isinstance(sign, ast.LShift) else '/'} {2**bits})")
        case ast.BinOp(left=one, op=sign, right=two) if type(sign) in _SIGNS:
            return _operation(_SIGNS[type(sign)], _read(one, names), _read(two, names))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _called(name, [_read(each, names) for each in arguments])
        case ast.Compare() | ast.IfExp():
            return _chosen(node, names)
    raise NotFormulaError


def _operation(sign: str, one: _Read, two: _Read) -> _Read:
    if sign == "+" and "left" in {one.kind, two.kind}:
        quotient, left = (two, one) if one.kind == "left" else (one, two)
        if quotient.text != "({} / {})".format(*left.parts):
            raise NotFormulaError
        return _Read("ceil_div({}, {})".format(*left.parts))
    real = "real" in {_require(one, "whole", "real").kind, _require(two, "whole", "real").kind}
    if real and sign in "/%":
        if sign == "%":
            raise NotFormulaError
        return _Read(f"({one.text} / {two.text})", "quotient", (one.text, two.text))
    return _Read(f"({one.text} {sign} {two.text})", "real" if real else "whole")


def _called(name: str, arguments: list[_Read]) -> _Read:
    match name, arguments:
        case (("ceil" | "ceilf"), [_Read(kind="quotient") as found]):
            return _Read("ceil_div({}, {})".format(*found.parts), "real")
        case (("ceil" | "ceilf" | "floor" | "floorf"), [found]):
            return _Read(_require(found, "whole", "real", *["quotient"] * (name[0] == "f")).text, "real")
        case (("min" | "max"), [one, two]):
            return _Read(f"{name}({_require(one, 'whole').text}, {_require(two, 'whole').text})")
    raise NotFormulaError


def _chosen(node: ast.Compare | ast.IfExp, names: Mapping[str, str]) -> _Read:
    """Read what rounds a quotient up: ``n % 4 != 0`` that is added, and ``n % 4 ? n / 4 + 1 : n / 4``."""
    if isinstance(node, ast.Compare):
        one, two = _remainder(node, names, negated=False)
        return _Read("", "left", (one, two))
    try:
        one, two = _remainder(node.test, names, negated=False)
        more, less = node.body, node.orelse
    except NotFormulaError:
        one, two = _remainder(node.test, names, negated=True)
        more, less = node.orelse, node.body
    texts = _read(more, names).text, _read(less, names).text
    if texts == ("1", "0"):
        return _Read("", "left", (one, two))
    if texts in {(f"(({one} / {two}) + 1)", f"({one} / {two})"), (f"(1 + ({one} / {two}))", f"({one} / {two})")}:
        return _Read(f"ceil_div({one}, {two})")
    raise NotFormulaError


def _remainder(node: ast.expr, names: Mapping[str, str], *, negated: bool) -> tuple[str, str]:
    """Return the operands of a remainder that is tested for being left, or if negated for not being left."""
    match node:
        case ast.Compare(left=tested, ops=[sign], comparators=[ast.Constant(value=0)]):
            if not isinstance(sign, ast.Eq if negated else (ast.NotEq, ast.Gt)):
                raise NotFormulaError
        case _ if not negated:
            tested = node
        case _:
            raise NotFormulaError
    match tested:
        case ast.BinOp(left=one, op=ast.Mod(), right=two):
            return _require(_read(one, names), "whole").text, _require(_read(two, names), "whole").text
    raise NotFormulaError
