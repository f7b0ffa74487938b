"""Integer points of an isl set as numpy arrays, by testing every point of its bounding box."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import islpy as isl
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Ints = NDArray[np.int64]

MAX_BOX = 20_000_000


def integer_points(domain: isl.Set, names: Sequence[str], sizes: Mapping[str, int]) -> dict[str, Ints]:
    """Return the distinct values of the named set dimensions, one array of equal length per name.

    Parameters
    ----------
    domain
        A set or basic set; dimensions not named are projected out.
    sizes
        Values of its parameters.

    Returns
    -------
    dict
        The arrays; under the name ``""`` an array of zeros, so that their length is there without any name.
    """
    fixed = fixed_at(_as_set(domain), sizes)
    for name in _dim_names(fixed):
        if name not in names:
            index = fixed.find_dim_by_name(isl.dim_type.set, name)
            fixed = fixed.project_out(isl.dim_type.set, index, 1)
    order = _dim_names(fixed)
    missing = set(names) - set(order)
    if missing:
        msg = f"the domain has no dimension {sorted(missing)}"
        raise KeyError(msg)
    pieces = [_basic_points(piece) for piece in fixed.compute_divs().get_basic_sets()]
    rows = np.concatenate(pieces) if pieces else np.zeros((0, len(order)), np.int64)
    if len(pieces) > 1 and order:
        rows = np.unique(rows, axis=0)
    if not order:
        rows = rows[:1]
    return {name: rows[:, column] for column, name in enumerate(order)} | {"": rows.sum(axis=1) * 0}


def _as_set(domain: isl.Set) -> isl.Set:
    return isl.Set.from_basic_set(domain) if isinstance(domain, isl.BasicSet) else domain


def _dim_names(domain: isl.Set) -> list[str]:
    return [domain.get_dim_name(isl.dim_type.set, k) for k in range(domain.dim(isl.dim_type.set))]


def fixed_at(domain: Any, sizes: Mapping[str, int]) -> Any:
    """Return a set or map at given sizes, without its parameters."""
    for index in range(domain.dim(isl.dim_type.param)):
        name = domain.get_dim_name(isl.dim_type.param, index)
        domain = domain.fix_val(isl.dim_type.param, index, isl.Val(int(sizes[name])))
    return domain.project_out(isl.dim_type.param, 0, domain.dim(isl.dim_type.param))


def _basic_points(piece: isl.BasicSet) -> Ints:
    rank = piece.dim(isl.dim_type.set)
    if piece.is_empty():
        return np.zeros((0, rank), np.int64)
    as_set = isl.Set.from_basic_set(piece)
    ranges = [
        np.arange(as_set.dim_min_val(k).to_python(), as_set.dim_max_val(k).to_python() + 1, dtype=np.int64)
        for k in range(rank)
    ]
    if np.prod([float(len(values)) for values in ranges]) > MAX_BOX:
        msg = f"{piece} is too large to enumerate"
        raise ValueError(msg)
    grid = [axis.ravel() for axis in np.meshgrid(*ranges, indexing="ij")]
    count = len(grid[0]) if rank else 1
    inside = np.ones(count, bool)
    for constraint in piece.get_constraints():
        value = affine_values(constraint.get_aff(), grid, count)
        inside &= (value == 0) if constraint.is_equality() else (value >= 0)
    columns = np.stack(grid, axis=1) if rank else np.zeros((1, 0), np.int64)
    return columns[inside]


def affine_values(aff: isl.Aff, grid: Sequence[Ints], count: int) -> Ints:
    """Evaluate the numerator of an affine form, with its divisions rounded down, at all points."""
    denominator = aff.get_denominator_val().to_python()

    def scaled(value: isl.Val) -> int:
        return int((value * isl.Val(denominator)).to_python())

    total = np.full(count, scaled(aff.get_constant_val()), np.int64)
    for k, values in enumerate(grid):
        total += scaled(aff.get_coefficient_val(isl.dim_type.in_, k)) * values
    for k in range(aff.dim(isl.dim_type.div)):
        factor = scaled(aff.get_coefficient_val(isl.dim_type.div, k))
        if factor:
            inner = aff.get_div(k)
            total += factor * (affine_values(inner, grid, count) // inner.get_denominator_val().to_python())
    return total
