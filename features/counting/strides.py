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
    """Return the step from the set of differences between neighbours, if it is one number.

    This settles subscripts with floors: (16*gid + lid) // 16 does not depend on lid when lid < 16, and
    lid % 4 or lid // 2 have no single stride.
    """
    kinds = isl.dim_type
    domain = statement.domain
    identity = isl.Map.identity(domain.get_space().map_from_set())
    shift = isl.MultiAff.identity(identity.get_space())
    moved = shift.get_at(axis).add_constant_val(isl.Val(1))
    neighbour = isl.Map.from_multi_aff(shift.set_at(axis, moved)).intersect_domain(domain).intersect_range(domain)
    index = access.relation.project_out(kinds.out, position + 1, access.relation.dim(kinds.out) - position - 1)
    index = index.project_out(kinds.out, 0, position)
    # Without neighbours nothing moves: a stride of 0.
    pairs = neighbour.apply_domain(index).apply_range(index) if not neighbour.is_empty() else None
    if pairs is None:
        return 0
    differences = pairs.deltas()
    sample = differences.sample_point()
    value = sample.get_coordinate_val(kinds.set, 0)
    constant = isl.Set.universe(differences.get_space()).fix_val(kinds.set, 0, value)
    return int(value.to_python()) if differences.is_subset(constant) else None
