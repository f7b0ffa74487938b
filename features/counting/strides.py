"""Strides: how far the address of an access moves per step of the work-item or work-group index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl

if TYPE_CHECKING:
    from perflex.features.scop.scop import Access, Scop, Statement

_Strides = tuple[QuasiPolynomial | None, ...]


def index_strides(scop: Scop, statement: Statement, access: Access) -> tuple[_Strides, _Strides]:
    """Return the strides along the axes of the work-item and of the work-group index, in elements.

    A stride is None where the address is not affine in that index.
    """
    launch = scop.launches[statement.launch]
    groups = len(launch.groups)
    along = scop.array(access.array).strides if access.strides is None else access.strides
    # Instances begin with the axes of the work-group, then come those of the work-item.
    strides = [_stride(statement, access, along, axis) for axis in range(groups + len(launch.items))]
    return tuple(strides[groups:]), tuple(strides[:groups])


def stride_along(scop: Scop, statement: Statement, access: Access, axis: int) -> QuasiPolynomial | None:
    """Return the stride along any axis of a statement's instances, also a loop's, in elements; None if it varies."""
    along = scop.array(access.array).strides if access.strides is None else access.strides
    return _stride(statement, access, along, axis)


def _stride(
    statement: Statement, access: Access, strides: tuple[QuasiPolynomial, ...], axis: int
) -> QuasiPolynomial | None:
    """Return the address distance of neighbours along an instance axis, or None if it varies."""
    steps = _steps(statement, access, axis)
    if None in steps:
        return None
    return QuasiPolynomial.total(stride * step for step, stride in zip(steps, strides, strict=True) if step)


def _steps(statement: Statement, access: Access, axis: int) -> list[int | None]:
    """Return by how much each array index grows per step along an instance axis; None if that varies."""
    kinds = isl.dim_type
    axes = access.relation.dim(kinds.out)
    if not access.relation.is_single_valued():
        return [None] * axes
    function = access.relation.as_pw_multi_aff()
    steps: list[int | None] = []
    for position in range(axes):
        # One piece without floors is the usual case, where the coefficient is the stride; differences take isl longer.
        pieces = function.get_at(position).get_pieces()
        plain = len(pieces) == 1 and _coefficient(pieces[0][1], axis)
        # With several pieces `plain` is False, which is an int in Python.
        if isinstance(plain, int) and not isinstance(plain, bool):
            steps.append(plain)
        else:
            steps.append(_constant_step(statement, access, axis, position))
    return steps


def _coefficient(affine: Any, axis: int) -> int | None:
    """Return the coefficient of an instance axis in a quasi-affine index without floors over that axis."""
    kinds = isl.dim_type
    for i in range(affine.dim(kinds.div)):
        if affine.get_coefficient_val(kinds.div, i).is_zero():
            continue
        if affine.get_div(i).involves_dims(kinds.in_, axis, 1):
            return None
    value = affine.get_coefficient_val(kinds.in_, axis)
    return int(value.to_python()) if value.is_int() else None


def _constant_step(statement: Statement, access: Access, axis: int, position: int) -> int | None:
    """Return the step from the differences between instances along the axis, if it is one number.

    This settles subscripts with floors: (16*gid + lid) // 16 does not depend on lid when lid < 16, and
    lid % 4 or lid // 2 have no single stride. Where a condition leaves out neighbours, those that are left count.
    """
    kinds = isl.dim_type
    domain = statement.domain
    index = access.relation.project_out(kinds.out, position + 1, access.relation.dim(kinds.out) - position - 1)
    index = index.project_out(kinds.out, 0, position)
    place = isl.MultiAff.identity(domain.get_space().map_from_set()).get_at(axis)
    pairs = _later_along(domain, axis)
    if pairs.is_empty():
        return 0  # nothing moves
    placed = isl.Map.from_aff(place).flat_range_product(index)
    differences = pairs.apply_domain(placed).apply_range(placed).deltas()
    sample = differences.sample_point()
    distance, change = (sample.get_coordinate_val(kinds.set, dim).to_python() for dim in (0, 1))
    if change % distance:
        return None
    step = int(change // distance)
    return step if differences.is_subset(isl.Set(f"{{ [distance, {step} * distance] }}")) else None


def _later_along(domain: Any, axis: int) -> Any:
    """Return the map from instances to those further along an axis that differ in nothing else."""
    kinds = isl.dim_type
    identity = isl.Map.identity(domain.get_space().map_from_set())
    # The coordinate along the axis is free again, and then bounded from below.
    others = identity.drop_constraints_involving_dims(kinds.out, axis, 1)
    later = others.order_lt(kinds.in_, axis, kinds.out, axis)
    return later.intersect_domain(domain).intersect_range(domain)
