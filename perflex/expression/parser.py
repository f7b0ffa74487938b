"""From a model string to its expression tree: a scan that refuses all but a model's words, then Python's own parser.

What the scan lets through has names, operators, brackets and calls in an order that Python reads, too. Features and
numbers are replaced by plain names of their length, so that every place in the tree is one in the string, and nothing
of the string means anything to Python.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from perflex.errors import ModelSyntaxError
from perflex.expression.functions import FUNCTIONS
from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum, children, evaluate

# Far below the limits of Python's parser, and of recursions here and in sympy.
_MAX_DEPTH = 50
_MAX_OPERATORS = 1_500
_MAX_LENGTH = 100_000
_MAX_DIGITS = 40
_MAX_EXPONENT = 100
# Sympy writes functions of overlapping costs out, which repeats their arguments up to ten times.
_MAX_OVERLAPS = 4
# Characters of the string that an error shows on either side of the place.
_SHOWN = 60

# The fields ``key:value`` of feature identifiers: what their values match, and how they are written.
_FIELDS = {
    "array": (r"\w+", "letters, digits and _"),
    "tag": (r"\w+", "letters, digits and _"),
    "lstrides": (r"\{[\w:;<>=.*+-]*\}", "{axis:stride;...} without blanks, e.g. {0:1;1:>15}"),
    "gstrides": (r"\{[\w:;<>=.*+-]*\}", "{axis:stride;...} without blanks, e.g. {0:16}"),
    "afr": (r"[<>]?=?(?:[0-9]+(?:\.[0-9]+)?|[A-Za-z]\w*)", "a comparison and a number or size parameter, e.g. >1"),
    "after": (r"[0-9]+", "a number of operations, e.g. 48"),
    "call": (r"\w+", "a function's name: letters, digits and _"),
}
_FIELD = "|".join(rf"(?<=_{key}):(?:{value})" for key, (value, _) in _FIELDS.items())
# ASCII: else \w and \d match characters of other scripts. A sign is no part of a number: 1-2 is a difference.
_TOKEN = re.compile(
    rf"""(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<name>f_\w*(?:(?:{_FIELD})\w*)*|\w+)
    |(?P<operator>\*\*|[-+*/(),])
    |(?P<space>[\ \t\r\n]+)""",
    re.ASCII | re.VERBOSE,
)
# Of features and parameters.
_NAME = re.compile(r"[fp]_.")
_WORD = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a model string; its kind is ``"number"``, ``"name"``, or the operator or bracket itself."""

    kind: str
    text: str
    start: int
    end: int


def _text_of(given: object) -> str:
    if isinstance(given, str):
        return given
    msg = f"a model string must be a str, not {type(given).__name__}"
    raise ModelSyntaxError(msg, text=given)


def tokenize(text: str) -> list[Token]:
    """Cut a model string into tokens; a ModelSyntaxError names what is no token."""
    text = _text_of(text)
    if len(text) > _MAX_LENGTH:
        msg = f"a model string of {len(text)} characters is too long; the maximum is {_MAX_LENGTH}"
        raise ModelSyntaxError(msg, text=text)
    tokens = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            _refuse(text, position, _stray(text, position))
        kind, end = str(found.lastgroup), found.end()
        if kind == "number":
            if end - position > _MAX_DIGITS:
                _refuse(text, position, f"a number has at most {_MAX_DIGITS} characters")
            if after := _WORD.match(text, end):
                _refuse(text, end, f"{after.group()!r} follows a number; put an operator such as * between them")
        if kind != "space":
            tokens.append(Token(found.group() if kind == "operator" else kind, found.group(), position, end))
        position = end
    return tokens


def _stray(text: str, position: int) -> str:
    """Return why there is no token."""
    character = text[position]
    key = text[:position].rpartition("_")[2]
    if character == ":" and key in _FIELDS:
        return f"{key}: must be followed by {_FIELDS[key][1]}"
    if character == "^":
        return "'^' is not an operator; write ** for a power"
    if character in ":{};<>=":
        return f"{character!r} is allowed only in a feature's {', '.join(_FIELDS)} field; check the spelling"
    if not character.isascii():
        return f"{character!a} is not an ASCII character; replace it"
    return f"{character!r} is not allowed; use numbers, f_ and p_ names, + - * / **, parentheses and functions"


def _refuse(text: str, position: int, cause: str) -> NoReturn:
    """Raise the error for a place in a model string: cause and fix, the string, a caret below the place."""
    first, last = max(0, position - _SHOWN), min(len(text), position + _SHOWN)
    # Unprintable or non-ASCII characters could shift the column of the caret, or act on the terminal.
    shown = [
        " " if c in "\t\r\n" else c if c.isascii() and c.isprintable() else ascii(c)[1:-1] for c in text[first:last]
    ]
    before, after = ("..." if first else ""), ("..." if last < len(text) else "")
    column = len(before) + sum(map(len, shown[: position - first]))
    message = (
        f"cannot read the model string at character {position + 1}: {cause}\n"
        f"  {before}{''.join(shown)}{after}\n  {' ' * column}^"
    )
    raise ModelSyntaxError(message, text=text, position=position, cause=cause)


def parse_expression(text: str) -> Node:
    """Return the tree of a model string; a ModelSyntaxError shows it with a caret under the offending character."""
    return _parsed(_text_of(text))


# Trees do not change, so that all models of one expression share theirs.
@lru_cache(maxsize=128)
def _parsed(text: str) -> Node:
    tokens = tokenize(text)
    _check(text, tokens)
    masked, signs, place = [" "] * len(text), 0, 0
    for token in tokens:
        width, plain = token.end - token.start, token.text
        # Of signs in a row, of which Python reads not many, one is left.
        if token.kind not in {"+", "-"}:
            signs = 0
        elif signs:
            signs = signs if plain == "+" else -signs
            masked[place], plain = " ", "+" if signs > 0 else "-"
        else:
            signs = 1 if plain == "+" else -1
        if token.kind in {"number", "name"} and plain not in FUNCTIONS:
            plain = "x".ljust(width, "_")
        masked[token.start : token.end] = plain
        place = token.start
    first = tokens[0].start
    try:
        body = ast.parse("".join(masked[first:]), mode="eval").body
    except SyntaxError as error:  # of brackets; all else was checked
        _refuse(text, first + (error.offset or 1) - 1, f"{error.msg}; each '(' needs a ')'")
    return _Reader(text, {token.start: token for token in tokens}, first).node(body)


def _check(text: str, tokens: list[Token]) -> None:
    """Refuse what is no expression, but for brackets: operands and operators must alternate."""
    if not tokens:
        _refuse(text, 0, "it is empty; write an expression such as p_madd * f_op_float32_madd")
    if sum(token.kind in {"+", "-", "*", "/", "**"} for token in tokens) > _MAX_OPERATORS:
        _refuse(text, 0, f"it has more than {_MAX_OPERATORS} operators; shorten it")
    depth, complete = 0, False  # brackets around the token, and whether an operand stands before it
    for token, following in zip(tokens, [*(each.kind for each in tokens[1:]), ""], strict=True):
        if token.kind in {"number", "name", "("}:
            if complete:
                cause = f"an operator is missing before {token.text!r}; put * here to multiply, or one of + - / **"
                _refuse(text, token.start, cause)
        elif not complete and token.kind not in {"+", "-"}:
            _refuse(text, token.start, f"a number, a name or '(' must stand here, not {token.text!r}")
        depth += (token.kind == "(") - (token.kind == ")")
        if depth > _MAX_DEPTH:
            cause = f"parentheses and calls are nested more than {_MAX_DEPTH} deep; flatten the expression"
            _refuse(text, token.start, cause)
        if token.kind == "name":
            _check_name(text, token, tokens, called=following == "(")
        complete = token.kind in {"number", "name", ")"} and token.text not in FUNCTIONS
    if not complete:
        _refuse(text, len(text), "the string ends where a number, a name or '(' must follow; complete it")


def _check_name(text: str, token: Token, tokens: list[Token], *, called: bool) -> None:
    """Refuse a name that is no feature, parameter or function."""
    name = token.text
    if _NAME.match(name) or (called and name in FUNCTIONS):
        return
    if name in FUNCTIONS:
        cause = f"the function {name} needs arguments; write {FUNCTIONS[name].signature}"
    elif called:
        nearest = difflib.get_close_matches(name.lower(), FUNCTIONS, n=1, cutoff=0.0)
        cause = f"there is no function {name!r}; did you mean {nearest[0]!r}? (known: {', '.join(FUNCTIONS)})"
    elif name in {"f_", "p_"}:
        cause = f"the name after {name} is missing; complete it"
    else:
        known = dict.fromkeys(each.text for each in tokens if _NAME.match(each.text))
        nearest = difflib.get_close_matches(name, [*known, f"p_{name}"], n=1, cutoff=0.0)
        cause = f"the name {name!r} begins neither with f_ (feature) nor p_ (parameter); did you mean {nearest[0]!r}?"
    _refuse(text, token.start, cause)


@dataclass(frozen=True)
class _Reader:
    """Makes the tree of what Python's parser made of a masked string, which begins at the string's first token."""

    text: str
    tokens: dict[int, Token]  # By their places in the string
    first: int

    def place(self, found: ast.expr) -> tuple[int, int]:
        return self.first + found.col_offset, self.first + (found.end_col_offset or 0)

    def node(self, found: ast.expr, inside: tuple[int, float, int] = (0, 1.0, 0)) -> Node:
        """Return a node inside of so many powers, with what they multiply to, and so many overlaps."""
        place = self.place(found)
        node: Node
        match found:
            case ast.Name():
                return self._operand(*place)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                node = Call(*place, name, self._arguments(place[0], name, arguments, inside))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                node = Sum(*place, ((-1, self.node(operand, inside)),))
            case ast.UnaryOp(operand=operand):
                return self.node(operand, inside)
            case ast.BinOp(op=ast.Pow()):
                node = Power(*place, *self._power(found, inside))
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                node = Sum(*place, self._chain(found, (ast.Add, ast.Sub), inside))
            case ast.BinOp():
                node = Product(*place, self._chain(found, (ast.Mult, ast.Div), inside))
            case _:
                end = self.place(found.elts[0])[1] if isinstance(found, ast.Tuple) else place[0]
                _refuse(self.text, end, "a ',' only separates arguments of a function; remove it")
        if not all(isinstance(child, Number) for child in children(node)):
            return node
        # A number: sympy would compute powers of integers exactly, however large.
        value = float(evaluate(node, {}))
        if not math.isfinite(value):
            cause = "this constant is not a finite number; check for division by zero or overflow"
            _refuse(self.text, node.start, cause)
        return Number(*place, value)

    def _operand(self, start: int, end: int) -> Node:
        token = self.tokens[start]
        if token.kind == "name":
            return Name(start, end, token.text)
        value = float(token.text)
        if not math.isfinite(value):
            _refuse(self.text, start, "this number is too large for double precision; use a smaller one")
        return Number(start, end, value)

    def _chain(
        self, found: ast.expr, kinds: tuple[type, type], inside: tuple[int, float, int]
    ) -> tuple[tuple[int, Node], ...]:
        """Return the members of a row of operators of one precedence, the second of which inverts."""
        members: list[tuple[int, Node]] = []
        while isinstance(found, ast.BinOp) and isinstance(found.op, kinds):
            members.append((1 if isinstance(found.op, kinds[0]) else -1, self.node(found.right, inside)))
            found = found.left
        return ((1, self.node(found, inside)), *reversed(members))

    def _power(self, found: ast.BinOp, inside: tuple[int, float, int]) -> tuple[Node, Node]:
        depth, power, overlaps = inside
        if depth >= _MAX_DEPTH:
            cause = f"powers are nested more than {_MAX_DEPTH} deep; flatten the expression"
            _refuse(self.text, self.place(found)[0], cause)
        exponent = self.node(found.right, (depth + 1, 1.0, overlaps))
        if isinstance(exponent, Number):
            power *= max(1.0, abs(exponent.value))
            if power > _MAX_EXPONENT:
                cause = (
                    f"an exponent, or powers of powers, may not exceed {_MAX_EXPONENT}; write exp(...) if it is meant"
                )
                _refuse(self.text, exponent.start, cause)
        return self.node(found.left, (depth + 1, power, overlaps)), exponent

    def _arguments(
        self, start: int, name: str, arguments: list[ast.expr], inside: tuple[int, float, int]
    ) -> tuple[Node, ...]:
        depth, power, overlaps = inside
        function = FUNCTIONS[name]
        overlaps += bool(function.shapes)
        if overlaps > _MAX_OVERLAPS:
            cause = f"functions of overlapping costs are nested more than {_MAX_OVERLAPS} deep; nest fewer"
            _refuse(self.text, start, cause)
        wanted, count = function.arguments, len(arguments)
        if count != wanted if wanted is not None else count < function.least:
            _refuse(self.text, start, f"{name} does not take {count} argument(s); write {function.signature}")
        return tuple(self.node(argument, (depth, power, overlaps)) for argument in arguments)
