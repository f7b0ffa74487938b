"""loopy's expressions: their operands and numbers, and isl's form of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import mul
from typing import Any

import numpy as np
from loopy.diagnostic import ExpressionToAffineConversionError
from loopy.symbolic import (
    PwAffEvaluationMapper,
    SubstitutionMapper,
    condition_to_set,
    get_dependencies,
    with_aff_conversion_guard,
)
from pymbolic.mapper import UnsupportedExpressionError
from pymbolic.mapper.substitutor import make_subst_func

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl, parameter_space

# No address has more than 64 bits.
_MOST = 2**63
_OPERANDS = (
    "children", "parameters", "numerator", "denominator", "base", "exponent", "left", "right", "child", "condition",
    "then", "else_", "shiftee", "shift", "aggregate",
)  # fmt: skip


def method_of(expr: Any) -> str:
    """Return the kind of an expression node, as mappers call it; empty for a number."""
    return getattr(expr, "mapper_method", "")


def operands(expr: Any) -> list[Any]:
    """Return the operands of an expression node; of a subscript, the array only."""
    # A Python number has a numerator, too.
    values = [getattr(expr, name, None) for name in _OPERANDS if method_of(expr)]
    return [one for value in values if value is not None for one in (value if isinstance(value, tuple) else [value])]


def flat(expr: Any, method: str) -> list[Any]:
    """Return the parts of nested sums or products: code is generated without parentheses between them."""
    if method_of(expr) != method:
        return [expr]
    return [inner for child in expr.children for inner in flat(child, method)]


def substituted(expr: Any, values: Mapping[str, Any]) -> Any:
    """Return an expression with others in place of some of its names."""
    return SubstitutionMapper(make_subst_func(dict(values)))(expr)


def _numbers_in(expr: Any) -> Iterator[Any]:
    if not method_of(expr):
        yield expr
    for operand in operands(expr):
        yield from _numbers_in(operand)


def all_numbers_are_integers(expr: Any) -> bool:
    """Whether there are no other numbers in an expression: isl would round them."""
    return all(isinstance(number, (int, np.integer, np.bool_)) for number in _numbers_in(expr))


def require_short_numbers(expr: Any, what: str) -> None:
    """Stop at a whole number that no address holds; loopy and isl fail at it without saying so."""
    for number in _numbers_in(expr):
        if isinstance(number, int) and abs(number) >= _MOST:
            digits = round(abs(number).bit_length() * math.log10(2)) or 1
            msg = f"{what} has a number of {digits} digits, and addresses have 64 bits; give one below 2**63"
            raise UnsupportedKernelError(msg)


# What isl makes of them


class _PwAffReader(PwAffEvaluationMapper):  # type: ignore[misc]  # loopy has no type information
    """Reads conditional expressions, too."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, frozenset())
        self._space = space

    def map_if(self, expr: Any) -> Any:
        holds = condition_to_set(self._space, expr.condition)
        if holds is None:
            raise ExpressionToAffineConversionError
        fails = isl.Set.universe(self._space).subtract(holds)
        return self.rec(expr.then).intersect_domain(holds).union_add(self.rec(expr.else_).intersect_domain(fails))


def quasi_affine(expr: Any, space: Any) -> Any:
    """Return a loopy expression as an ``isl.PwAff`` on a space with loopy's names; None if it is not quasi-affine."""
    # Of 0.5*i loopy would take the whole part of 0.5, not of the product.
    if not all_numbers_are_integers(expr):
        return None
    try:
        return with_aff_conversion_guard(lambda on, what: _PwAffReader(on)(what), space, expr)
    except (ExpressionToAffineConversionError, UnsupportedExpressionError):
        return None


def affine_in_parameters(expr: Any, parameters: Sequence[str]) -> Any:
    """Return `expr` as an ``isl.PwAff`` over the parameters."""
    affine = quasi_affine(expr, parameter_space(tuple(parameters)))
    if affine is None:
        require_short_numbers(expr, "a shape, stride or loop bound")
        msg = f"{expr} is not quasi-affine in the size parameters {', '.join(parameters) or '(there are none)'}"
        if unknown := sorted(get_dependencies(expr) - set(parameters)):
            msg += f"; if {unknown[0]} is a size, give the kernel lp.ValueArg({unknown[0]!r}, np.int32)"
        raise UnsupportedKernelError(msg)
    return affine


def polynomial_in_parameters(expr: Any, parameters: Sequence[str]) -> QuasiPolynomial:
    """Return `expr`, a polynomial in size parameters and floors of affine terms, as a quasi-polynomial."""
    method = method_of(expr)
    if method == "map_sum":
        return QuasiPolynomial.total(polynomial_in_parameters(child, parameters) for child in expr.children)
    if method == "map_product":
        return reduce(mul, (polynomial_in_parameters(child, parameters) for child in expr.children))
    if method == "map_power" and isinstance(expr.exponent, int) and expr.exponent >= 1:
        return reduce(mul, [polynomial_in_parameters(expr.base, parameters)] * expr.exponent)
    # Floors and remainders: isl has them in piecewise affine functions only.
    affine = affine_in_parameters(expr, parameters)
    return QuasiPolynomial(isl.PwQPolynomial.from_pw_aff(affine.project_domain_on_params()))


def below(domain: Any, position: int, extent: Any, parameters: Sequence[str]) -> Any:
    """Restrict one dimension of a set to 0 <= value < `extent`, which is affine in the parameters."""
    limit = affine_in_parameters(extent, parameters).add_dims(isl.dim_type.in_, domain.dim(isl.dim_type.set))
    local = isl.LocalSpace.from_space(domain.align_params(limit.get_space()).get_space())
    coordinate = isl.PwAff.var_on_domain(local, isl.dim_type.set, position)
    return domain.lower_bound_val(isl.dim_type.set, position, isl.Val(0)).intersect(coordinate.lt_set(limit))
