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
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.expression.functions import FUNCTIONS
from perflex.expression.tokens import Token, require_text, syntax_error, tokenize
from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum, children, evaluate

if TYPE_CHECKING:
    from perflex.errors import ModelSyntaxError

# Far below Python's recursion limit: a level takes several calls here, and in sympy.
_MAX_DEPTH = 50
_MAX_EXPONENT = 100
# Size of the written-out expression (composite functions repeat their arguments); bounds the work in sympy.
_MAX_SIZE = 20_000


def parse_expression(text: str) -> Node:
    """Return the tree of a model string.

    Raises
    ------
    ModelSyntaxError
        The string cannot be read; the message shows it with a caret under the offending character.
    """
    return _parsed(require_text(text))


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
