"""Sums, products and numbers in loopy's expressions, as the generated code takes them."""

from __future__ import annotations

import math
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.late_values import parameter_space
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# No address has more than 64 bits.
_MOST = 2**63
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
    return _folded([factor for factor in flat_factors(product) if not (is_number(factor) and factor in {1, -1})])


def terms_of(total: Any) -> list[Any]:
    """Return the terms of a sum that are added: all but zeros, numbers in front as one."""
    return _folded([term for term in flat_terms(total) if not (is_number(term) and term == 0)])


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


def require_short_numbers(expr: Any, what: str) -> None:
    """Stop at a whole number that no address holds; loopy and isl fail at it without saying so."""
    if is_number(expr):
        if isinstance(expr, int) and abs(expr) >= _MOST:
            digits = round(abs(expr).bit_length() * math.log10(2)) or 1
            msg = f"{what} has a number of {digits} digits, and addresses have 64 bits; give one below 2**63"
            raise UnsupportedKernelError(msg)
        return
    for operand in operands(expr):
        require_short_numbers(operand, what)


def require_short_strides(kernel: Any) -> None:
    """Stop at an array with a number in its shape or strides that no address holds."""
    for name, variable in {**kernel.arg_dict, **kernel.temporary_variables}.items():
        strides = [tag.stride for tag in getattr(variable, "dim_tags", None) or () if hasattr(tag, "stride")]
        for expr in (*(getattr(variable, "shape", None) or ()), *strides):
            require_short_numbers(expr, f"the shape or a stride of array {name!r}")


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


def affine_in_parameters(expr: Any, parameters: Sequence[str]) -> Any:
    """Return `expr` as an ``isl.PwAff`` over the parameters."""
    affine = quasi_affine(expr, parameter_space(tuple(parameters)))
    if affine is None:
        require_short_numbers(expr, "a shape, stride or loop bound")
        msg = f"{expr} is not quasi-affine in the size parameters {', '.join(parameters) or '(there are none)'}"
        raise UnsupportedKernelError(msg)
    return affine


def quasi_affine(expr: Any, space: Any) -> Any:
    """Return a loopy expression as an ``isl.PwAff`` on a space with loopy's names; None if it is not quasi-affine."""
    from loopy.diagnostic import ExpressionToAffineConversionError
    from loopy.symbolic import condition_to_set, guarded_pwaff_from_expr
    from pymbolic.mapper import UnsupportedExpressionError

    # Of 0.5*i loopy would take the whole part of 0.5, not of the product.
    if not all_numbers_are_integers(expr):
        return None
    choice = _first_choice(expr)
    if choice is not None:
        condition, yes, no = choice
        holds = condition_to_set(space, condition)
        first, other = quasi_affine(yes, space), quasi_affine(no, space)
        if holds is None or first is None or other is None:
            return None
        fails = isl.Set.universe(space).subtract(holds)
        return first.intersect_domain(holds).union_add(other.intersect_domain(fails))
    try:
        return guarded_pwaff_from_expr(space, expr, frozenset())
    except (ExpressionToAffineConversionError, UnsupportedExpressionError):
        return None


def _first_choice(expr: Any) -> tuple[Any, Any, Any] | None:
    """Return a condition in an expression, and the expression where it holds and where not; None without any."""
    from loopy.symbolic import IdentityMapper

    class Chooser(IdentityMapper):  # type: ignore[misc]
        """Takes one side of the first condition that it meets, and of all that are equal to it."""

        def __init__(self, *, side: bool) -> None:
            super().__init__()
            self.condition: Any = None
            self._side = side

        def map_if(self, node: Any) -> Any:
            if self.condition is None:
                self.condition = node.condition
            if node.condition != self.condition:
                return super().map_if(node)
            return self.rec(node.then if self._side else node.else_)

    yes, no = Chooser(side=True), Chooser(side=False)
    chosen = yes(expr), no(expr)
    return None if yes.condition is None else (yes.condition, *chosen)


def polynomial_in_parameters(expr: Any, parameters: Sequence[str]) -> QuasiPolynomial:
    """Return `expr`, a polynomial in size parameters and floors of affine terms, as a quasi-polynomial."""
    method = getattr(expr, "mapper_method", None)
    if method == "map_sum":
        return QuasiPolynomial.total(polynomial_in_parameters(child, parameters) for child in expr.children)
    if method == "map_product":
        return reduce(mul, (polynomial_in_parameters(child, parameters) for child in expr.children))
    if method == "map_power" and isinstance(expr.exponent, int) and expr.exponent >= 1:
        return reduce(mul, [polynomial_in_parameters(expr.base, parameters)] * expr.exponent)
    # Floors and remainders: isl has them in piecewise affine functions only.
    affine = affine_in_parameters(expr, parameters)
    return QuasiPolynomial(isl.PwQPolynomial.from_pw_aff(affine.project_domain_on_params()))
