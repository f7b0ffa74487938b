"""What each cost of an expression adds to its value.

Costs within overlaps add something each, too. An overlap's value is its costs, each times the derivative by it, as long
as it is homogeneous of degree one in them (Euler's theorem); what is hidden adds nothing. `overlap`, which is not, has
the same parts, scaled to add up, and so has `partial_overlap`, which falls a little as a hidden cost rises.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from perflex.expression.dual import Dual
from perflex.expression.functions import FUNCTIONS, NUMBERS
from perflex.expression.tree import Call, Name, Node, Product, Sum, evaluate, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perflex.expression.tree import Value


def contributions(node: Node, values: Mapping[str, Value]) -> Iterator[tuple[int, Node, Value]]:
    """Yield sign, node and value of each innermost cost; with their signs the values add up to that of the tree."""
    if isinstance(node, Sum):
        for sign, term in node.terms:
            for inner_sign, inner, value in contributions(term, values):
                yield sign * inner_sign, inner, value
    elif isinstance(node, Call) and _overlaps_costs(node):
        yield from _of_overlap(node, values)
    elif len(overlaps := _overlaps_in(node)) == 1 and isinstance(node, Product):
        [place] = overlaps
        scale = evaluate(replace(node, factors=node.factors[:place] + node.factors[place + 1 :]), values)
        for sign, inner, value in contributions(node.factors[place][1], values):
            yield sign, inner, value * scale
    else:
        yield 1, node, evaluate(node, values)


def _overlaps_costs(node: Call) -> bool:
    """Whether a call lets costs overlap; a largest of counts has no parameters and is a count."""
    costs = FUNCTIONS[node.function].costs(node.arguments)
    return any(isinstance(inner, Name) and inner.is_parameter for cost in costs for inner in walk(cost))


def _overlaps_in(node: Node) -> list[int]:
    """Return the places of the factors of a product that are overlaps, or sums with overlaps."""
    factors = node.factors if isinstance(node, Product) else ()
    return [place for place, (exponent, factor) in enumerate(factors) if exponent > 0 and _holds_an_overlap(factor)]


def _holds_an_overlap(node: Node) -> bool:
    if isinstance(node, Sum):
        return any(_holds_an_overlap(term) for _, term in node.terms)
    return (isinstance(node, Call) and _overlaps_costs(node)) or bool(_overlaps_in(node))


def _of_overlap(node: Call, values: Mapping[str, Value]) -> Iterator[tuple[int, Node, Value]]:
    function = FUNCTIONS[node.function]
    count = len(function.costs(node.arguments))
    numbers = [np.asarray(evaluate(argument, values), dtype=np.float64) for argument in node.arguments]
    duals = [Dual(number, {place: 1.0}) for place, number in enumerate(numbers[:count])]
    with np.errstate(all="ignore"):
        found = function(NUMBERS, *duals, *numbers[count:])
        # No time at all has no slope, and a cost that is hidden takes none away.
        slopes = [np.maximum(np.nan_to_num(found.slopes.get(place, 0.0)), 0.0) for place in range(count)]
        parts = [number * slope for number, slope in zip(numbers, slopes, strict=False)]
        total = reduce(add, parts)
        scale = np.where(total != 0, found.value / total, 0.0)
        for argument, number, part in zip(node.arguments, numbers, parts, strict=False):
            share = np.where(number != 0, part * scale / number, 0.0)
            for sign, inner, value in contributions(argument, values):
                yield sign, inner, value * share
