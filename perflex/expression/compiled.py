"""An expression tree with its values, its slopes, its symbols, and what each cost adds to its value.

Slopes follow from the chain rule, node by node, in numbers. Functions are differentiated by their arguments only,
whatever stands in these: a function of many parameters has dozens of them in an argument.

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
from numpy.lib.mixins import NDArrayOperatorsMixin

from perflex.expression.functions import FUNCTIONS
from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum, as_column, evaluate, names, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.expression.tree import Value

    Rule = Callable[..., Any]
    from collections.abc import Iterator

# Functions that have a value for all numbers.
_DEFINED_EVERYWHERE = frozenset({"exp", "tanh", "abs", "min", "max", "overlap"})
# The value of a node, and its derivatives by the parameters below it.
Slopes = tuple[Any, dict[str, Any]]
# Derivatives by each argument, of the result and the arguments.
_RULES: Mapping[np.ufunc, tuple[Rule, ...]] = {
    np.add: (lambda _r, _x, _y: 1.0, lambda _r, _x, _y: 1.0),
    np.subtract: (lambda _r, _x, _y: 1.0, lambda _r, _x, _y: -1.0),
    np.multiply: (lambda _r, _x, y: y, lambda _r, x, _y: x),
    np.true_divide: (lambda _r, _x, y: 1.0 / y, lambda r, _x, y: -r / y),
    np.power: (lambda _r, x, y: y * x ** (y - 1.0), lambda r, x, _y: r * np.log(x)),
    # Where both are equal, the mean of the slopes on either side.
    np.maximum: (lambda _r, x, y: np.heaviside(x - y, 0.5), lambda _r, x, y: np.heaviside(y - x, 0.5)),
    np.minimum: (lambda _r, x, y: np.heaviside(y - x, 0.5), lambda _r, x, y: np.heaviside(x - y, 0.5)),
    np.negative: (lambda _r, _x: -1.0,),
    np.absolute: (lambda _r, x: np.sign(x),),
    np.exp: (lambda r, _x: r,),
    np.log: (lambda _r, x: 1.0 / x,),
    np.sqrt: (lambda r, _x: 0.5 / r,),
    np.tanh: (lambda r, _x: 1.0 - r**2,),
}


class Dual(NDArrayOperatorsMixin):
    """A value and its derivatives by name, for formulas that are written in numpy's functions and operators.

    A function without a derivative here is a TypeError; comparisons for equality give plain truth values.
    """

    __slots__ = ("slopes", "value")

    def __init__(self, value: Any, slopes: Mapping[Any, Any]) -> None:
        self.value = value
        self.slopes = slopes

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a function of numpy; called by numpy."""
        plain = [given.value if isinstance(given, Dual) else given for given in inputs]
        if ufunc is np.equal:
            return ufunc(*plain)
        if method != "__call__" or options or ufunc not in _RULES:
            return NotImplemented
        result = ufunc(*plain)
        slopes: dict[Any, Any] = {}
        for given, rule in zip(inputs, _RULES[ufunc], strict=True):
            if isinstance(given, Dual):
                factor = rule(result, *plain)
                for name, slope in given.slopes.items():
                    part = factor * slope
                    slopes[name] = slopes[name] + part if name in slopes else part
        return Dual(result, slopes)


def gradient(node: Node, values: Mapping[str, Value]) -> Slopes:
    """Return the value of a tree, and its derivatives by the parameters in it; arrays broadcast."""
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

    @cached_property
    def _real(self) -> Node:
        # Sympy cancels exactly, which numbers do not; most expressions show without it that nothing can cancel.
        if any(map(_may_be_undefined, walk(self.tree))):
            _ = self.symbolic
        return self.tree

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return the expression's value; a ModelSyntaxError where it simplifies to what is no real number."""
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
