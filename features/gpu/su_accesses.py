"""The accesses of a 3-D grid kernel: how they move with the work-item, and what one work-item touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.cardinality import at_sizes
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.scop.scop import Access, Scop, Statement

# A work-item with more iterations computes no stencil.
_MOST_POINTS = 65536


@dataclass(frozen=True)
class StencilAccess:
    """An access of a global array with three axes.

    Attributes
    ----------
    array, direction, text
        As the access has them.
    itemsize
        Bytes of an element.
    movement
        For x, y and z (fastest axis first): by how many elements each group and local axis moves it.
    points
        Elements, as (x, y, z), that the first work-item touches.
    """

    array: str
    direction: str
    text: str
    itemsize: int
    movement: tuple[tuple[int, ...], ...]
    points: frozenset[tuple[int, ...]]


def global_accesses(scop: Scop, sizes: Mapping[str, int]) -> list[StencilAccess]:
    """Return the accesses of global arrays that are executed at the given sizes.

    Raises
    ------
    UnsupportedKernelError
        An array has another number of axes, or a subscript is not affine; the access is named.
    """
    found = [
        _read(scop, statement, access, sizes)
        for statement in scop.statements
        for access in statement.accesses
        if scop.array(access.array).space == "global"
    ]
    return [access for access in found if access.points]


def _refused(scop: Scop, access: Access, reason: str) -> UnsupportedKernelError:
    what = access.text or access.array
    msg = f"kernel {scop.name!r} is no stencil of Su's closed forms: {what} {reason}"
    return UnsupportedKernelError(msg, kernel=scop.name, access=what)


def _read(scop: Scop, statement: Statement, access: Access, sizes: Mapping[str, int]) -> StencilAccess:
    array = scop.array(access.array)
    strides = [int(stride.evaluate(sizes)) for stride in access.strides or array.strides]
    order = sorted(range(len(strides)), key=lambda axis: strides[axis])
    if len(strides) != 3 or strides[order[0]] != 1:
        raise _refused(scop, access, "is no access of an array with three axes, the fastest of which is contiguous")
    launch = scop.launches[statement.launch]
    axes = len(launch.groups) + len(launch.items)
    with ISL_LOCK:
        rows = [_coefficients(scop, access, axis, sizes) for axis in order]
        loops = _loop_values(scop, access, statement, axes, sizes)
    points = frozenset(
        tuple(constant + sum(c * v for c, v in zip(row[axes:], values, strict=True)) for row, constant in rows)
        for values in loops
    )
    return StencilAccess(
        access.array,
        access.direction,
        access.text or access.array,
        array.itemsize,
        tuple(tuple(row[:axes]) for row, _ in rows),
        points,
    )


def _coefficients(scop: Scop, access: Access, axis: int, sizes: Mapping[str, int]) -> tuple[list[int], int]:
    """Return the coefficients of an index by the instance's dimensions, and its constant."""
    if not access.relation.is_single_valued():
        raise _refused(scop, access, "touches one of several elements, which one is not known")
    pieces: list[Any] = []
    function = isl.PwMultiAff.from_map(access.relation).get_pw_aff(axis)
    function.foreach_piece(lambda _, affine: pieces.append(affine))
    # A div is isl's floor, from // or % in the subscript.
    if len(pieces) != 1 or pieces[0].dim(isl.dim_type.div):
        raise _refused(scop, access, "has a subscript that is not affine in the work-item")
    affine = pieces[0]
    inputs = range(affine.dim(isl.dim_type.in_))
    row = [affine.get_coefficient_val(isl.dim_type.in_, i).to_python() for i in inputs]
    constant = affine.get_constant_val().to_python()
    for i in range(affine.dim(isl.dim_type.param)):
        coefficient = affine.get_coefficient_val(isl.dim_type.param, i).to_python()
        if coefficient:
            constant += coefficient * int(sizes[affine.get_dim_name(isl.dim_type.param, i)])
    return row, constant


def _loop_values(
    scop: Scop, access: Access, statement: Statement, axes: int, sizes: Mapping[str, int]
) -> list[tuple[int, ...]]:
    """Return the values of the sequential loops in the first work-item."""
    inner = at_sizes(statement.domain, sizes)
    for axis in range(axes):
        inner = inner.fix_val(isl.dim_type.set, axis, isl.Val(0))
    inner = inner.project_out(isl.dim_type.set, 0, axes)
    count = inner.dim(isl.dim_type.set)
    if not inner.is_bounded() or (count and inner.count_val().to_python() > _MOST_POINTS):
        raise _refused(scop, access, f"is executed more than {_MOST_POINTS} times by a work-item")
    found: list[tuple[int, ...]] = []
    inner.foreach_point(
        lambda point: found.append(
            tuple(point.get_coordinate_val(isl.dim_type.set, i).to_python() for i in range(count))
        )
    )
    return found
