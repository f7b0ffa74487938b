"""Address arithmetic of accesses, as a compiler that shares and strength-reduces it would do it.

The rule, in integer instructions:

* each different index of work-group and work-item along an array axis, such as ``16*gid + lid``, is computed once: a
  multiply-add for each term after the first, and one if a single term has a factor;
* each different address is computed once: a multiply-add for each array axis that varies between work-items after the
  first, and one for the array's base. Addresses that differ by a constant number of bytes are one: the constant is
  part of the instruction. Where the distance depends on a size (the next row), it is one addition more;
* where an address moves with a loop, one addition per iteration; none in a loop that is unrolled, if the step is known
  at compile time;
* a division or remainder by a constant takes two instructions (shift and mask) and a multiply-add, for each iteration
  of the loops it depends on;
* an address that is given by cases, or not known, is computed anew each time: two instructions for each axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perflex.features.instructions.nest import CountedLoop, CountedNest
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
    from perflex.features.scop.scop import Access, Scop

    # Whether something is met for the first time.
    _New = Callable[..., bool]

# By the rule above: shift, mask and multiply-add; and what an axis of an unknown address takes.
_DIVISION = 3
_UNKNOWN = 2


@dataclass(frozen=True)
class _Axis:
    """An index along an array axis.

    Attributes
    ----------
    terms
        (dimension, coefficient), without floors.
    floors
        (text, dimensions) of each division by a constant.
    constant
        What is added.
    fixed_stride
        Whether the distance of neighbours along the axis is known at compile time.
    """

    terms: tuple[tuple[int, int], ...]
    floors: tuple[tuple[str, frozenset[int]], ...]
    constant: str
    fixed_stride: bool

    @property
    def moving(self) -> object:
        """What is the same for addresses a constant distance apart."""
        return self.terms, self.floors

    def dims(self) -> frozenset[int]:
        return frozenset(dim for dim, _ in self.terms).union(*(dims for _, dims in self.floors))


def address_work(scop: Scop, nest: CountedNest) -> Iterator[tuple[int, CountedLoop]]:
    """Yield (integer instructions, the loop or root that executes them) for all accesses of a launch."""
    seen: set[object] = set()

    def new(*key: object) -> bool:
        known = key in seen
        seen.add(key)
        return not known

    for number in nest.paths:
        around = nest.around(number)
        for access in scop.statements[number].accesses:
            if scop.array(access.array).space == "private":
                continue
            axes = _axes(scop, access)
            if axes is not None:
                yield from _indices(axes, around, nest.axes, new)
                yield from _address(access.array, axes, around, nest.axes, new)
            elif new("unknown", access.array, access.text, around[-1].path):
                yield _UNKNOWN * int(access.relation.dim(isl.dim_type.out)), around[-1]


def _indices(axes: list[_Axis], around: list[CountedLoop], first: int, new: _New) -> Iterator[tuple[int, CountedLoop]]:
    for axis in axes:
        items = tuple((dim, factor) for dim, factor in axis.terms if dim < first)
        if items and new("index", items):
            # n terms are n - 1 multiply-adds; a single one is a multiplication, unless its factor is 1.
            yield len(items) - (len(items) > 1 or items[0][1] == 1), around[0]
        for text, dims in axis.floors:
            home = around[_depth(dims, first)]
            if new("floor", text, home.path):
                yield _DIVISION, home


def _address(
    array: str, axes: list[_Axis], around: list[CountedLoop], first: int, new: _New
) -> Iterator[tuple[int, CountedLoop]]:
    moving = tuple(axis.moving for axis in axes)
    # An offset along an axis whose stride is not known makes another address.
    offsets = tuple(axis.constant for axis in axes if not axis.fixed_stride)
    loops = tuple(around[_depth(axis.dims(), first)].path for axis in axes)
    if new("address", array, moving, loops):
        varying = sum(1 for axis in axes if any(dim < first for dim in axis.dims()))
        yield max(1, varying), around[0]
        # The address is the first of its offsets: only further ones cost an addition.
        new("offset", array, moving, loops, offsets)
    elif new("offset", array, moving, loops, offsets):
        yield 1, around[0]
    for depth, loop in enumerate(around[1:], 1):
        steps = [axis for axis in axes if any(dim == first + depth - 1 for dim, _ in axis.terms)]
        moves = any(not axis.fixed_stride for axis in steps) if loop.unrolled else bool(steps)
        if moves and new("step", array, moving, offsets, loop.path):
            yield 1, loop


def _depth(dims: frozenset[int], first: int) -> int:
    """Return the depth of the innermost loop among dimensions, 0 if there is none."""
    return max((dim - first + 1 for dim in dims), default=0) if any(dim >= first for dim in dims) else 0


def _axes(scop: Scop, access: Access) -> list[_Axis] | None:
    """Return the indices of an access; None where they are given by cases or not known."""
    if not access.relation.is_single_valued():
        return None
    function = access.relation.as_pw_multi_aff()
    strides = access.strides if access.strides is not None else scop.array(access.array).strides
    axes = []
    for position in range(function.dim(isl.dim_type.out)):
        pieces = function.get_at(position).get_pieces()
        if len(pieces) != 1:
            return None
        axes.append(_axis(pieces[0][1], strides[position]))
    return axes


def _axis(affine: Any, stride: QuasiPolynomial) -> _Axis:
    kinds = isl.dim_type
    terms = [
        # isl returns rationals: times their common denominator they are whole.
        (dim, int((value * affine.get_denominator_val()).to_python()))
        for dim in range(affine.dim(kinds.in_))
        if not (value := affine.get_coefficient_val(kinds.in_, dim)).is_zero()
    ]
    floors = []
    for place in range(affine.dim(kinds.div)):
        if affine.get_coefficient_val(kinds.div, place).is_zero():
            continue
        inner = affine.get_div(place)
        dims = frozenset(dim for dim in range(inner.dim(kinds.in_)) if inner.involves_dims(kinds.in_, dim, 1))
        floors.append((str(inner), dims))
    added = [str(affine.get_constant_val())]
    added += [str(affine.get_coefficient_val(kinds.param, place)) for place in range(affine.dim(kinds.param))]
    return _Axis(tuple(terms), tuple(floors), " ".join(added), not stride.parameters)
