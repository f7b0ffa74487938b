"""From an expression tree to sympy, and to LaTeX. Only who asks for symbols imports this: sympy takes long to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy

from perflex.errors import ModelSyntaxError
from perflex.expression.functions import FUNCTIONS
from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.expression.tree import Node

# Below it doubles hold every integer, so that sympy may compute with it exactly.
_LARGEST_EXACT = 2.0**53
# Enough decimal digits for any double; sympy would otherwise keep 15.
_DIGITS = 17


# Derivatives hold these fixed. The scale of a smooth maximum cancels, so that its own derivative adds nothing; whether
# a number is zero changes nowhere else. Written out, both would leave steps and impulses in the derivatives.
class _Held(sympy.Function):  # type: ignore[misc]  # sympy has no types
    is_real = True

    def fdiff(self, argindex: int = 1) -> Any:  # noqa: ARG002 - sympy passes the argument to differentiate by
        """Return the derivative by an argument: none."""
        return sympy.Integer(0)


class largest(_Held):  # noqa: N801 - written so by sympy's printers, and read so by numpy's functions
    """The largest of its arguments."""


class is_zero(_Held):  # noqa: N801
    """1 where its argument is zero, else 0."""

    nargs = 1

    @classmethod
    def eval(cls, value: Any) -> Any:
        """Return its value where that is known already."""
        return sympy.Integer(int(value == 0)) if value.is_number else None


def real_expression(tree: Node, symbols: Mapping[str, Any]) -> Any:
    """Return the sympy expression of a tree; a ModelSyntaxError where it simplifies to what is no real number."""
    expression = to_sympy(tree, symbols)
    # Sympy cancels before it divides: 1 / (f - f) becomes its infinity zoo, without an error.
    if expression.has(sympy.I, sympy.zoo, sympy.nan, sympy.oo):
        msg = (
            f"the expression simplifies to {expression}, which is no real number; "
            "remove the division by zero, or the root or logarithm of a negative number"
        )
        raise ModelSyntaxError(msg, expression=str(expression))
    return expression


def to_sympy(node: Node, symbols: Mapping[str, Any]) -> Any:
    """Return the sympy expression of a tree, built node by node."""
    match node:
        case Number():
            exact = node.value.is_integer() and abs(node.value) < _LARGEST_EXACT
            return sympy.Integer(int(node.value)) if exact else sympy.Float(node.value, _DIGITS)
        case Name():
            return symbols[node.identifier]
        case Sum():
            return sympy.Add(*(sign * to_sympy(term, symbols) for sign, term in node.terms))
        case Product():
            return sympy.Mul(*(to_sympy(factor, symbols) ** exponent for exponent, factor in node.factors))
        case Power():
            return to_sympy(node.base, symbols) ** to_sympy(node.exponent, symbols)
        case Call():
            return FUNCTIONS[node.function].symbolic(*(to_sympy(a, symbols) for a in node.arguments))
        case _:
            msg = f"no symbolic form is defined for {type(node).__name__}"
            raise TypeError(msg)


def latex_of(output: str, tree: Node, names: Sequence[str]) -> str:
    """Return a model as a formula in LaTeX, without the signs around it; a sum has a line for each term.

    Terms stand in the order of the expression. Functions such as ``overlap`` are written out, as in `Model.symbolic`.
    """
    symbols = {name: sympy.Symbol(name) for name in names}
    written = {symbols[name]: _name(name) for name in names}

    def term(node: Any) -> str:
        return str(sympy.latex(to_sympy(node, symbols), symbol_names=written))

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
