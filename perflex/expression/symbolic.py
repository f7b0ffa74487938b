"""From an expression tree to sympy. Only who asks for symbols imports this: sympy takes long to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy

from perflex.errors import ModelSyntaxError
from perflex.expression.functions import FUNCTIONS
from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Below it doubles hold every integer, so that sympy may compute with it exactly.
_LARGEST_EXACT = 2.0**53
# Enough decimal digits for any double; sympy would otherwise keep 15.
_DIGITS = 17


def real_symbols(names: Iterable[str]) -> dict[str, Any]:
    """Return a sympy symbol for each name."""
    # Real: otherwise the derivative of abs is left in terms of real and imaginary parts.
    return {name: sympy.Symbol(name, real=True) for name in names}


def real_expression(tree: Node, symbols: Mapping[str, Any]) -> Any:
    """Return the sympy expression of a tree.

    Raises
    ------
    ModelSyntaxError
        It simplifies to what is no real number.
    """
    expression = to_sympy(tree, symbols)
    # Sympy cancels before it divides: 1 / (f - f) becomes its infinity zoo, without an error.
    if expression.has(sympy.I, sympy.zoo, sympy.nan, sympy.oo):
        msg = (
            f"the expression simplifies to {expression}, which is no real number; "
            "remove the division by zero, or the root or logarithm of a negative number"
        )
        raise ModelSyntaxError(msg, expression=str(expression))
    return expression


def derivative(expression: Any, symbol: Any) -> Any:
    """Return the derivative of a sympy expression."""
    return sympy.diff(expression, symbol)


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
