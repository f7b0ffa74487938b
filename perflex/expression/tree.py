"""Expression trees of model strings, and their value on numbers.

A tree is what `perflex.expression.parser.parse_expression` makes of a string. Sums and products hold all
their members side by side, so a tree is never deeper than the string's parentheses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import mul, truediv
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.expression.dual import Dual, combined
from perflex.expression.functions import FUNCTIONS, NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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


def evaluate(node: Node, values: Mapping[str, Any]) -> Any:
    """Return the value of a tree at values of its features and parameters; what is undefined becomes nan or inf.

    Where some values are `Dual`, so is what depends on them.
    """
    with np.errstate(all="ignore"):
        return _evaluate(node, values)


def _evaluate(node: Node, values: Mapping[str, Any]) -> Any:
    match node:
        case Number():
            # Numpy's number: dividing by zero gives inf, where Python's float raises.
            return np.float64(node.value)
        case Name():
            value = values[node.identifier]
            # Arrays of integers do not take negative powers; Python floats raise where numpy gives inf.
            return value if isinstance(value, Dual) else np.asarray(value, dtype=np.float64)[()]
        case Sum():
            terms = [(sign, _evaluate(term, values)) for sign, term in node.terms]
            total: Any = np.float64(0)
            for sign, value in terms:
                total = total + _plain(value) if sign > 0 else total - _plain(value)
            return _with_slopes(total, terms)
        case Product():
            return _product([(exponent, _evaluate(factor, values)) for exponent, factor in node.factors])
        case Power():
            return _evaluate(node.base, values) ** _evaluate(node.exponent, values)
        case Call():
            return _called(node.function, [_evaluate(argument, values) for argument in node.arguments])
        case _:
            msg = f"no value is defined for {type(node).__name__}"
            raise TypeError(msg)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Dual) else value


def _with_slopes(value: Any, parts: Iterable[tuple[Any, Any]]) -> Any:
    slopes = [(factor, part.slopes) for factor, part in parts if isinstance(part, Dual)]
    return Dual(value, combined(slopes)) if slopes else value


def _product(factors: Sequence[tuple[int, Any]]) -> Any:
    product: Any = np.float64(1)
    parts: list[tuple[Any, Dual]] = []
    for exponent, factor in factors:
        value, step = _plain(factor), mul if exponent > 0 else truediv
        parts = [(step(before, value), part) for before, part in parts]
        if isinstance(factor, Dual):
            parts.append((product if exponent > 0 else -product / value**2, factor))
        product = step(product, value)
    return _with_slopes(product, parts)


def _called(name: str, arguments: Sequence[Any]) -> Any:
    # By its arguments alone, whatever stands in these: dozens of parameters may.
    seeds = [Dual(each.value, {place: 1.0}) if isinstance(each, Dual) else each for place, each in enumerate(arguments)]
    found = FUNCTIONS[name](NUMBERS, *seeds)
    slopes = found.slopes if isinstance(found, Dual) else {}
    return _with_slopes(_plain(found), ((slope, arguments[place]) for place, slope in slopes.items()))


def derivatives(node: Node, parameters: Sequence[str], values: Mapping[str, Any], rows: int) -> NDArray[np.float64]:
    """Return the derivatives of a tree by some of its names, shape ``(rows, len(parameters))``."""
    seeds = {name: Dual(np.asarray(values[name], dtype=np.float64)[()], {name: 1.0}) for name in parameters}
    found = evaluate(node, {**values, **seeds})
    slopes = found.slopes if isinstance(found, Dual) else {}
    jacobian = np.empty((rows, len(parameters)))
    for index, name in enumerate(parameters):
        jacobian[:, index] = slopes.get(name, 0.0)
    return jacobian


def as_column(value: Value, rows: int) -> NDArray[np.float64]:
    """Return a value as an array of shape ``(rows,)``."""
    # Fits do this for every term and step; broadcast_to takes several times as long.
    column = np.empty(rows)
    column[:] = value
    return column
