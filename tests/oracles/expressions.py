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
from pymbolic import primitives as p
from pymbolic.mapper import UnsupportedExpressionError
from pymbolic.mapper.evaluator import EvaluationMapper, UnknownVariableError

Guards = tuple[tuple[Any, bool], ...]
_AGAIN = object()  # the second factor of a square: a factor that costs no evaluation


class NotEnumerableError(Exception):
    """The oracle cannot describe this kernel."""


@dataclass
class Contents:
    """What evaluating an expression once does."""

    operations: Counter[tuple[Guards, str, str]] = field(default_factory=Counter)
    accesses: list[tuple[Guards, Any]] = field(default_factory=list)


@dataclass
class ExpressionReader:
    """Collects operations ``(guards, dtype, name)`` and accessed variables or subscripts.

    Loop variables and sizes have no type; arrays and stored scalars are memory.
    """

    dtype_of: Callable[[str], np.dtype[Any] | None]
    is_memory: Callable[[str], bool]
    as_executed: bool = False
    contents: Contents = field(default_factory=Contents)

    def read(self, expr, guards=()):
        if isinstance(expr, p.Sum):
            self._sum(expr, guards)
        elif isinstance(expr, p.Product):
            self._product(expr, guards)
        elif isinstance(expr, p.Subscript):
            self.access(expr, guards)
        elif isinstance(expr, p.Variable):
            if self.is_memory(expr.name):
                self.access(expr, guards)
        elif isinstance(expr, p.Power):
            self._power(expr, guards)
        elif isinstance(expr, p.Call):
            self._count(expr, _function_name(expr), 1, guards)
            self._all(expr.parameters, guards)
        elif isinstance(expr, p.Min | p.Max):
            self._count(expr, "min" if isinstance(expr, p.Min) else "max", len(expr.children) - 1, guards)
            self._all(expr.children, guards)
        elif isinstance(expr, p.If):
            self.read(expr.condition, guards)
            self.read(expr.then, self._where(guards, expr.condition, holds=True))
            self.read(expr.else_, self._where(guards, expr.condition, holds=False))
        else:
            self._others(expr, guards)

    def _others(self, expr, guards):
        if isinstance(expr, p.Quotient):
            self._count(expr, "div", 1, guards)
            self._all((expr.numerator, expr.denominator), guards)
        elif isinstance(expr, p.FloorDiv | p.Remainder):
            self._count(expr, "floordiv" if isinstance(expr, p.FloorDiv) else "mod", 1, guards)
            self._all((expr.numerator, expr.denominator), guards)
        elif isinstance(expr, p.Comparison):
            self._all((expr.left, expr.right), guards)
        elif isinstance(expr, p.LogicalAnd | p.LogicalOr):
            for child in expr.children:
                self.read(child, guards)
                # What follows is evaluated only if this leaves the result open.
                guards = self._where(guards, child, holds=isinstance(expr, p.LogicalAnd))
        elif isinstance(expr, p.LogicalNot) or type(expr).__name__ == "TypeCast":
            self.read(expr.child, guards)
        elif not (_is_number(expr) or expr is _AGAIN):
            msg = f"{type(expr).__name__} in {expr}"
            raise NotEnumerableError(msg)

    def _where(self, guards, condition, *, holds):
        """Add a condition to some; one that depends on data is not known to hold or not."""
        inner = ExpressionReader(self.dtype_of, self.is_memory)
        inner.read(condition)
        return (*guards, (condition, holds)) if not inner.contents.accesses else guards

    def _all(self, parts, guards):
        for part in parts:
            self.read(part, guards)

    def access(self, expr, guards):
        if isinstance(expr, p.Subscript):
            inner = ExpressionReader(self.dtype_of, self.is_memory)
            inner._all(expr.index_tuple, ())
            if inner.contents.accesses:
                msg = f"indirect access {expr}"
                raise NotEnumerableError(msg)
        self.contents.accesses.append((guards, expr))

    def _count(self, expr, name, count, guards):
        if count:
            self.contents.operations[guards, self.dtype(expr), name] += count

    def _power(self, expr, guards):
        if _is_square(expr):
            self._product(expr, guards)
        elif _is_number(expr.exponent) and expr.exponent in {0, 1}:
            self._all((expr.base,) if expr.exponent else (), guards)
        else:
            self._count(expr, "pow", 1, guards)
            self._all((expr.base, expr.exponent), guards)

    def _product(self, expr, guards):
        factors = self._factors(expr)
        self._count(expr, "mul", len(factors) - 1, guards)
        self._all(factors, guards)

    def _sum(self, expr, guards):
        terms = [self._factors(term) for term in _flattened(expr, p.Sum)]
        counts = Counter(mul=sum(len(factors) - 1 for factors in terms))
        left_is_product = len(terms[0]) > 1
        for factors in terms[1:]:
            if len(factors) > 1 or left_is_product:
                counts["madd"] += 1
                counts["mul"] -= 1
            else:
                counts["add"] += 1
            left_is_product = False
        for name, count in counts.items():
            self._count(expr, name, count, guards)
        for factors in terms:
            self._all(factors, guards)

    def _factors(self, expr):
        """Return the factors that count, one for anything that is not a product of several."""
        factors = []
        for factor in _flattened(expr, p.Product):
            if _is_square(factor):
                factors += [factor.base, factor.base if self.as_executed else _AGAIN]
            else:
                factors.append(factor)
        if not self.as_executed:
            factors = [f for f in factors if not (_is_number(f) and abs(f) == 1)] or [1]
        while len(factors) > 1 and _is_number(factors[0]) and _is_number(factors[1]):
            factors = [factors[0] * factors[1], *factors[2:]]
        return factors

    def dtype(self, expr):
        """Return the widest type among the values an expression reads.

        loopy widens ``fmax(a, 3)`` of a float32 to float64 because of the literal; this does not.
        """
        found = [d for d in map(self.dtype_of, sorted(_names(expr))) if d is not None]
        floating = [d for d in found if d.kind in "fc"]
        if not found:
            return "int32"
        return str(np.result_type(*(floating or found)))


def _is_number(expr):
    return bool(p.is_constant(expr)) and expr is not _AGAIN


def _is_square(expr):
    return isinstance(expr, p.Power) and _is_number(expr.exponent) and bool(expr.exponent == 2)


def _flattened(expr, kind):
    if not isinstance(expr, kind):
        return [expr]
    return [part for child in expr.children for part in _flattened(child, kind)]


def _function_name(expr):
    function = expr.function
    return str(getattr(function, "name", function))


def _names(expr):
    """Names of the values an expression is computed from, those in subscripts excluded."""
    if isinstance(expr, p.Subscript):
        return {expr.aggregate.name}
    if isinstance(expr, p.Variable):
        return {expr.name}
    if isinstance(expr, p.Call):
        parts = expr.parameters
    elif isinstance(expr, p.If):
        parts = (expr.then, expr.else_)
    elif isinstance(expr, p.Quotient | p.FloorDiv | p.Remainder):
        parts = (expr.numerator, expr.denominator)
    elif isinstance(expr, p.Power):
        parts = (expr.base, expr.exponent)
    else:
        child = getattr(expr, "child", None)
        parts = getattr(expr, "children", () if child is None else (child,))
    return set().union(*map(_names, parts))


class _AtAllPoints(EvaluationMapper):
    """Evaluates at many points at once what Python's own logic decides at one."""

    def _folded(self, function, expr):
        return reduce(function, map(self.rec, expr.children))

    def map_logical_and(self, expr):
        return self._folded(np.logical_and, expr)

    def map_logical_or(self, expr):
        return self._folded(np.logical_or, expr)

    def map_logical_not(self, expr):
        return np.logical_not(self.rec(expr.child))

    def map_min(self, expr):
        return self._folded(np.minimum, expr)

    def map_max(self, expr):
        return self._folded(np.maximum, expr)

    def map_if(self, expr):
        return np.where(self.rec(expr.condition), self.rec(expr.then), self.rec(expr.else_))


def evaluate_at(expr, values):
    """Evaluate an integer or logical expression, one result per point."""
    length = len(next(iter(values.values()))) if values else 1
    try:
        return np.broadcast_to(_AtAllPoints(values)(expr), length)
    except (UnknownVariableError, UnsupportedExpressionError) as error:
        msg = f"cannot evaluate {expr}: {error}"
        raise NotEnumerableError(msg) from None
