"""Expression trees of model strings, and their value on numbers.

A tree is what `perflex.expression.parser.parse_expression` makes of a string. Sums and products hold all
their members side by side, so a tree is never deeper than the string's parentheses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.expression.functions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

Value = float | np.floating | np.ndarray


@dataclass(frozen=True, slots=True)
class Node:
    """Base of the nodes: where in the string the node begins and ends."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A constant; finite."""

    value: float


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A feature (``f_...``) or a parameter (``p_...``)."""

    identifier: str

    @property
    def is_parameter(self) -> bool:
        """Whether this names a parameter."""
        return self.identifier.startswith("p_")


@dataclass(frozen=True, slots=True)
class Sum(Node):
    """Terms, each with its sign."""

    terms: tuple[tuple[int, Node], ...]


@dataclass(frozen=True, slots=True)
class Product(Node):
    """Factors, each with exponent 1 or -1."""

    factors: tuple[tuple[int, Node], ...]


@dataclass(frozen=True, slots=True)
class Power(Node):
    """``base ** exponent``."""

    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function of `perflex.expression.functions.FUNCTIONS` with its arguments."""

    function: str
    arguments: tuple[Node, ...]


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below one."""
    match node:
        case Sum():
            return tuple(term for _, term in node.terms)
        case Product():
            return tuple(factor for _, factor in node.factors)
        case Power():
            return (node.base, node.exponent)
        case Call():
            return node.arguments
        case _:
            return ()


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a node with each of the nodes directly below it changed."""
    match node:
        case Sum():
            return replace(node, terms=tuple((sign, change(term)) for sign, term in node.terms))
        case Product():
            return replace(node, factors=tuple((exponent, change(factor)) for exponent, factor in node.factors))
        case Power():
            return replace(node, base=change(node.base), exponent=change(node.exponent))
        case Call():
            return replace(node, arguments=tuple(map(change, node.arguments)))
        case _:
            return node


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it, in the order of the string."""
    yield node
    for child in children(node):
        yield from walk(child)


def names(node: Node) -> tuple[str, ...]:
    """Return the features and parameters in a tree, each once, in order of first appearance."""
    return tuple(dict.fromkeys(n.identifier for n in walk(node) if isinstance(n, Name)))


def evaluate(node: Node, values: Mapping[str, Value]) -> Value:
    """Return the value of a tree at values of its features and parameters; what is undefined becomes nan or inf."""
    with np.errstate(all="ignore"):
        return _evaluate(node, values)


def _evaluate(node: Node, values: Mapping[str, Value]) -> Value:
    match node:
        case Number():
            # Numpy's number: dividing by zero gives inf, where Python's float raises.
            return np.float64(node.value)
        case Name():
            # Arrays of integers do not take negative powers; Python floats raise where numpy gives inf.
            return np.asarray(values[node.identifier], dtype=np.float64)[()]
        case Sum():
            total: Value = np.float64(0)
            for sign, term in node.terms:
                total = total + sign * _evaluate(term, values)
            return total
        case Product():
            product: Value = np.float64(1)
            for exponent, factor in node.factors:
                value = _evaluate(factor, values)
                product = product * value if exponent > 0 else product / value
            return product
        case Power():
            power: Value = _evaluate(node.base, values) ** _evaluate(node.exponent, values)
            return power
        case Call():
            called: Value = FUNCTIONS[node.function].numeric(*(_evaluate(a, values) for a in node.arguments))
            return called
        case _:
            msg = f"no value is defined for {type(node).__name__}"
            raise TypeError(msg)


def as_column(value: Value, rows: int) -> NDArray[np.float64]:
    """Return a value as an array of shape ``(rows,)``."""
    # Fits do this for every term and step; broadcast_to takes several times as long.
    column = np.empty(rows)
    column[:] = value
    return column
