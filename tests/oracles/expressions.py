"""Operations and accesses of one expression, read from its tree: the rules of the brute-force oracle.

Rules, with ``t1 + t2 + ...`` taken from left to right and sums inside sums flattened (loopy prints them so):

* a product of n factors is n-1 multiplications; a factor 1 or -1 is none, constants that stand together
  at the front are one factor;
* a sum of k terms is k-1 operations; each is a multiply-add (taking one multiplication with it) when its
  right operand is a product, or when its left operand is the first term and a product; otherwise an add;
* ``x**2`` is the product of x with itself that evaluates x once, any other power is one ``pow``; ``min``
  and ``max`` of n values are n-1 operations; calls count by name;
* a branch of a conditional counts where its condition holds, if that depends on loops and sizes alone;
* subscripts are not counted.

With ``as_executed`` the rules are those of the printed C code without optimisation: -1 is a factor like any other, and
``x**2`` evaluates x twice.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from loopy.symbolic import TypeCast
from pymbolic import primitives as p
from pymbolic.mapper import UnsupportedExpressionError
from pymbolic.mapper.evaluator import EvaluationMapper, UnknownVariableError

_AGAIN = object()  # the second factor of a square: a factor that costs no evaluation
_KINDS = {p.Quotient: "div", p.FloorDiv: "floordiv", p.Remainder: "mod", p.Power: "pow", p.Min: "min", p.Max: "max"}


class NotEnumerableError(Exception):
    """The oracle cannot describe this kernel."""


@dataclass
class ExpressionReader:
    """Collects operations ``(guards, dtype, name)``, and accesses: guards, with variables or subscripts.

    Guards are conditions, each with whether it holds. Loop variables and sizes have no type; arrays and stored scalars
    are memory.
    """

    dtype_of: Callable[[str], np.dtype[Any] | None]
    is_memory: Callable[[str], bool]
    as_executed: bool = False
    operations: Counter = field(default_factory=Counter)
    accesses: list = field(default_factory=list)

    def read(self, expr, guards=()):
        parts = _parts(expr)
        if isinstance(expr, p.Sum):
            parts = self._sum(expr, guards)
        elif isinstance(expr, p.Product) or _is_square(expr):
            parts = self._factors(expr)
            self._count(expr, "mul", len(parts) - 1, guards)
        elif isinstance(expr, p.Subscript) or (isinstance(expr, p.Variable) and self.is_memory(expr.name)):
            self.access(expr, guards)
        elif isinstance(expr, p.If):
            parts = (expr.condition,)
            for branch, holds in ((expr.then, True), (expr.else_, False)):
                self.read(branch, self._where(guards, expr.condition, holds))
        else:
            self._count(expr, *_operation(expr), guards)
        for part in parts:
            self.read(part, guards)
            if isinstance(expr, p.LogicalAnd | p.LogicalOr):
                # What follows is evaluated only if this leaves the result open.
                guards = self._where(guards, part, isinstance(expr, p.LogicalAnd))

    def access(self, expr, guards=()):
        if isinstance(expr, p.Subscript) and any(map(self._loads, expr.index_tuple)):
            msg = f"indirect access {expr}"
            raise NotEnumerableError(msg)
        self.accesses.append((guards, expr))

    def _loads(self, expr):
        inner = ExpressionReader(self.dtype_of, self.is_memory)
        inner.read(expr)
        return bool(inner.accesses)

    def _where(self, guards, condition, holds):
        """Add a condition to some; one that depends on data is not known to hold or not."""
        return guards if self._loads(condition) else (*guards, (condition, holds))

    def _count(self, expr, name, count, guards):
        if count:
            self.operations[guards, self._dtype(expr), name] += count

    def _sum(self, expr, guards):
        """Count a sum and the products in it; return the factors."""
        terms = [self._factors(term) for term in _flattened(expr, p.Sum)]
        products = [len(factors) > 1 for factors in terms]
        fused = sum(products[1:]) + (products[:2] == [True, False])
        self._count(expr, "madd", fused, guards)
        self._count(expr, "mul", sum(len(factors) - 1 for factors in terms) - fused, guards)
        self._count(expr, "add", len(terms) - 1 - fused, guards)
        return [factor for factors in terms for factor in factors]

    def _factors(self, expr):
        """Return the factors that count, one for anything that is not a product of several."""
        factors = []
        for factor in _flattened(expr, p.Product):
            again = (factor.base if self.as_executed else _AGAIN) if _is_square(factor) else None
            factors += [factor] if again is None else [factor.base, again]
        if not self.as_executed:
            factors = [f for f in factors if not (_is_number(f) and abs(f) == 1)] or [1]
        while len(factors) > 1 and _is_number(factors[0]) and _is_number(factors[1]):
            factors = [factors[0] * factors[1], *factors[2:]]
        return factors

    def _dtype(self, expr):
        """Return the widest type among the values an expression reads.

        loopy widens ``fmax(a, 3)`` of a float32 to float64 because of the literal; this does not.
        """
        found = [d for d in map(self.dtype_of, sorted(_names(expr))) if d is not None]
        floating = [d for d in found if d.kind in "fc"]
        return str(np.result_type(*(floating or found))) if found else "int32"


def _is_number(expr):
    return bool(p.is_constant(expr)) and expr is not _AGAIN


def _is_square(expr):
    return isinstance(expr, p.Power) and _is_number(expr.exponent) and bool(expr.exponent == 2)


def _flattened(expr, kind):
    if not isinstance(expr, kind):
        return [expr]
    return [part for child in expr.children for part in _flattened(child, kind)]


def _operation(expr):
    """Return what computes an expression from its parts, and how often."""
    if isinstance(expr, p.Call):
        return str(getattr(expr.function, "name", expr.function)), 1
    if not (isinstance(expr, p.Variable | p.Power) or _parts(expr) or p.is_constant(expr) or expr is _AGAIN):
        msg = f"{type(expr).__name__} in {expr}"
        raise NotEnumerableError(msg)
    kind = _KINDS.get(type(expr), "")
    return kind, max(0, len(_parts(expr)) - 1) if kind else 0


def _parts(expr):
    """Return the expressions from which one is computed, whatever decides among them."""
    match expr:
        case p.Sum() | p.Product() | p.Min() | p.Max() | p.LogicalAnd() | p.LogicalOr():
            return expr.children
        case p.Call():
            return expr.parameters
        case p.Power(base, exponent) if _is_number(exponent) and exponent in {0, 1}:
            return (base,) * bool(exponent)
        case (
            p.If(_, one, other) | p.Comparison(one, _, other) | p.Power(one, other)
            | p.Quotient(one, other) | p.FloorDiv(one, other) | p.Remainder(one, other)
        ):  # fmt: skip
            return (one, other)
        case p.LogicalNot(child) | TypeCast(child=child):
            return (child,)
        case _:
            return ()


def _names(expr):
    """Names of the values an expression is computed from, those in subscripts excluded."""
    if isinstance(expr, p.Subscript | p.Variable):
        return {getattr(expr, "aggregate", expr).name}
    return set().union(*map(_names, _parts(expr)))


def _folded(function):
    return lambda mapper, expr: reduce(function, map(mapper.rec, expr.children))


class _AtAllPoints(EvaluationMapper):
    """Evaluates at many points at once what Python's own logic decides at one."""

    map_logical_and, map_logical_or = _folded(np.logical_and), _folded(np.logical_or)
    map_min, map_max = _folded(np.minimum), _folded(np.maximum)

    def map_logical_not(self, expr):
        return np.logical_not(self.rec(expr.child))

    def map_if(self, expr):
        return np.where(self.rec(expr.condition), self.rec(expr.then), self.rec(expr.else_))


def evaluate_at(expr, values):
    """Evaluate an integer or logical expression at values of its variables, some of them by point."""
    try:
        return _AtAllPoints(values)(expr)
    except (UnknownVariableError, UnsupportedExpressionError) as error:
        msg = f"cannot evaluate {expr}: {error}"
        raise NotEnumerableError(msg) from None
