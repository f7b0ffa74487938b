"""Flattened subscripts such as ``n*i + j``: as axes ``i`` and ``j`` with the strides ``n`` and 1."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.features.from_loopy.polynomial import quasi_affine
from perflex.features.from_loopy.terms import flat_factors, flat_terms
from perflex.features.polynomials.isl_text import align_parameters
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = isl.dim_type
# Size parameters that are multiplied, sorted; a power has its name several times.
Product = tuple[str, ...]


@dataclass(frozen=True)
class Flattened:
    """A subscript as several axes.

    Attributes
    ----------
    axes
        (isl function of the instance, stride) per axis, the largest stride first.
    distinct
        Whether different index tuples are certainly different elements, here and among all accesses with
        these strides: every axis stays below the ratio of the strides around it.
    """

    axes: tuple[tuple[Any, QuasiPolynomial], ...]
    distinct: bool


def flattened_axes(index: Any, domain: Any, space: Any, parameters: Sequence[str]) -> Flattened | None:
    """Split a subscript into axes by the products of size parameters in its terms.

    None if a term is not a product of size parameters and something affine in the loop variables. `domain` is the isl
    set of the instances, `space` its space with loopy's names.
    """
    from pymbolic.mapper import UnsupportedExpressionError
    from pymbolic.mapper.distributor import distribute

    groups: dict[Product, list[Any]] = {}
    try:
        expanded = distribute(index)
    except UnsupportedExpressionError:
        return None
    for term in flat_terms(expanded):
        product, rest = _split(term, frozenset(parameters))
        groups.setdefault(product, []).append(rest)
    # One group without parameters is no flattened subscript, but one that is not affine.
    if len(groups) < 2 and () in groups:
        return None
    # Sizes are large: the product of more of them is the larger stride.
    ordered = sorted(groups, key=len, reverse=True)
    values = [quasi_affine(sum(groups[product][1:], start=groups[product][0]), space) for product in ordered]
    if any(value is None for value in values):
        return None
    ratios = [_ratio(above, below) for above, below in itertools.pairwise(ordered)]
    values, distinct = _normalised(values, ratios, domain, parameters)
    strides = [_polynomial(product, parameters) for product in ordered]
    return Flattened(tuple(zip(values, strides, strict=True)), distinct)


def _split(term: Any, parameters: frozenset[str]) -> tuple[Product, Any]:
    """Return (size parameters, sorted; everything else) of a product."""
    names: list[str] = []
    rest: Any = 1
    for factor in flat_factors(term):
        base, exponent = factor, 1
        if getattr(factor, "mapper_method", "") == "map_power" and isinstance(factor.exponent, int):
            base, exponent = factor.base, factor.exponent
        if getattr(base, "name", None) in parameters and exponent > 0:
            names += [base.name] * exponent
        else:
            rest = rest * (base if exponent == 1 else factor)
    return tuple(sorted(names)), rest


def _ratio(above: Product, below: Product) -> Product | None:
    """Return the quotient of two products of parameters; None if it is no such product."""
    left = Counter(above)
    left.subtract(below)
    return None if any(count < 0 for count in left.values()) else tuple(sorted(left.elements()))


def _normalised(
    values: list[Any], ratios: list[Product | None], domain: Any, parameters: Sequence[str]
) -> tuple[list[Any], bool]:
    """Carry between axes so that each lower one lies in [0, ratio), and tell whether all do."""
    distinct = True
    # From the lowest axis up: what it carries moves the next one's range.
    for position in range(len(ratios) - 1, -1, -1):
        ratio = ratios[position]
        # isl decides this for one parameter only; a product of them is no affine limit.
        carried = (
            None if ratio is None or len(ratio) != 1 else _carry(values[position + 1], ratio[0], domain, parameters)
        )
        if carried is None:
            distinct = False
            continue
        carry, values[position + 1] = carried
        values[position] = values[position].add(_constant(values[position], carry))
    return values, distinct


def _carry(value: Any, ratio: str, domain: Any, parameters: Sequence[str]) -> tuple[int, Any] | None:
    """Return (k, value - k*ratio) with the latter in [0, ratio) for all instances; None if there is none."""
    image = align_parameters(domain.apply(isl.Map.from_pw_aff(value)), parameters)
    within = align_parameters(isl.Set(f"[{ratio}] -> {{ [v] : 0 <= v < {ratio} }}"), parameters)
    # -1 is for descending indices: n*i - j with 1 <= j <= n is n*(i - 1) + (n - j).
    for carry in (0, -1, 1):
        shift = isl.Map(f"[{ratio}] -> {{ [v] -> [v - {carry}*{ratio}] }}")
        if image.apply(shift).is_subset(within):
            moved = isl.Map.from_pw_aff(value).apply_range(shift).as_pw_multi_aff().get_pw_aff(0)
            return carry, moved
    return None


def _constant(like: Any, value: int) -> Any:
    return isl.PwAff.val_on_domain(isl.Set.universe(like.domain().get_space()), isl.Val(value))


def _polynomial(product: Product, parameters: Sequence[str]) -> QuasiPolynomial:
    text = "*".join(product) or "1"
    declared = ", ".join(parameters)
    return QuasiPolynomial(isl.PwQPolynomial(f"[{declared}] -> {{ {text} }}"))
