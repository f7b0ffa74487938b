"""An expression tree with its values, its slopes, its symbols, and what each cost adds to its value.

Costs within overlaps add something each, too. An overlap's value is its costs, each times the derivative by it, as long
as it is homogeneous of degree one in them (Euler's theorem); what is hidden adds nothing. `overlap`, which is not, has
the same parts, scaled to add up, and so has `partial_overlap`, which falls a little as a hidden cost rises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.expression.dual import Dual
from perflex.expression.functions import FUNCTIONS
from perflex.expression.tree import Call, Name, Node, Product, Sum, evaluate, names, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from perflex.expression.tree import Value


@dataclass(frozen=True)
class CompiledExpression:
    """A tree with its values, its derivatives by some parameters (columns of the Jacobian), and symbolic forms."""

    tree: Node
    parameters: tuple[str, ...]

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Features of the expression, in order of appearance."""
        return tuple(name for name in names(self.tree) if name not in self.parameters)

    @cached_property
    def symbols(self) -> dict[str, Any]:
        """The sympy symbol of each feature and parameter, named like it."""
        import sympy

        # Real: otherwise the derivative of abs is left in terms of real and imaginary parts.
        return {name: sympy.Symbol(name, real=True) for name in (*self.features, *self.parameters)}

    @cached_property
    def symbolic(self) -> Any:
        """The expression in sympy."""
        from perflex.expression.symbolic import real_expression

        return real_expression(self.tree, self.symbols)

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return the expression's value; nan or infinite where it is undefined."""
        return evaluate(self.tree, values)

    def derivatives(self, values: Mapping[str, Any], rows: int) -> NDArray[np.float64]:
        """Return the Jacobian, shape ``(rows, len(parameters))``."""
        seeds = {name: Dual(np.asarray(values[name], dtype=np.float64)[()], {name: 1.0}) for name in self.parameters}
        found: Any = evaluate(self.tree, {**values, **seeds})
        slopes = found.slopes if isinstance(found, Dual) else {}
        jacobian = np.empty((rows, len(self.parameters)))
        for index, name in enumerate(self.parameters):
            jacobian[:, index] = slopes.get(name, 0.0)
        return jacobian


def contributions(node: Node, values: Mapping[str, Value]) -> Iterator[tuple[int, Node, Value]]:
    """Yield sign, node and value of each innermost cost; with their signs the values add up to that of the tree."""
    if isinstance(node, Sum):
        for sign, term in node.terms:
            for inner_sign, inner, value in contributions(term, values):
                yield sign * inner_sign, inner, value
    elif isinstance(node, Call) and _overlaps_costs(node):
        yield from _of_overlap(node, values)
    else:
        overlaps = _overlaps_in(node)
        if isinstance(node, Product) and len(overlaps) == 1:
            [place] = overlaps
            rest = replace(node, factors=node.factors[:place] + node.factors[place + 1 :])
            scale = evaluate(rest, values)
            for sign, inner, value in contributions(node.factors[place][1], values):
                yield sign, inner, value * scale
        else:
            yield 1, node, evaluate(node, values)


def _costs(node: Call) -> tuple[Node, ...]:
    """Return the arguments that hide one another; none where nothing is hidden."""
    behind = FUNCTIONS[node.function].after_costs
    return () if behind is None else node.arguments[: len(node.arguments) - behind]


def _overlaps_costs(node: Call) -> bool:
    """Whether a call lets costs overlap; a largest of counts has no parameters and is a count."""
    return any(isinstance(inner, Name) and inner.is_parameter for cost in _costs(node) for inner in walk(cost))


def _overlaps_in(node: Node) -> list[int]:
    """Return the places of the factors of a product that are overlaps, or sums with overlaps."""
    if not isinstance(node, Product):
        return []
    return [
        place for place, (exponent, factor) in enumerate(node.factors) if exponent > 0 and _holds_an_overlap(factor)
    ]


def _holds_an_overlap(node: Node) -> bool:
    if isinstance(node, Sum):
        return any(map(_holds_an_overlap, (term for _, term in node.terms)))
    return (isinstance(node, Call) and _overlaps_costs(node)) or bool(_overlaps_in(node))


def _of_overlap(node: Call, values: Mapping[str, Value]) -> Iterator[tuple[int, Node, Value]]:
    count = len(_costs(node))
    numbers = [np.asarray(evaluate(argument, values), dtype=np.float64) for argument in node.arguments]
    duals = [Dual(number, {place: 1.0}) for place, number in enumerate(numbers[:count])]
    with np.errstate(all="ignore"):
        found = FUNCTIONS[node.function].numeric(*duals, *numbers[count:])
        # No time at all has no slope, and a cost that is hidden takes none away.
        slopes = [np.maximum(np.nan_to_num(found.slopes.get(place, 0.0)), 0.0) for place in range(count)]
        parts = [number * slope for number, slope in zip(numbers, slopes, strict=False)]
        total = reduce(add, parts)
        scale = np.where(total != 0, found.value / total, 0.0)
        for argument, number, part in zip(node.arguments, numbers, parts, strict=False):
            share = np.where(number != 0, part * scale / number, 0.0)
            for sign, inner, value in contributions(argument, values):
                yield sign, inner, value * share
