"""Subscripts as functions of instances: flattened ones as axes, and elements of vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import align_parameters, isl

# Size parameters that are multiplied, sorted; a power has its name several times.
Product = tuple[str, ...]


@dataclass(frozen=True)
class Flattened:
    """A subscript such as ``n*i + j`` as several axes: ``i`` and ``j`` with the strides ``n`` and 1."""

    # (isl function of the instance, stride) per axis, the largest stride first.
    axes: tuple[tuple[Any, QuasiPolynomial], ...]
    # Whether different index tuples are certainly different elements, here and among all accesses with these strides:
    # every axis stays below the ratio of the strides around it.
    injective: bool


def flattened(terms: Mapping[Product, Any], domain: Any, parameters: Sequence[str]) -> Flattened:
    """Return the axes of a sum of products of sizes, each times an isl function of the instance in a `domain`."""
    # Sizes are large: the product of more of them is the larger stride.
    ordered = sorted(terms, key=len, reverse=True)
    values, injective = [terms[product] for product in ordered], True
    # From the lowest axis up, so that each lies below the ratio to the next: what it carries moves that one's range.
    for place in reversed(range(len(ordered) - 1)):
        ratio = Counter(ordered[place])
        ratio.subtract(ordered[place + 1])
        sizes = list(ratio.elements())
        # isl decides this for one parameter only; a product of them is no affine limit.
        decided = len(sizes) == 1 and min(ratio.values()) >= 0
        carried = _carry(values[place + 1], sizes[0], domain, parameters) if decided else None
        if carried is None:
            injective = False
            continue
        carry, values[place + 1] = carried
        everywhere = isl.Set.universe(values[place].domain().get_space())
        values[place] = values[place].add(isl.PwAff.val_on_domain(everywhere, isl.Val(carry)))
    frame = f"[{', '.join(parameters)}] -> "
    strides = [QuasiPolynomial.parse(f"{frame}{{ {'*'.join(product) or '1'} }}") for product in ordered]
    return Flattened(tuple(zip(values, strides, strict=True)), injective)


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


def in_lanes(domain: Any, lanes: int) -> Any:
    """Return instances for each of a vector's elements, enumerated by a last dimension."""
    last = domain.dim(isl.dim_type.set)
    longer = domain.add_dims(isl.dim_type.set, 1).lower_bound_val(isl.dim_type.set, last, isl.Val(0))
    return longer.upper_bound_val(isl.dim_type.set, last, isl.Val(lanes - 1))


def lane_of(space: Any) -> Any:
    """Return the number of the element as a function of instances."""
    return isl.PwAff.var_on_domain(isl.LocalSpace.from_space(space), isl.dim_type.set, space.dim(isl.dim_type.set) - 1)
