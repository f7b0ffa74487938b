"""Extents and strides: loopy expressions in size parameters as quasi-polynomials."""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.terms import all_numbers_are_integers
from perflex.features.polynomials.isl_text import parameter_space
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Sequence


def affine_in_parameters(expr: Any, parameters: Sequence[str]) -> Any:
    """Return `expr` as an ``isl.PwAff`` over the parameters.

    Raises
    ------
    UnsupportedKernelError
        `expr` is not quasi-affine in the size parameters.
    """
    affine = quasi_affine(expr, parameter_space(tuple(parameters)))
    if affine is None:
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
    """Return `expr`, a polynomial in size parameters and floors of affine terms, as a quasi-polynomial.

    Raises
    ------
    UnsupportedKernelError
        `expr` is of another kind.
    """
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
