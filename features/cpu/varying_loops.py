"""Loops whose range depends on others, as in triangles: their lengths at some iterations of those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.cpu.nests import DRIVER_PREFIX, Driver
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.features.cpu.nests import Nest

# Iterations of one, two, ... loops that stand for all, of each; of more loops than these, two of each.
_SAMPLES = (16, 8, 4, 3)


def dependences(names: Sequence[str], domain: Any) -> dict[str, tuple[str, ...]]:
    """Return the loops whose range depends on outer ones, each with those; all by name.

    Parameters
    ----------
    names
        Of the domain's dimensions, outermost first.
    domain
        Its iterations.
    """
    found: dict[str, set[str]] = {}
    for conjunction in domain.compute_divs().get_basic_sets():
        for constraint in conjunction.get_constraints():
            factors = {
                name: int(constraint.get_coefficient_val(isl.dim_type.set, position).to_python())
                for position, name in enumerate(names)
            }
            involved = [name for name in names if factors[name]]
            if len(involved) > 1 and not _is_guard(domain, names, factors, involved):
                *outer, inner = involved
                found.setdefault(inner, set()).update(outer)
    return {name: tuple(outer for outer in names if outer in drivers) for name, drivers in found.items()}


def _is_guard(domain: Any, names: Sequence[str], factors: Mapping[str, int], involved: Sequence[str]) -> bool:
    """Return whether a constraint only cuts the last iterations of what are parts of one loop, or work-items."""
    signs = {factors[name] > 0 for name in involved}
    if len(signs) > 1:
        return False
    inner = involved[-1]
    length = range_of(domain, names.index(inner), ())[1]
    # The outer part of a loop steps over at least the whole of its inner part.
    step = min(abs(factors[name]) for name in involved[:-1])
    return not length.parameters and abs(factors[inner]) * int(length.evaluate({})) <= step


def range_of(domain: Any, position: int, drivers: Iterable[tuple[int, str]]) -> tuple[QuasiPolynomial, QuasiPolynomial]:
    """Return the first iteration of a dimension and the number of them, at given iterations of others.

    Parameters
    ----------
    domain
        All iterations.
    position
        The dimension.
    drivers
        Dimensions whose iterations are given, with their names in the polynomials.
    """
    fixed = domain
    for place, name in sorted(drivers, reverse=True):
        last = fixed.dim(isl.dim_type.param)
        fixed = fixed.move_dims(isl.dim_type.param, last, isl.dim_type.set, place, 1)
        fixed = fixed.set_dim_name(isl.dim_type.param, last, name)
        position -= place < position
    first, last = fixed.dim_min(position), fixed.dim_max(position)
    difference = last.sub(first)
    count = difference.add(isl.PwAff.val_on_domain(difference.domain(), isl.Val(1)))
    return (
        QuasiPolynomial(isl.PwQPolynomial.from_pw_aff(first.coalesce())),
        QuasiPolynomial(isl.PwQPolynomial.from_pw_aff(count.coalesce())),
    )


def drivers_of(names: Sequence[str], domain: Any, dependent: Mapping[str, Sequence[str]]) -> tuple[Driver, ...]:
    """Return the loops that decide the ranges of others, outermost first."""
    chosen = [name for name in names if any(name in outer for outer in dependent.values())]
    found = []
    for number, name in enumerate(chosen):
        before = [(names.index(one), DRIVER_PREFIX + one) for one in chosen[:number]]
        found.append(Driver(name, *range_of(domain, names.index(name), before)))
    return tuple(found)


def varying_extent(names: Sequence[str], domain: Any, name: str, drivers: Sequence[Driver]) -> QuasiPolynomial:
    """Return the number of iterations of a loop in the sizes and the drivers' iterations."""
    return range_of(domain, names.index(name), [(names.index(one.name), one.parameter) for one in drivers])[1]


def sampled(nest: Nest, sizes: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return sizes with some iterations of a nest's drivers beside them, and what part of all each stands for.

    Parameters
    ----------
    nest
        With drivers.
    sizes
        Numbers, or arrays of one shape.

    Returns
    -------
    tuple
        Sizes as arrays with one more axis, the last one, and weights along that, which add up to 1.
    """
    each = (*_SAMPLES, *[2] * len(nest.drivers))[len(nest.drivers) - 1]
    grids = np.meshgrid(*[(np.arange(each) + 0.5) / each] * len(nest.drivers), indexing="ij")
    parts = [grid.ravel() for grid in grids]
    shape = np.broadcast_shapes(*(np.shape(value) for value in sizes.values()), ())
    count = len(parts[0])
    at: dict[str, Any] = {
        name: np.broadcast_to(np.asarray(value)[..., None], (*shape, count)) for name, value in sizes.items()
    }
    weights = np.ones((*shape, count))
    for driver, part in zip(nest.drivers, parts, strict=True):
        first, extent = (_array(one, at, weights.shape) for one in (driver.first, driver.extent))
        at[driver.parameter] = np.floor(first + part * np.maximum(extent, 0)).astype(np.int64)
        weights = weights * np.maximum(extent, 0)
    driving = {driver.name for driver in nest.drivers}
    for loop in nest.loops:
        if loop.varying is not None and loop.name not in driving:
            weights = weights * np.maximum(_array(loop.varying, at, weights.shape), 0)
    total = weights.sum(axis=-1, keepdims=True)
    return at, weights / np.where(total > 0, total, 1.0)


def _array(polynomial: QuasiPolynomial, sizes: Mapping[str, Any], shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(np.asarray(polynomial.evaluate(sizes), dtype=float), shape)
