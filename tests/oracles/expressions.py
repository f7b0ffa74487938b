"""Operations and accesses of one expression, read from its tree: the rules of the brute-force oracle.

Rules, with ``t1 + t2 + ...`` taken from left to right and sums inside sums flattened (loopy prints them so):

* a product of n factors is n-1 multiplications; a factor 1 or -1 is none, constants that stand together
  at the front are one factor;
* a sum of k terms is k-1 operations; each is a multiply-add (taking one multiplication with it) when its
  right operand is a product, or when its left operand is the first term and a product; otherwise an add;
* ``x**2`` is the product of x with itself that evaluates x once, any other power is one ``pow``; ``min``
  and ``max`` of n values are n-1 operations; calls count by name; both branches of a conditional count
  unless told otherwise;
* subscripts are not counted.

With ``by_branch`` a branch counts where its condition holds. With ``as_executed`` the rules are those of the printed C
code without optimisation: so do branches, -1 is a factor like any other, and ``x**2`` evaluates x twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from pymbolic import primitives as p

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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

    Attributes
    ----------
    dtype_of
        Maps a variable name to its element type, or to None for a name without one (loop variables, sizes).
    is_memory
        Tells whether a name is an array or a stored scalar.
    """

    dtype_of: Callable[[str], np.dtype[Any] | None]
    is_memory: Callable[[str], bool]
    as_executed: bool = False
    by_branch: bool = False
    contents: Contents = field(default_factory=Contents)

    def read(self, expr: Any, guards: Guards = ()) -> None:
        if isinstance(expr, p.Sum):
            self._sum(expr, guards)
        elif isinstance(expr, p.Product):
            self._product(expr, guards)
        elif isinstance(expr, p.Subscript):
            self._access(expr, guards)
        elif isinstance(expr, p.Variable):
            if self.is_memory(expr.name):
                self._access(expr, guards)
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

    def _others(self, expr: Any, guards: Guards) -> None:
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
                if self.by_branch:
                    # What follows is evaluated only if this leaves the result open.
                    guards = self._where(guards, child, holds=isinstance(expr, p.LogicalAnd))
        elif isinstance(expr, p.LogicalNot) or type(expr).__name__ == "TypeCast":
            self.read(expr.child, guards)
        elif not (_is_number(expr) or expr is _AGAIN):
            msg = f"{type(expr).__name__} in {expr}"
            raise NotEnumerableError(msg)

    def _where(self, guards: Guards, condition: Any, *, holds: bool) -> Guards:
        """Add a condition to some; by branch, one that depends on data is not known to hold or not."""
        known = self.as_executed
        if self.by_branch:
            inner = ExpressionReader(self.dtype_of, self.is_memory)
            inner.read(condition)
            known = not inner.contents.accesses
        return (*guards, (condition, holds)) if known else guards

    def _all(self, parts: Sequence[Any], guards: Guards) -> None:
        for part in parts:
            self.read(part, guards)

    def _access(self, expr: Any, guards: Guards) -> None:
        if isinstance(expr, p.Subscript):
            inner = ExpressionReader(self.dtype_of, self.is_memory)
            inner._all(expr.index_tuple, ())
            if inner.contents.accesses:
                msg = f"indirect access {expr}"
                raise NotEnumerableError(msg)
        self.contents.accesses.append((guards, expr))

    def _count(self, expr: Any, name: str, count: int, guards: Guards) -> None:
        if count:
            self.contents.operations[guards, self.dtype(expr), name] += count

    def _power(self, expr: p.Power, guards: Guards) -> None:
        if _is_square(expr):
            self._product(expr, guards)
        elif _is_number(expr.exponent) and expr.exponent in {0, 1}:
            self._all((expr.base,) if expr.exponent else (), guards)
        else:
            self._count(expr, "pow", 1, guards)
            self._all((expr.base, expr.exponent), guards)

    def _product(self, expr: p.Product | p.Power, guards: Guards) -> None:
        factors = self._factors(expr)
        self._count(expr, "mul", len(factors) - 1, guards)
        self._all(factors, guards)

    def _sum(self, expr: p.Sum, guards: Guards) -> None:
        terms = [self._factors(term) for term in _flattened(expr, p.Sum)]
        counts: Counter[str] = Counter(mul=sum(len(factors) - 1 for factors in terms))
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

    def _factors(self, expr: Any) -> list[Any]:
        """Return the factors that count, one for anything that is not a product of several."""
        factors: list[Any] = []
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

    def dtype(self, expr: Any) -> str:
        """Return the widest type among the values an expression reads.

        loopy widens ``fmax(a, 3)`` of a float32 to float64 because of the literal; this does not.
        """
        found = [d for d in map(self.dtype_of, sorted(_names(expr))) if d is not None]
        floating = [d for d in found if d.kind in "fc"]
        if not found:
            return "int32"
        return str(np.result_type(*(floating or found)))


def _is_number(expr: Any) -> bool:
    return bool(p.is_constant(expr)) and expr is not _AGAIN


def _is_square(expr: Any) -> bool:
    return isinstance(expr, p.Power) and _is_number(expr.exponent) and bool(expr.exponent == 2)


def _flattened(expr: Any, kind: type) -> list[Any]:
    if not isinstance(expr, kind):
        return [expr]
    return [part for child in expr.children for part in _flattened(child, kind)]


def _function_name(expr: p.Call) -> str:
    function = expr.function
    return str(getattr(function, "name", function))


def _names(expr: Any) -> set[str]:
    """Names of the values an expression is computed from, those in subscripts excluded."""
    if isinstance(expr, p.Subscript):
        return {expr.aggregate.name}
    if isinstance(expr, p.Variable):
        return {expr.name}
    if isinstance(expr, p.Call):
        parts: Sequence[Any] = expr.parameters
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
