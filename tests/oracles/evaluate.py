"""Values of index expressions at many points at once."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from pymbolic import primitives as p

from .expressions import NotEnumerableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_FOLDS: dict[type, Any] = {
    p.Sum: np.add,
    p.Product: np.multiply,
    p.Min: np.minimum,
    p.Max: np.maximum,
    p.LogicalAnd: np.logical_and,
    p.LogicalOr: np.logical_or,
}
_COMPARISONS: dict[str, Any] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def evaluate_at(expr: Any, values: Mapping[str, NDArray[np.int64]]) -> NDArray[Any]:
    """Evaluate an integer or logical expression, one result per point.

    Raises
    ------
    NotEnumerableError
        It depends on something else than loop variables and sizes.
    """
    if p.is_constant(expr):
        length = len(next(iter(values.values()))) if values else 1
        return np.full(length, expr)
    if isinstance(expr, p.Variable):
        if expr.name not in values:
            msg = f"the value of {expr.name} is not known"
            raise NotEnumerableError(msg)
        return values[expr.name]
    return _composite(expr, values)


def _composite(expr: Any, values: Mapping[str, NDArray[np.int64]]) -> NDArray[Any]:
    def at(part: Any) -> NDArray[Any]:
        return evaluate_at(part, values)

    fold = _FOLDS.get(type(expr))
    if fold is not None:
        return np.asarray(reduce(fold, map(at, expr.children)))
    if isinstance(expr, p.FloorDiv):
        return np.floor_divide(at(expr.numerator), at(expr.denominator))
    if isinstance(expr, p.Remainder):
        return np.remainder(at(expr.numerator), at(expr.denominator))
    if isinstance(expr, p.Comparison):
        return np.asarray(_COMPARISONS[str(expr.operator)](at(expr.left), at(expr.right)))
    if isinstance(expr, p.LogicalNot):
        return np.logical_not(at(expr.child))
    if isinstance(expr, p.If):
        return np.where(at(expr.condition), at(expr.then), at(expr.else_))
    msg = f"cannot evaluate {type(expr).__name__} {expr}"
    raise NotEnumerableError(msg)
