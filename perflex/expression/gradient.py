"""Derivatives of an expression tree by its parameters: the chain rule, node by node, in numbers.

Sympy differentiates functions by their arguments only, once for each function and number of arguments. To let it
differentiate whole expressions takes seconds where a function of many parameters has dozens of them in an argument.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy

from perflex.expression.functions import FUNCTIONS, HELD_NUMERIC
from perflex.expression.tree import Call, Name, Number, Power, Product, Sum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from perflex.expression.tree import Node, Value

# The value of a node, and its derivatives by the parameters below it.
Slopes = tuple[Any, dict[str, Any]]


def compiled(arguments: Sequence[Any], expressions: Sequence[Any]) -> Callable[..., Any]:
    """Return a function of arrays that computes sympy expressions of the given symbols."""
    own = {"Min": FUNCTIONS["min"].numeric, "Max": FUNCTIONS["max"].numeric, **HELD_NUMERIC}
    modules: list[Any] = [own, "numpy"]
    # A written-out overlap repeats its arguments; common subexpressions are computed once.
    function: Callable[..., Any] = sympy.lambdify(list(arguments), list(expressions), modules=modules, cse=True)
    return function


@lru_cache(maxsize=64)
def _partial(function: str, arity: int) -> Callable[..., Any]:
    """Return the derivatives of a function of model strings by each of its arguments."""
    # Real: otherwise the derivative of abs is left in terms of real and imaginary parts.
    arguments = [sympy.Symbol(f"x{index}", real=True) for index in range(arity)]
    value = FUNCTIONS[function].symbolic(*arguments)
    return compiled(arguments, [sympy.diff(value, argument) for argument in arguments])


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
            arguments = [gradient(argument, values) for argument in node.arguments]
            given = [value for value, _ in arguments]
            partial = _partial(node.function, len(given))(*given) if any(slopes for _, slopes in arguments) else given
            inner = [(by, slopes) for by, (_, slopes) in zip(partial, arguments, strict=True)]
            return FUNCTIONS[node.function].numeric(*given), _combined(inner)
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
