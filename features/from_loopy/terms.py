"""Sums, products and numbers in loopy's expressions, as the generated code takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

_OPERANDS = (
    "children", "parameters", "numerator", "denominator", "base", "exponent", "left", "right", "child", "condition",
    "then", "else_", "shiftee", "shift",
)  # fmt: skip


def operands(expr: Any) -> list[Any]:
    """Return the operands of an expression node."""
    found: list[Any] = []
    if is_number(expr):  # a Python number has a numerator, too
        return found
    for name in _OPERANDS:
        value = getattr(expr, name, None)
        if value is not None:
            found += value if isinstance(value, tuple) else [value]
    return found


def _flattened(expr: Any, method: str) -> list[Any]:
    """Children of nested sums or products: code is generated without parentheses between them."""
    if getattr(expr, "mapper_method", None) != method:
        return [expr]
    return [inner for child in expr.children for inner in _flattened(child, method)]


def flat_factors(product: Any) -> list[Any]:
    """Return the factors of nested products."""
    return _flattened(product, "map_product")


def flat_terms(total: Any) -> list[Any]:
    """Return the terms of nested sums."""
    return _flattened(total, "map_sum")


def factors(product: Any) -> list[Any]:
    """Return the factors of a product that are multiplied: all but signs, numbers in front as one."""
    return _folded([factor for factor in flat_factors(product) if not _is_sign(factor)])


def terms_of(total: Any) -> list[Any]:
    """Return the terms of a sum that are added: all but zeros, numbers in front as one."""
    return _folded([term for term in flat_terms(total) if not _is_constant_zero(term)])


def _folded(parts: list[Any]) -> list[Any]:
    """Let the numbers that come first be one, as compilers do."""
    # Floating-point arithmetic is not associative: compilers fold no number behind a variable.
    numbers = next((i for i, part in enumerate(parts) if not is_constant(part)), len(parts))
    return parts[max(0, numbers - 1) :]


def is_constant(expr: Any) -> bool:
    """Whether an expression is a number, or sums, products and quotients of numbers only."""
    method = getattr(expr, "mapper_method", None)
    if method in {"map_sum", "map_product"}:
        return all(is_constant(child) for child in expr.children)
    if method == "map_quotient":
        return is_constant(expr.numerator) and is_constant(expr.denominator)
    return is_number(expr)


def is_number(expr: Any) -> bool:
    """Whether an expression is a plain number."""
    return getattr(expr, "mapper_method", None) is None


def all_numbers_are_integers(expr: Any) -> bool:
    """Whether there are no other numbers in an expression: isl would round them."""
    if is_number(expr):
        return isinstance(expr, (int, np.integer, np.bool_))
    return all(map(all_numbers_are_integers, operands(expr)))


def _is_sign(expr: Any) -> bool:
    return is_number(expr) and bool(expr in {1, -1})


def _is_constant_zero(expr: Any) -> bool:
    return is_number(expr) and bool(expr == 0)


def is_square(expr: Any) -> bool:
    """Whether a power has the exponent 2."""
    return is_number(expr.exponent) and bool(expr.exponent == 2)


def is_product(expr: Any) -> bool:
    """Whether an expression ends in a multiplication, which a sum can fuse."""
    method = getattr(expr, "mapper_method", None)
    if method == "map_product" and not is_constant(expr):
        parts = factors(expr)
        # A single factor beside a sign may be a square, as in -x**2: that is a product to fuse.
        return len(parts) >= 2 or any(is_product(part) for part in parts)
    return method == "map_power" and is_square(expr)


def substituted(expr: Any, values: Mapping[str, Any]) -> Any:
    """Return an expression with others in place of some of its names."""
    from loopy.symbolic import SubstitutionMapper
    from pymbolic.mapper.substitutor import make_subst_func

    return SubstitutionMapper(make_subst_func(dict(values)))(expr)
