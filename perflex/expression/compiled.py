"""From an expression tree to sympy, to its derivatives, and to fast functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy

from perflex.errors import ModelSyntaxError
from perflex.expression.functions import FUNCTIONS
from perflex.expression.gradient import compiled, gradient
from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum, as_column, names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

# Below it doubles hold every integer, so that sympy may compute with it exactly.
_LARGEST_EXACT = 2.0**53
# Enough decimal digits for any double; sympy would otherwise keep 15.
_DIGITS = 17


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


@dataclass(frozen=True)
class CompiledExpression:
    """A tree with its symbolic derivatives and their compiled forms.

    Attributes
    ----------
    tree
        The expression.
    parameters
        Parameters to differentiate by, in the order of the Jacobian's columns.
    """

    tree: Node
    parameters: tuple[str, ...]

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Features of the expression, in order of appearance."""
        return tuple(name for name in names(self.tree) if name not in self.parameters)

    @cached_property
    def symbols(self) -> dict[str, Any]:
        """The sympy symbol of each feature and parameter, named like it."""
        # Real: otherwise the derivative of abs is left in terms of real and imaginary parts.
        return {name: sympy.Symbol(name, real=True) for name in (*self.features, *self.parameters)}

    @cached_property
    def symbolic(self) -> Any:
        """The expression in sympy."""
        expression = to_sympy(self.tree, self.symbols)
        # Sympy cancels before it divides: 1 / (f - f) becomes its infinity zoo, without an error.
        if expression.has(sympy.I, sympy.zoo, sympy.nan, sympy.oo):
            msg = (
                f"the expression simplifies to {expression}, which is no real number; "
                "remove the division by zero, or the root or logarithm of a negative number"
            )
            raise ModelSyntaxError(msg, expression=str(expression))
        return expression

    @cached_property
    def jacobian(self) -> tuple[Any, ...]:
        """The derivative by each parameter."""
        return tuple(sympy.diff(self.symbolic, self.symbols[name]) for name in self.parameters)

    @cached_property
    def _value(self) -> Callable[..., Any]:
        # Identifiers of features are no Python names: the generated code sees x0, x1, ... only.
        safe = {symbol: sympy.Symbol(f"x{i}", real=True) for i, symbol in enumerate(self.symbols.values())}
        return compiled(list(safe.values()), [sympy.sympify(self.symbolic).xreplace(safe)])

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return the expression's value; arrays broadcast, what is undefined becomes nan or inf."""
        with np.errstate(all="ignore"):
            return self._value(*self._arguments(values))[0]

    def derivatives(self, values: Mapping[str, Any], rows: int) -> NDArray[np.float64]:
        """Return the Jacobian, shape ``(rows, len(parameters))``."""
        jacobian = np.empty((rows, len(self.parameters)))
        with np.errstate(all="ignore"):
            _, slopes = gradient(self.tree, values)
            for index, name in enumerate(self.parameters):
                jacobian[:, index] = as_column(slopes.get(name, 0.0), rows)
        return jacobian

    def _arguments(self, values: Mapping[str, Any]) -> list[Any]:
        # Arrays of integers do not take negative powers, and Python floats raise instead of giving inf.
        return [np.asarray(values[name], dtype=np.float64)[()] for name in self.symbols]
