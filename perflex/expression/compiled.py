"""An expression tree with its values, slopes and symbols."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.expression.gradient import gradient
from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum, as_column, evaluate, names, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

# Functions that have a value for all numbers.
_DEFINED_EVERYWHERE = frozenset({"exp", "tanh", "abs", "min", "max", "overlap"})


@dataclass(frozen=True)
class CompiledExpression:
    """A tree with its values, its derivatives and their symbolic forms.

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
        from perflex.expression.symbolic import real_symbols

        return real_symbols((*self.features, *self.parameters))

    @cached_property
    def symbolic(self) -> Any:
        """The expression in sympy."""
        from perflex.expression.symbolic import real_expression

        return real_expression(self.tree, self.symbols)

    @cached_property
    def jacobian(self) -> tuple[Any, ...]:
        """The derivative by each parameter."""
        from perflex.expression.symbolic import derivative

        return tuple(derivative(self.symbolic, self.symbols[name]) for name in self.parameters)

    @cached_property
    def _real(self) -> Node:
        # Sympy cancels exactly, which numbers do not; most expressions show without it that nothing can cancel.
        if any(map(_may_be_undefined, walk(self.tree))):
            _ = self.symbolic
        return self.tree

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return the expression's value; arrays broadcast, what is undefined becomes nan or inf.

        Raises
        ------
        ModelSyntaxError
            The expression simplifies to what is no real number, whatever the values.
        """
        return evaluate(self._real, values)

    def derivatives(self, values: Mapping[str, Any], rows: int) -> NDArray[np.float64]:
        """Return the Jacobian, shape ``(rows, len(parameters))``."""
        jacobian = np.empty((rows, len(self.parameters)))
        with np.errstate(all="ignore"):
            _, slopes = gradient(self.tree, values)
            for index, name in enumerate(self.parameters):
                jacobian[:, index] = as_column(slopes.get(name, 0.0), rows)
        return jacobian


def _may_be_undefined(node: Node) -> bool:
    """Return whether a node divides by, or takes a power or logarithm of, what might simplify to zero or below."""
    match node:
        case Product():
            return any(exponent < 0 and not _is_positive(factor) for exponent, factor in node.factors)
        case Power(exponent=Number(value=value)) if value >= 0 and value.is_integer():
            return False
        case Power():
            return not _is_positive(node.base)
        case Call():
            return node.function not in _DEFINED_EVERYWHERE and not all(map(_is_positive, node.arguments))
        case _:
            return False


def _is_positive(node: Node) -> bool:
    """Return whether a node is made of names and positive numbers in such a way that nothing cancels."""
    match node:
        case Number():
            return node.value > 0
        case Name():
            return True
        case Sum():
            return all(sign > 0 and _is_positive(term) for sign, term in node.terms)
        case Product():
            return all(_is_positive(factor) for _, factor in node.factors)
        case Power():
            return _is_positive(node.base)
        case _:
            return False
