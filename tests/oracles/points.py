"""Integer points of an isl set as numpy arrays, by testing every point of its bounding box, and what they access."""

import islpy as isl
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

MAX_BOX = 20_000_000


def integer_points(domain, names, sizes):
    """Return the distinct values of the named dimensions of a set, others projected out, at sizes of its parameters.

    Under the name ``""`` stands an array of zeros, so that their length is there without any name.
    """
    fixed = fixed_at(isl.Set.from_basic_set(domain) if isinstance(domain, isl.BasicSet) else domain, sizes)
    for name in _dim_names(fixed):
        if name not in names:
            fixed = fixed.project_out(isl.dim_type.set, fixed.find_dim_by_name(isl.dim_type.set, name), 1)
    order = _dim_names(fixed)
    missing = set(names) - set(order)
    if missing:
        msg = f"the domain has no dimension {sorted(missing)}"
        raise KeyError(msg)
    rows = rows_of(fixed, {})
    return {name: rows[:, column] for column, name in enumerate(order)} | {"": rows.sum(axis=1) * 0}


def rows_of(domain, sizes):
    """Return the distinct points of a set at sizes of its parameters, one per row."""
    fixed = fixed_at(domain, sizes)
    rank = fixed.dim(isl.dim_type.set)
    pieces = [_in_box(piece) for piece in fixed.compute_divs().get_basic_sets()]
    rows = np.concatenate(pieces) if pieces else np.zeros((0, rank), np.int64)
    return np.unique(rows, axis=0) if len(pieces) > 1 and rank else rows[: None if rank else 1]


def instances(statement, sizes):
    """Return all instances of a statement of a Scop: one array for each dimension of its domain."""
    rows = rows_of(statement.domain, sizes)
    return list(rows.T) if rows.shape[1] else [rows.sum(axis=1)]


def elements(scop, access, sizes, points):
    """Return the flat index of the element that an access touches at each instance; it must be one element."""
    polynomials = scop.array(access.array).strides if access.strides is None else access.strides
    total = np.zeros(len(points[0]), np.int64)
    cases = []
    isl.PwMultiAff.from_map(fixed_at(access.relation, sizes)).foreach_piece(lambda *case: cases.append(case))
    for subdomain, function in cases:
        element = np.zeros_like(total)
        for axis, stride in enumerate(polynomials):
            aff = function.get_at(axis)
            value = affine_values(aff, points, len(total)) // aff.get_denominator_val().to_python()
            element += int(stride.evaluate(sizes)) * value
        total = np.where(_inside(subdomain, points, len(total)), element, total)
    return total


def executions(scop, statement, points, lanes):
    """Return by which sub-group and in which iteration each instance is executed: rows of numbers, one per instance."""
    launch = scop.launches[statement.launch]
    groups, axes = len(launch.groups), len(launch.groups) + len(launch.items)
    flat, factor = np.zeros_like(points[0]), 1
    for column, extent in zip(points[groups:axes], launch.items, strict=True):
        flat, factor = flat + factor * column, factor * extent
    return np.stack([*points[:groups], flat // lanes, *points[axes:]], axis=1)


def fixed_at(domain, sizes):
    """Return a set or map at given sizes, without its parameters."""
    for index in range(domain.dim(isl.dim_type.param)):
        name = domain.get_dim_name(isl.dim_type.param, index)
        domain = domain.fix_val(isl.dim_type.param, index, isl.Val(int(sizes[name])))
    return domain.project_out(isl.dim_type.param, 0, domain.dim(isl.dim_type.param))


def affine_values(aff, grid, count):
    """Evaluate the numerator of an affine form, with its divisions rounded down, at all points."""
    denominator = aff.get_denominator_val().to_python()

    def scaled(value):
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


def _dim_names(domain):
    return [domain.get_dim_name(isl.dim_type.set, k) for k in range(domain.dim(isl.dim_type.set))]


def _in_box(piece):
    rank = piece.dim(isl.dim_type.set)
    if piece.is_empty():
        return np.zeros((0, rank), np.int64)
    whole = isl.Set.from_basic_set(piece)
    ranges = [
        np.arange(whole.dim_min_val(k).to_python(), whole.dim_max_val(k).to_python() + 1, dtype=np.int64)
        for k in range(rank)
    ]
    if np.prod([float(len(values)) for values in ranges]) > MAX_BOX:
        msg = f"{piece} is too large to enumerate"
        raise ValueError(msg)
    grid = [axis.ravel() for axis in np.meshgrid(*ranges, indexing="ij")]
    columns = np.stack(grid, axis=1) if rank else np.zeros((1, 0), np.int64)
    return columns[_holds(piece, grid, len(columns))]


def _inside(domain, points, count):
    pieces = [_holds(piece, points, count) for piece in domain.compute_divs().get_basic_sets()]
    return np.logical_or.reduce([np.zeros(count, bool), *pieces])


def _holds(piece, points, count):
    holds = np.ones(count, bool)
    for constraint in piece.get_constraints():
        value = affine_values(constraint.get_aff(), points, count)
        holds &= (value == 0) if constraint.is_equality() else (value >= 0)
    return holds
