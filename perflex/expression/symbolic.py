"""From an expression tree to sympy, and to LaTeX. Only who asks for symbols imports this: sympy takes long to load."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import sympy

from perflex.errors import ModelSyntaxError
from perflex.expression.functions import FUNCTIONS
from perflex.expression.tree import Call, Name, Node, Number, Product, Sum, children, names

if TYPE_CHECKING:
    from collections.abc import Mapping

# Below it doubles hold every integer, so that sympy may compute with it exactly.
_LARGEST_EXACT = 2.0**53
# Enough decimal digits for any double; sympy would otherwise keep 15.
_DIGITS = 17


# In place of `perflex.expression.functions.NUMBERS`.
_SYMBOLS = SimpleNamespace(
    exp=sympy.exp, log=sympy.log, sqrt=sympy.sqrt, tanh=sympy.tanh, abs=sympy.Abs, min=sympy.Min, max=sympy.Max,
    is_zero=lambda value: sympy.Piecewise((1, sympy.Eq(value, 0)), (0, True)),
)  # fmt: skip


def real_expression(tree: Node) -> Any:
    """Return the sympy expression of a tree; a ModelSyntaxError where it simplifies to what is no real number."""
    # Otherwise the derivative of abs is left in terms of real and imaginary parts.
    expression = _expression(tree, {name: sympy.Symbol(name, real=True) for name in names(tree)})
    # Sympy cancels before it divides: 1 / (f - f) becomes its infinity zoo, without an error.
    if expression.has(sympy.I, sympy.zoo, sympy.nan, sympy.oo):
        msg = (
            f"the expression simplifies to {expression}, which is no real number; "
            "remove the division by zero, or the root or logarithm of a negative number"
        )
        raise ModelSyntaxError(msg, expression=str(expression))
    return expression


def _expression(node: Node, symbols: Mapping[str, Any]) -> Any:
    match node:
        case Number():
            exact = node.value.is_integer() and abs(node.value) < _LARGEST_EXACT
            return sympy.Integer(int(node.value)) if exact else sympy.Float(node.value, _DIGITS)
        case Name():
            return symbols[node.identifier]
    inner = [_expression(child, symbols) for child in children(node)]
    match node:
        case Sum():
            return sympy.Add(*(sign * term for (sign, _), term in zip(node.terms, inner, strict=True)))
        case Product():
            return sympy.Mul(*(factor**exponent for (exponent, _), factor in zip(node.factors, inner, strict=True)))
        case Call():
            return FUNCTIONS[node.function](_SYMBOLS, *inner)
        case _:  # a power
            return inner[0] ** inner[1]


def latex_of(output: str, tree: Node) -> str:
    """Return a model as a formula in LaTeX, without the signs around it; a sum has a line for each term.

    Terms stand in the order of the expression. Functions such as ``overlap`` are written out, as in `Model.symbolic`.
    """
    symbols = {name: sympy.Symbol(name) for name in names(tree)}
    written = {symbol: _name(name) for name, symbol in symbols.items()}

    def term(node: Any) -> str:
        return str(sympy.latex(_expression(node, symbols), symbol_names=written))

    if not isinstance(tree, Sum):
        return f"{_name(output)} = {term(tree)}"
    # A term that is a sum itself, behind a minus, must keep its brackets.
    parts = [
        (r"-\left(" + text + r"\right)") if sign < 0 and isinstance(node, Sum) else ("-" if sign < 0 else "+") + text
        for sign, node in tree.terms
        for text in [term(node)]
    ]
    lines = [parts[0].removeprefix("+"), *(rf"\quad {part}" for part in parts[1:])]
    return rf"\begin{{aligned}}{_name(output)} = {{}}&" + r" \\ &".join(lines) + r"\end{aligned}"


def _name(identifier: str) -> str:
    """Return an identifier as a symbol: its kind, ``p`` or ``f``, with the rest below it."""
    kind, _, rest = identifier.partition("_")
    marks = {"_": r"\_", "{": r"\{", "}": r"\}", "#": r"\#", "%": r"\%", "&": r"\&", "$": r"\$"}
    return rf"{kind}_{{\mathtt{{{''.join(marks.get(letter, letter) for letter in rest)}}}}}"
