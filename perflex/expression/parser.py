"""From a model string to its expression tree: tokens, read by the precedence of Python's operators."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from perflex.errors import ModelSyntaxError
from perflex.expression.functions import FUNCTIONS
from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum, children, evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Far below the limits of recursions here and in sympy.
_MAX_DEPTH = 50
_MAX_OPERATORS = 1_500
_MAX_LENGTH = 100_000
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
    "cores": (r"[0-9]+", "a number of cores, e.g. 4"),
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
    tokens, end = [], 0
    while end < len(text):
        found = _TOKEN.match(text, end)
        if found is None:
            _refuse(text, end, _stray(text, end))
        start, end, kind = found.start(), found.end(), str(found.lastgroup)
        if kind == "number" and (after := _WORD.match(text, end)):
            _refuse(text, end, f"{after.group()!r} follows a number; put an operator such as * between them")
        if kind != "space":
            tokens.append(Token(found.group() if kind == "operator" else kind, found.group(), start, end))
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
    # Others could shift the column of the caret, or act on the terminal.
    shown = "".join(c if " " <= c <= "~" else " " if c.isspace() else "?" for c in text[first:last])
    before, after = ("..." if first else ""), ("..." if last < len(text) else "")
    caret = " " * (len(before) + position - first) + "^"
    message = f"cannot read the model string at character {position + 1}: {cause}\n  {before}{shown}{after}\n  {caret}"
    raise ModelSyntaxError(message, text=text, position=position, cause=cause)


def parse_expression(text: str) -> Node:
    """Return the tree of a model string; a ModelSyntaxError shows it with a caret under the offending character."""
    return _parsed(_text_of(text))


# Trees do not change, so that all models of one expression share theirs.
@lru_cache(maxsize=128)
def _parsed(text: str) -> Node:
    reader = _Reader(text)
    node = reader.row("+-")
    reader.after(None, "end")
    return node


class _Reader:
    """Reads a model string token by token; each method reads what the next tokens are the beginning of."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at = text, tokenize(text), 0
        if not self.tokens:
            _refuse(text, 0, "it is empty; write an expression such as p_madd * f_op_float32_madd")
        if sum(token.kind in {"+", "-", "*", "/", "**"} for token in self.tokens) > _MAX_OPERATORS:
            _refuse(text, 0, f"it has more than {_MAX_OPERATORS} operators; shorten it")
        self.tokens.append(Token("end", "", len(text), len(text)))
        # How deep the next token lies.
        self.depth: Counter[str] = Counter()

    def row(self, operators: str) -> Node:
        """Read a sum, or a product: members, the second operator inverting those that follow it."""
        start, members, sign = self.tokens[self.at].start, [], 1
        while sign:
            members.append((sign, self.row("*/") if operators == "+-" else self.signed()))
            sign = self.sign(operators)
        kind = Sum if operators == "+-" else Product
        return members[0][1] if len(members) == 1 else self.made(kind, start, tuple(members))

    def signed(self) -> Node:
        start, sign = self.tokens[self.at].start, self.sign("+-")
        node = self.power()
        return self.made(Sum, start, ((-1, node),)) if sign < 0 else node

    def sign(self, operators: str) -> int:
        """Take an operator, or all signs in a row: 1, or -1 if they invert; 0 where there is none."""
        sign = 0
        while (token := self.take(*operators)) is not None:
            sign = (sign or 1) * (1 if token.kind == operators[0] else -1)
            if operators == "*/":
                break
        return sign

    def power(self) -> Node:
        start, base = self.tokens[self.at].start, self.operand()
        if self.take("**") is None:
            return base
        with self.inside("powers", _MAX_DEPTH, start):
            exponent = self.signed()
        if isinstance(exponent, Number) and _degree(base) * max(1.0, abs(exponent.value)) > _MAX_EXPONENT:
            cause = f"an exponent, or powers of powers, may not exceed {_MAX_EXPONENT}; write exp(...) if it is meant"
            _refuse(self.text, exponent.start, cause)
        return self.made(Power, start, base, exponent)

    def operand(self) -> Node:
        if token := self.take("("):
            return self.bracketed(token, ")")[0]
        token = self.take("number", "name")
        if token is None:
            cause = f"a number, a name or '(' must stand here, not {self.tokens[self.at].text!r}"
            if self.tokens[self.at].kind == "end":
                cause = "the string ends where a number, a name or '(' must follow; complete it"
            _refuse(self.text, self.tokens[self.at].start, cause)
        if token.kind == "number":
            if not math.isfinite(float(token.text)):
                _refuse(self.text, token.start, "this number is too large for double precision; use a smaller one")
            return Number(token.start, token.end, float(token.text))
        if _NAME.match(token.text):
            return Name(token.start, token.end, token.text)
        opening = self.take("(")
        if opening is None or token.text not in FUNCTIONS:
            _refuse(self.text, token.start, self.unknown(token.text, called=opening is not None))
        return self.call(token, opening)

    def call(self, name: Token, opening: Token) -> Node:
        function = FUNCTIONS[name.text]
        with self.inside("functions of overlapping costs", _MAX_OVERLAPS, name.start, steps=bool(function.shapes)):
            arguments = self.bracketed(opening, ")", ",")
        wanted, count = function.arguments, len(arguments)
        if count != wanted if wanted is not None else count < 2 + len(function.shapes):
            _refuse(self.text, name.start, f"{name.text} does not take {count} argument(s); write {function.signature}")
        for role, argument in zip(function.shapes, arguments[count - len(function.shapes) :], strict=True):
            if isinstance(argument, Number) and not role.allows(argument.value):
                _refuse(
                    self.text, argument.start, f"{role.name} {argument.value:g} is out of range; write {role.range}"
                )
        return self.made(Call, name.start, name.text, tuple(arguments))

    def bracketed(self, opening: Token, *kinds: str) -> list[Node]:
        """Read what is between brackets, the first of which was taken, and their end."""
        found, kind = [], ","
        with self.inside("parentheses and calls", _MAX_DEPTH, opening.start):
            while kind == ",":
                found.append(self.row("+-"))
                kind = self.after(opening, *kinds)
        return found

    def take(self, *kinds: str) -> Token | None:
        """Return the next token and go on, if it is one of these kinds."""
        token = self.tokens[self.at]
        self.at += token.kind in kinds
        return token if token.kind in kinds else None

    def after(self, opening: Token | None, *kinds: str) -> str:
        """Take what may follow an expression, of which there is no more, and return its kind."""
        token = self.tokens[self.at]
        if self.take(*kinds):
            return token.kind
        if token.kind == "end" and opening is not None:
            _refuse(self.text, opening.start, "'(' was never closed; each '(' needs a ')'")
        causes = {")": "unmatched ')'; each '(' needs a ')'"}
        causes[","] = "a ',' only separates arguments of a function; remove it"
        missing = f"an operator is missing before {token.text!r}; put * here to multiply, or one of + - / **"
        _refuse(self.text, token.start, causes.get(token.kind, missing))

    def made(self, kind: Callable[..., Node], start: int, *parts: object) -> Node:
        """Return a node up to the next token, or the number that it is."""
        node = kind(start, self.tokens[self.at - 1].end, *parts)
        if not all(isinstance(child, Number) for child in children(node)):
            return node
        # Sympy would compute powers of integers exactly, however large.
        value = float(evaluate(node, {}))
        if not math.isfinite(value):
            cause = "this constant is not a finite number; check for division by zero or overflow"
            _refuse(self.text, start, cause)
        return Number(node.start, node.end, value)

    @contextmanager
    def inside(self, what: str, most: int, start: int, *, steps: int = 1) -> Iterator[None]:
        self.depth[what] += steps
        if self.depth[what] > most:
            _refuse(self.text, start, f"{what} are nested more than {most} deep; flatten the expression")
        yield
        self.depth[what] -= steps

    def unknown(self, name: str, *, called: bool) -> str:
        """Return what is wrong with a name that is no feature, no parameter and no called function."""
        if name in FUNCTIONS:
            return f"the function {name} needs arguments; write {FUNCTIONS[name].signature}"
        if called:
            nearest = difflib.get_close_matches(name.lower(), FUNCTIONS, n=1, cutoff=0.0)
            return f"there is no function {name!r}; did you mean {nearest[0]!r}? (known: {', '.join(FUNCTIONS)})"
        if name in {"f_", "p_"}:
            return f"the name after {name} is missing; complete it"
        known = dict.fromkeys(each.text for each in self.tokens if _NAME.match(each.text))
        nearest = difflib.get_close_matches(name, [*known, f"p_{name}"], n=1, cutoff=0.0)
        return f"the name {name!r} begins neither with f_ (feature) nor p_ (parameter); did you mean {nearest[0]!r}?"


def _degree(node: Node) -> float:
    """Return what the exponents of powers of powers multiply to, at most."""
    if isinstance(node, Power):
        return _degree(node.base) * (max(1.0, abs(node.exponent.value)) if isinstance(node.exponent, Number) else 1.0)
    return max(map(_degree, children(node)), default=1.0)
