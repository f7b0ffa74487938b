"""The loops of a kernel as a tree of isl sets, and the address arithmetic of accesses in it.

Addresses are counted as a compiler that shares and strength-reduces them would compute them, in integer instructions:

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

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from perflex.features.polynomials.affine import Affine, without_cases
from perflex.features.scop.address_maps import most_unrolled, paths_of
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perflex.features.scop.scop import Access, Scop, Statement

    # Whether something is met for the first time.
    _New = Callable[..., bool]


@dataclass
class CountedLoop:
    """A sequential loop of a launch, or (the root) all of the launch, in each iteration of the host's loops."""

    number: int | None  # its place among the launch's loops, negative for lanes of a statement; None for the root
    parent: int | None  # that of the loop around it
    depth: int  # number of loops of the device program around and including it
    iterations: Any  # isl set of (work-group, work-item, loop values) that execute it, or for the root, of launches
    weight: Fraction = Fraction(1)  # executions per element of that set
    unrolled: bool = False  # whether all that enter it execute the same few iterations at all sizes


@dataclass
class CountedNest:
    """The loops of one launch."""

    launch: int  # its index
    axes: int  # number of work-group and work-item axes, and of loops of the host around the launch
    root: CountedLoop  # all work-items of work-groups that do anything
    loops: dict[int, CountedLoop] = field(default_factory=dict)  # by number, outer ones first
    # numbers of the loops around each statement, by the statement's index in the Scop
    paths: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def around(self, number: int) -> list[CountedLoop]:
        """Return the root and the loops around a statement, outermost first."""
        return [self.root, *(self.loops[loop] for loop in self.paths[number])]

    def parent(self, loop: CountedLoop) -> CountedLoop:
        """Return the loop around a loop."""
        return self.root if loop.parent is None else self.loops[loop.parent]

    def entries(self, loop: CountedLoop) -> Any:
        """Return the instances that enter a loop: its iterations without the loop's own dimension."""
        return loop.iterations.project_out(isl.dim_type.set, self.axes + loop.depth - 1, 1)


def nests_of(scop: Scop) -> list[CountedNest]:
    """Return the loop nests of all launches that execute a statement."""

    def compute() -> list[CountedNest]:
        found: dict[int, list[tuple[int, Statement]]] = {}
        for number, statement in enumerate(scop.statements):
            found.setdefault(statement.launch, []).append((number, statement))
        return [_nest(scop, launch, mine) for launch, mine in sorted(found.items())]

    return scop.derived("loop nests", (), compute)


def _nest(scop: Scop, launch: int, mine: list[tuple[int, Statement]]) -> CountedNest:
    groups, items = len(scop.launches[launch].groups), scop.launches[launch].items
    host = sum(loop.kind == "host" for loop in scop.launches[launch].loops)
    axes = scop.launches[launch].axes + host
    domains = [statement.domain.intersect_params(scop.assumptions.params()) for _, statement in mine]
    domains += [barrier.domain for barrier in scop.barriers if barrier.launch == launch]
    nest = CountedNest(launch, axes, CountedLoop(None, None, 0, _work_items(domains, axes, groups, items)))
    reached: dict[int, dict[str, Any]] = {}
    # Domains of barriers stand behind those of the statements.
    for (number, statement), domain in zip(mine, domains, strict=False):
        path = nest.paths[number] = paths_of(number, statement)[host:]
        for depth, (around, at) in enumerate(zip((None, *path), path, strict=False), 1):
            part = _outer(domain, axes + depth)
            reached.setdefault(at, {})[str(part)] = part
            nest.loops.setdefault(at, CountedLoop(at, around, depth, None, scop.weight(statement, host + depth)))
    nest.loops = dict(sorted(nest.loops.items(), key=lambda entry: entry[1].depth))
    for number, loop in nest.loops.items():
        loop.iterations = _union(list(reached[number].values()))
        # Lanes of a statement are no loop of the source.
        own = scop.launches[launch].loops[number] if number >= 0 else None
        most = most_unrolled(own)
        if own is not None and own.trips is not None:
            loop.unrolled = own.trips <= most
        else:
            loop.unrolled = _is_constant(loop.iterations, axes + loop.depth - 1, most)
    return nest


def _outer(domain: Any, dims: int) -> Any:
    return domain.project_out(isl.dim_type.set, dims, domain.dim(isl.dim_type.set) - dims)


def _work_items(domains: list[Any], axes: int, groups: int, items: tuple[int, ...]) -> Any:
    """Return all work-items of the work-groups that execute anything, in each iteration of the host's loops."""
    parts = (_outer(domain, axes).project_out(isl.dim_type.set, groups, len(items)) for domain in domains)
    active = _union(list({str(part): part for part in parts}.values()))
    active = active.insert_dims(isl.dim_type.set, groups, len(items))
    for axis, extent in enumerate(items):
        active = active.lower_bound_val(isl.dim_type.set, groups + axis, isl.Val(0))
        active = active.upper_bound_val(isl.dim_type.set, groups + axis, isl.Val(extent - 1))
    return active.coalesce()


def _union(parts: list[Any]) -> Any:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    return whole.coalesce()


def _is_constant(iterations: Any, position: int, most: int) -> bool:
    """Return whether all that enter a loop execute the same few iterations at all sizes."""
    low, high = iterations.dim_min_val(position), iterations.dim_max_val(position)
    if not (low.is_int() and high.is_int()) or int((high - low).to_python()) >= most:
        return False
    # Equal limits overall are not enough: each entry must run the whole range.
    every = iterations.project_out(isl.dim_type.set, position, 1).insert_dims(isl.dim_type.set, position, 1)
    every = every.lower_bound_val(isl.dim_type.set, position, low).upper_bound_val(isl.dim_type.set, position, high)
    return bool(every.is_subset(iterations))


# By the rule above: shift, mask and multiply-add; and what an axis of an unknown address takes.
_DIVISION = 3
_UNKNOWN = 2


# A subscript, and whether the distance of neighbours along its axis is known at compile time.
_Axis = tuple[Affine, bool]


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
            elif new("unknown", access.array, access.text, around[-1].number):
                yield _UNKNOWN * int(access.relation.dim(isl.dim_type.out)), around[-1]


def _indices(axes: list[_Axis], around: list[CountedLoop], first: int, new: _New) -> Iterator[tuple[int, CountedLoop]]:
    for axis, _ in axes:
        items = tuple(term for term in axis.dim_terms if term[0] < first)
        if items and new("index", items):
            # n terms are n - 1 multiply-adds; a single one is a multiplication, unless its factor is 1.
            yield len(items) - (len(items) > 1 or items[0][1] == 1), around[0]
        for floor, _ in axis.floors:
            home = around[_depth(floor.dims, first)]
            if new("floor", floor, home.number):
                yield _DIVISION, home


def _address(
    array: str, axes: list[_Axis], around: list[CountedLoop], first: int, new: _New
) -> Iterator[tuple[int, CountedLoop]]:
    # Of addresses a constant distance apart, the same.
    moving = tuple((axis.dim_terms, tuple(floor for floor, _ in axis.floors)) for axis, _ in axes)
    # An offset along an axis whose stride is not known makes another address.
    offsets = tuple(
        (axis.constant, frozenset(axis.terms).difference(axis.dim_terms)) for axis, fixed in axes if not fixed
    )
    loops = tuple(around[_depth(axis.dims, first)].number for axis, _ in axes)
    if new("address", array, moving, loops):
        varying = sum(1 for axis, _ in axes if any(dim < first for dim in axis.dims))
        yield max(1, varying), around[0]
        # The address is the first of its offsets: only further ones cost an addition.
        new("offset", array, moving, loops, offsets)
    elif new("offset", array, moving, loops, offsets):
        yield 1, around[0]
    for depth, loop in enumerate(around[1:], 1):
        steps = [fixed for axis, fixed in axes if axis.coefficient(first + depth - 1)]
        moves = not all(steps) if loop.unrolled else bool(steps)
        if moves and new("step", array, moving, offsets, loop.number):
            yield 1, loop


def _depth(dims: frozenset[int], first: int) -> int:
    """Return the depth of the innermost loop among dimensions, 0 if there is none."""
    return max((dim - first + 1 for dim in dims), default=0) if any(dim >= first for dim in dims) else 0


def moves(scop: Scop, access: Access, nest: CountedNest, number: int) -> bool:
    """Return whether an access of a statement, given by its number, is to an address that compilers do not know."""
    axes, loops = _axes(scop, access), nest.around(number)[1:]
    if axes is None:
        return True
    return any(dim < nest.axes or not loops[dim - nest.axes].unrolled for axis, _ in axes for dim in axis.dims)


def _axes(scop: Scop, access: Access) -> list[_Axis] | None:
    """Return the indices of an access; None where they are given by cases or not known."""
    if not access.relation.is_single_valued():
        return None
    indices = without_cases(access.relation)
    strides = access.strides if access.strides is not None else scop.array(access.array).strides
    if None in indices:
        return None
    return [(index, not stride.parameters) for index, stride in zip(indices, strides, strict=True) if index is not None]
