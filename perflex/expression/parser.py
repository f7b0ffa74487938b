"""From a model string to its expression tree.

A recursive-descent parser over the tokens: only what its grammar names can be written, nothing of the
string is ever handed to Python or sympy as text, and every error knows its place. Precedence and
associativity are Python's::

    sum     = product {("+" | "-") product}
    product = factor {("*" | "/") factor}
    factor  = {"+" | "-"} power
    power   = atom ["**" factor]
    atom    = number | name | function "(" sum {"," sum} ")" | "(" sum ")"
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from functools import lru_cache

from perflex.errors import ModelSyntaxError
from perflex.expression.functions import FUNCTIONS
from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum, children, evaluate

# Far below Python's recursion limit: a level takes several calls here, and in sympy.
_MAX_DEPTH = 50
_MAX_EXPONENT = 100
# Size of the written-out expression (composite functions repeat their arguments); bounds the work in sympy.
_MAX_SIZE = 20_000
# Far beyond any model; they keep hostile files from stalling the reader.
_MAX_LENGTH = 100_000
_MAX_DIGITS = 40
# Characters of the string that an error shows on either side of the place.
_SHOWN = 60

# ASCII ranges are written out: \d, \w and \s match characters of other scripts as well.
_SPACE = re.compile(r"[ \t\r\n]+")
# No sign: it is an operator, else ``1-2`` would be two numbers with nothing between them.
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z0-9_]+")
# ``**`` first: a regular expression takes the first alternative that fits.
_OPERATOR = re.compile(r"\*\*|[-+*/(),]")
_STRIDES = re.compile(r"\{[A-Za-z0-9_:;<>=.*+-]*\}")
_AFR = re.compile(r"[<>]?=?(?:[0-9]+(?:\.[0-9]+)?|[A-Za-z][A-Za-z0-9_]*)")
# The fields ``key:value`` of feature identifiers: what their values match, and how they are written.
_FIELDS = {
    "array": (_WORD, "letters, digits and _"),
    "tag": (_WORD, "letters, digits and _"),
    "lstrides": (_STRIDES, "{axis:stride;...} without blanks, e.g. {0:1;1:>15}"),
    "gstrides": (_STRIDES, "{axis:stride;...} without blanks, e.g. {0:16}"),
    "afr": (_AFR, "a comparison and a number or size parameter, e.g. >1"),
    "after": (re.compile(r"[0-9]+"), "a number of operations, e.g. 48"),
    "call": (_WORD, "a function's name: letters, digits and _"),
}
_FIELD_KEY = re.compile(f"_({'|'.join(_FIELDS)})$")


def parse_expression(text: str) -> Node:
    """Return the tree of a model string; a ModelSyntaxError shows it with a caret under the offending character."""
    return _parsed(_require_text(text))


# Trees do not change, so that all models of one expression share theirs.
@lru_cache(maxsize=128)
def _parsed(text: str) -> Node:
    parser = _Parser(text)
    node = parser.read()
    if _written_out_size(text, node, 1.0) > _MAX_SIZE:
        cause = "written out, the expression is too large; shorten it or nest fewer functions into each other"
        raise syntax_error(text, 0, cause)
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @property
    def end(self) -> int:
        """Where the last token read ends; brackets around a node belong to its place."""
        return self.tokens[self.index - 1].end

    def advance(self) -> Token:
        token = self.token
        self.index += 1
        return token

    def error(self, cause: str, position: int | None = None) -> ModelSyntaxError:
        return syntax_error(self.text, self.token.start if position is None else position, cause)

    def read(self) -> Node:
        if self.token.kind == "end":
            msg = "it is empty; write an expression such as p_madd * f_op_float32_madd"
            raise self.error(msg)
        node = self.sum()
        if self.token.kind == ")":
            msg = "this ')' has no opening '('; remove it"
            raise self.error(msg)
        if self.token.kind != "end":
            msg = f"an operator is missing before {self.token.text!r}; put one of + - * / ** here"
            raise self.error(msg)
        return node

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            msg = f"parentheses and calls are nested more than {_MAX_DEPTH} deep; flatten the expression"
            raise self.error(msg)
        start = self.token.start
        terms = [(1, self.product())]
        while self.token.kind in {"+", "-"}:
            sign = 1 if self.advance().kind == "+" else -1
            terms.append((sign, self.product()))
        self.depth -= 1
        if len(terms) == 1:
            return terms[0][1]
        return self.folded(Sum(start, self.end, tuple(terms)))

    def product(self) -> Node:
        start = self.token.start
        factors = [(1, self.factor())]
        while self.token.kind in {"*", "/"}:
            exponent = 1 if self.advance().kind == "*" else -1
            factors.append((exponent, self.factor()))
        if len(factors) == 1:
            return factors[0][1]
        return self.folded(Product(start, self.end, tuple(factors)))

    def factor(self) -> Node:
        start = self.token.start
        sign = 1
        # A loop, not a recursion: a long row of signs would exceed Python's recursion limit.
        while self.token.kind in {"+", "-"}:
            sign = sign if self.advance().kind == "+" else -sign
        # A sign binds less than a power, as in Python: -x**2 is -(x**2).
        node = self.power()
        return node if sign > 0 else self.folded(Sum(start, self.end, ((-1, node),)))

    def power(self) -> Node:
        start = self.token.start
        base = self.atom()
        if self.token.kind != "**":
            return base
        self.advance()
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            msg = f"powers are nested more than {_MAX_DEPTH} deep; flatten the expression"
            raise self.error(msg)
        # Not an atom: 2**-x is allowed, and x**y**z is x**(y**z).
        exponent = self.factor()
        self.depth -= 1
        if isinstance(exponent, Number) and abs(exponent.value) > _MAX_EXPONENT:
            msg = f"an exponent may not exceed {_MAX_EXPONENT}; write exp(...) if it is meant"
            raise self.error(msg, exponent.start)
        return self.folded(Power(start, self.end, base, exponent))

    def atom(self) -> Node:
        token = self.advance()
        match token.kind:
            case "number":
                value = float(token.text)
                if not math.isfinite(value):
                    msg = "this number is too large for double precision; use a smaller one"
                    raise self.error(msg, token.start)
                return Number(token.start, token.end, value)
            case "name":
                return self.call(token) if self.token.kind == "(" else self.name(token)
            case "(":
                node = self.sum()
                if self.token.kind != ")":
                    raise self.error(self.unclosed(token))
                self.advance()
                return node
            case "end":
                msg = "the string ends where a number, a name or '(' must follow; complete it"
                raise self.error(msg, token.start)
            case _:
                msg = f"a number, a name or '(' must stand here, not {token.text!r}"
                raise self.error(msg, token.start)

    def unclosed(self, opening: Token) -> str:
        if self.token.kind == "end":
            return f"the '(' at character {opening.start + 1} is never closed; add ')'"
        if self.token.kind == ",":
            return "a ',' only separates arguments of a function; remove it or name the function"
        return f"an operator is missing before {self.token.text!r}; put one of + - * / ** here"

    def name(self, token: Token) -> Node:
        if token.text.startswith(("f_", "p_")) and len(token.text) > 2:
            return Name(token.start, token.end, token.text)
        if token.text in FUNCTIONS:
            msg = f"the function {token.text} needs arguments; write {FUNCTIONS[token.text].signature}"
            raise self.error(msg, token.start)
        if token.text in {"f_", "p_"}:
            msg = f"the name after {token.text} is missing; complete it"
            raise self.error(msg, token.start)
        known = dict.fromkeys(t.text for t in self.tokens if t.text.startswith(("f_", "p_")) and len(t.text) > 2)
        nearest = difflib.get_close_matches(token.text, [*known, f"p_{token.text}"], n=1, cutoff=0.0)
        cause = f"the name {token.text!r} begins neither with f_ (feature) nor p_ (parameter)"
        msg = f"{cause}; did you mean {nearest[0]!r}?"
        raise self.error(msg, token.start)

    def call(self, token: Token) -> Node:
        if token.text not in FUNCTIONS:
            if token.text.startswith(("f_", "p_")):
                msg = "an operator is missing before '('; put * here to multiply"
                raise self.error(msg)
            nearest = difflib.get_close_matches(token.text.lower(), FUNCTIONS, n=1, cutoff=0.0)
            cause = f"there is no function {token.text!r}; did you mean {nearest[0]!r}?"
            msg = f"{cause} (known: {', '.join(FUNCTIONS)})"
            raise self.error(msg, token.start)
        opening = self.advance()
        arguments = [self.sum()]
        while self.token.kind == ",":
            self.advance()
            arguments.append(self.sum())
        if self.token.kind != ")":
            raise self.error(self.unclosed(opening))
        end = self.advance().end
        function = FUNCTIONS[token.text]
        wanted = function.arguments
        if len(arguments) != wanted if wanted is not None else len(arguments) < function.least:
            cause = f"{token.text} does not take {len(arguments)} argument(s); write {function.signature}"
            raise self.error(cause, token.start)
        return self.folded(Call(token.start, end, token.text, tuple(arguments)))

    def folded(self, node: Node) -> Node:
        """Return the number that a node without names stands for.

        Sympy would compute powers of integers exactly, however large.
        """
        if not all(isinstance(child, Number) for child in children(node)):
            return node
        value = float(evaluate(node, {}))
        if not math.isfinite(value):
            msg = "this constant is not a finite number; check for division by zero or overflow"
            raise self.error(msg, node.start)
        return Number(node.start, node.end, value)


def _written_out_size(text: str, node: Node, exponent: float) -> int:
    """Return the number of nodes after writing out composite functions; refuse powers that explode."""
    if isinstance(node, Power) and isinstance(node.exponent, Number):
        exponent *= max(1.0, abs(node.exponent.value))
        if exponent > _MAX_EXPONENT:
            cause = f"powers of powers multiply to more than {_MAX_EXPONENT}; write exp(...) if it is meant"
            raise syntax_error(text, node.exponent.start, cause)
    size = 1 + sum(_written_out_size(text, child, exponent) for child in children(node))
    return size * FUNCTIONS[node.function].copies if isinstance(node, Call) else size


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a model string; its kind is ``"number"``, ``"name"``, ``"end"``, or the operator or bracket itself."""

    kind: str
    text: str
    start: int
    end: int


def syntax_error(text: str, position: int, cause: str) -> ModelSyntaxError:
    """Return the error for a place in a model string: cause and fix, the string, a caret below the place."""
    first = max(0, position - _SHOWN)
    last = min(len(text), position + _SHOWN)
    shown, caret = "", 0
    for index in range(first, last):
        if index == position:
            caret = len(shown)
        character = text[index]
        # Unprintable or non-ASCII ones could shift the column of the caret, or act on the terminal.
        shown += character if character.isascii() and character.isprintable() else _escaped(character)
    if position >= last:
        caret = len(shown)
    before, after = ("..." if first else ""), ("..." if last < len(text) else "")
    message = (
        f"cannot read the model string at character {position + 1}: {cause}\n"
        f"  {before}{shown}{after}\n  {' ' * (len(before) + caret)}^"
    )
    return ModelSyntaxError(message, text=text, position=position, cause=cause)


def _escaped(character: str) -> str:
    return " " if character in "\t\r\n" else ascii(character)[1:-1]


def _require_text(text: object) -> str:
    if not isinstance(text, str):
        msg = f"a model string must be a str, not {type(text).__name__}"
        raise ModelSyntaxError(msg, text=text)
    return text


def tokenize(text: str) -> list[Token]:
    """Cut a model string into tokens, the last one of kind ``"end"``; a ModelSyntaxError names what is no token."""
    text = _require_text(text)
    if len(text) > _MAX_LENGTH:
        msg = f"a model string of {len(text)} characters is too long; the maximum is {_MAX_LENGTH}"
        raise ModelSyntaxError(msg, text=text)
    tokens = []
    position = 0
    while position < len(text):
        if space := _SPACE.match(text, position):
            position = space.end()
            continue
        token = _next_token(text, position)
        tokens.append(token)
        position = token.end
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


def _next_token(text: str, position: int) -> Token:
    if number := _NUMBER.match(text, position):
        end = number.end()
        if end - position > _MAX_DIGITS:
            raise syntax_error(text, position, f"a number has at most {_MAX_DIGITS} characters")
        if after := _WORD.match(text, end):
            cause = f"{after.group()!r} follows a number; put an operator such as * between them"
            raise syntax_error(text, end, cause)
        return Token("number", number.group(), position, end)
    if operator := _OPERATOR.match(text, position):
        return Token(operator.group(), operator.group(), position, operator.end())
    if word := _WORD.match(text, position):
        end = word.end()
        if word.group().startswith("f_"):
            end = _feature_end(text, position, end)
        return Token("name", text[position:end], position, end)
    raise syntax_error(text, position, _stray(text[position]))


def _feature_end(text: str, start: int, end: int) -> int:
    """Return where the feature identifier that begins at `start` ends, its ``key:value`` fields included."""
    while text[end : end + 1] == ":":
        # With an end position, ``$`` matches there instead of at the end of the string.
        key = _FIELD_KEY.search(text, start, end)
        if key is None:
            break
        pattern, form = _FIELDS[key.group(1)]
        value = pattern.match(text, end + 1)
        if value is None:
            cause = f"{key.group(1)}: must be followed by {form}"
            raise syntax_error(text, end + 1, cause)
        end = value.end()
        if word := _WORD.match(text, end):
            end = word.end()
    return end


def _stray(character: str) -> str:
    if character == "^":
        return "'^' is not an operator; write ** for a power"
    if character in "'\"":
        return "quotes are not allowed in a model string; write names without them"
    if character in ":{};<>=":
        return (
            f"{character!r} is allowed only in a feature's array:, tag:, lstrides:, gstrides:, afr:, after: or call: "
            "field; check the spelling of the feature"
        )
    if not character.isascii():
        return f"{character!a} is not an ASCII character; replace it"
    return f"{character!r} is not allowed; use numbers, f_ and p_ names, + - * / **, parentheses and functions"
