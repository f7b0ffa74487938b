"""Derivatives of an expression tree by its parameters: the chain rule, node by node, in numbers.

Functions are differentiated by their arguments only (`perflex.expression.dual`), whatever stands in these: a function
of many parameters has dozens of them in an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.expression.dual import Dual
from perflex.expression.functions import FUNCTIONS
from perflex.expression.tree import Call, Name, Number, Power, Product, Sum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.expression.tree import Node, Value

# The value of a node, and its derivatives by the parameters below it.
Slopes = tuple[Any, dict[str, Any]]


def gradient(node: Node, values: Mapping[str, Value]) -> Slopes:
    """Return the value of a tree, and its derivatives by the parameters in it; arrays broadcast.

    Parameters
    ----------
    node
        The tree.
    values
        The value of each feature and parameter in it.
    """
    match node:
        case Number():
            return np.float64(node.value), {}
        case Name():
            value = np.asarray(values[node.identifier], dtype=np.float64)[()]
            return value, {node.identifier: 1.0} if node.is_parameter else {}
        case Sum():
            terms = [(sign, *gradient(term, values)) for sign, term in node.terms]
            total = sum((sign * value for sign, value, _ in terms), start=np.float64(0))
            return total, _combined([(float(sign), slopes) for sign, _, slopes in terms])
        case Product():
            return _of_product([(exponent, *gradient(factor, values)) for exponent, factor in node.factors])
        case Power():
            return _of_power(gradient(node.base, values), gradient(node.exponent, values))
        case Call():
            return _of_call(node.function, [gradient(argument, values) for argument in node.arguments])
        case _:
            msg = f"no derivative is defined for {type(node).__name__}"
            raise TypeError(msg)


def _combined(parts: Sequence[tuple[Any, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the sum of derivatives, each times its factor."""
    total: dict[str, Any] = {}
    for factor, slopes in parts:
        for name, slope in slopes.items():
            total[name] = total[name] + factor * slope if name in total else factor * slope
    return total


def _of_product(factors: Sequence[tuple[int, Any, dict[str, Any]]]) -> Slopes:
    """Return the value and the derivatives of a product of factors and divisors."""
    product: Any = np.float64(1)
    total: dict[str, Any] = {}
    for exponent, value, slopes in factors:
        outer = value if exponent > 0 else 1 / value
        inner = product if exponent > 0 else -product / value**2
        total = _combined([(outer, total), (inner, slopes)])
        product = product * outer
    return product, total


def _of_power(base: Slopes, exponent: Slopes) -> Slopes:
    """Return the value and the derivatives of a power."""
    (value, slopes), (raised, bends) = base, exponent
    power = value**raised
    parts: list[tuple[Any, Mapping[str, Any]]] = []
    if slopes:
        parts.append((raised * value ** (raised - 1), slopes))
    if bends:
        parts.append((power * np.log(value), bends))
    return power, _combined(parts)


def _of_call(function: str, arguments: Sequence[Slopes]) -> Slopes:
    """Return the value and the derivatives of a function of model strings."""
    given = [Dual(value, {place: 1.0}) if slopes else value for place, (value, slopes) in enumerate(arguments)]
    called = FUNCTIONS[function].numeric(*given)
    if not isinstance(called, Dual):
        return called, {}
    return called.value, _combined([(slope, arguments[place][1]) for place, slope in called.slopes.items()])
