"""Values with their slopes: formulas in numpy's functions and operators, evaluated on them, follow the chain rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Rule = Callable[..., Any]

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
        parts = []
        for given, rule in zip(inputs, _RULES[ufunc], strict=True):
            if isinstance(given, Dual):
                parts.append((rule(result, *plain), given.slopes))
        return Dual(result, combined(parts))


def combined(parts: Iterable[tuple[Any, Mapping[Any, Any]]]) -> dict[Any, Any]:
    """Return the sum of slopes, each times its factor."""
    total: dict[Any, Any] = {}
    for factor, slopes in parts:
        for name, slope in slopes.items():
            total[name] = total[name] + factor * slope if name in total else factor * slope
    return total
