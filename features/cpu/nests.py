"""Loop nests of a kernel on a CPU, with the streams of accesses in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from perflex.features.polynomials.affine import read_constraints
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl

# Of the names that iterations of drivers have in polynomials.
DRIVER_PREFIX = "at_"
# Names of the loops over work-groups and work-items.
_GROUPS, _ITEMS = re.compile(r"gid\d+\b"), re.compile(r"lid\d+\b")
# Name of the loop over the work-items of a vector; no loop of a kernel can be called so.
LANE = "lane of lid0"


@dataclass(frozen=True)
class Loop:
    """A loop as the CPU runs it."""

    name: str  # ``gid0`` and ``lid0`` are the work-groups and work-items along axis 0
    # what identifies it among all loops: two nests with the same node run inside the same loop
    node: tuple[object, ...]
    extent: QuasiPolynomial  # iterations before any blocking; of a loop over blocks, those of the blocked loop
    part: str = "whole"  # ``"whole"``; or of a loop that is blocked, ``"outer"`` (over blocks) or ``"inner"`` (in one)
    base: str = ""  # name of the loop that is blocked, else its own name; the key of a block size
    # block size where none is given: the work-group's, or lanes; None for the loop's whole extent
    block: int | None = None
    fold: int = 1  # iterations that the data layout folds into one
    # what it begins with, in the iterations of outer loops (`Driver.parameter`) where it depends on those; None where
    # it depends on sizes
    first: int | QuasiPolynomial | None = 0
    # iterations in the sizes and iterations of outer loops (`Driver.parameter`), where they depend on those; `extent`
    # then is their largest number
    varying: QuasiPolynomial | None = None
    stride: int = 1  # by how much its variable grows per iteration
    own_name: str = ""  # one that no other loop has, if others have its name

    @property
    def driver(self) -> str:
        """Name among drivers."""
        return self.own_name or self.name


@dataclass(frozen=True)
class Step:
    """How an index moves with a loop: by `factor`, times the block size of `scale` if that is given.

    A fraction stands for an index that moves in some iterations only, as of ``i // 3``.
    """

    loop: int
    factor: float
    scale: str | None = None


@dataclass(frozen=True)
class Axis:
    """An axis of an array, as the accesses of a group use it."""

    stride: QuasiPolynomial  # distance between neighbours, in elements
    steps: tuple[Step, ...]  # movement with each loop, the smallest first
    extent: QuasiPolynomial  # elements of the array along it
    fold: int = 1  # what the stride is divided by: elements of axes with smaller strides that are folded


@dataclass(frozen=True)
class Stream:
    """One access, with all that touch the same element in the same iteration."""

    offset: tuple[int, ...]  # constant part of the index along each axis
    # loads, stores: how many accesses of either direction
    loads: int
    stores: int


@dataclass(frozen=True)
class StreamGroup:
    """Accesses of one array that move alike and differ by constants."""

    array: str  # the array
    space: str  # its address space
    itemsize: int  # size of an element, in bytes; of all elements that are folded into one
    axes: tuple[Axis, ...]  # the array's axes, the one with the smallest stride first
    streams: tuple[Stream, ...]  # the accesses, the one that comes to an element first before the others
    # distance of each stream from the next one, in iterations of each loop of the nest; one shorter than streams
    gaps: tuple[tuple[int, ...], ...]
    halo: tuple[int, ...]  # largest difference of offsets, along each axis
    touched_before: int | None  # index of the loop in whose iteration an earlier nest has touched the same, if one has
    text: str  # an access as written, for messages
    fold: int = 1  # elements that are folded into one
    # index along the first axis that the first iterations of all loops have beside the offset, in those of drivers
    # where it depends on them; None where that does not say where in a cache line rows begin
    begins: int | QuasiPolynomial | None = None
    # bytes from one iteration to the next of the loop along rows, where that is the same for all sizes
    near: int | None = None
    # whether each access is to any element of the array, as data decide: such a group has no axes
    scattered: bool = False
    note: str = ""  # what of its accesses is not followed exactly; empty where all is
    diagonal: bool = False  # whether a loop moves several axes, of which one has it as a step
    ends_fixed: bool = False  # whether rows begin where outer loops say, and all end at the same place


@dataclass(frozen=True)
class Driver:
    """A loop on which the range of others depends."""

    name: str  # the loop's `Loop.driver`
    # first, extent: its first iteration and their number, in the sizes and `parameter` of the drivers before it
    first: QuasiPolynomial
    extent: QuasiPolynomial

    @property
    def parameter(self) -> str:
        """Name of its iteration in polynomials."""
        return DRIVER_PREFIX + self.name


@dataclass(frozen=True)
class Nest:
    """Statements inside the same loops."""

    launch: int  # index of the launch
    loops: tuple[Loop, ...]  # the loops, outermost first
    groups: tuple[StreamGroup, ...]  # what they access
    count: QuasiPolynomial  # executions of the innermost body in one launch
    halos: tuple[int, ...]  # largest halo of any group along each loop, in iterations
    # loops on whose iteration the range of others depends, in this nest or else in one inside the same loops
    drivers: tuple[Driver, ...] = ()
    # executions that count for lines: with guards of ``%``, those that they leave out as well, in whose lines others
    # fall
    touching: QuasiPolynomial | None = None
    notes: tuple[str, ...] = ()  # what of it is not followed exactly

    @property
    def host_loops(self) -> int:
        """How many loops are around the launch, which is part of what identifies all others."""
        return sum(self.launch not in loop.node for loop in self.loops)

    @property
    def dealt_loops(self) -> tuple[int, ...]:
        """Loops whose iterations are dealt to cores, in contiguous parts of their common order, outermost first.

        Those are work-groups; where the kernel is loops alone, its blocks, or the iterations of its outermost loop.
        """
        grid = tuple(place for place, loop in enumerate(self.loops) if _GROUPS.match(loop.name))
        # One work-group runs on one core.
        if grid or any(_ITEMS.match(loop.name) for loop in self.loops):
            return grid
        blocks = tuple(place for place, loop in enumerate(self.loops) if loop.part == "outer")
        return blocks or tuple(range(len(self.loops)))[self.host_loops :][:1]

    @property
    def varying(self) -> tuple[str, ...]:
        """Names of the loops whose range depends on others."""
        return tuple(loop.name for loop in self.loops if loop.varying is not None)


@dataclass(frozen=True)
class Nests:
    """A kernel's nests."""

    name: str  # the kernel
    nests: tuple[Nest, ...]  # in the order of execution
    shapes: tuple[tuple[str, tuple[QuasiPolynomial, ...]], ...]  # extent of each array, in elements


def mark_touched_before(nests: Sequence[Nest]) -> tuple[Nest, ...]:
    """Return the nests with those groups marked that touch what an earlier nest in the same loops has touched."""
    result: list[Nest] = []
    for nest in nests:
        groups = []
        for group in nest.groups:
            shared = [
                common - 1
                for before in result
                for common in [shared_loops(before, nest)]
                if common and any(_covers(before, other, nest, group, common) for other in before.groups)
            ]
            # The innermost shared loop has the shortest reuse.
            groups.append(replace(group, touched_before=max(shared)) if shared else group)
        result.append(replace(nest, groups=tuple(groups)))
    return tuple(result)


def with_shared_drivers(nests: Sequence[Nest]) -> tuple[Nest, ...]:
    """Return the nests, where those without drivers get those of others that are loops of both."""
    result = []
    for nest in nests:
        around = (
            other.drivers
            for other in nests
            if {driver.name for driver in other.drivers}
            <= {loop.driver for loop in nest.loops[: shared_loops(nest, other)]}
        )
        result.append(nest if nest.drivers else replace(nest, drivers=next(filter(None, around), ())))
    return tuple(result)


def shared_loops(one: Nest, two: Nest) -> int:
    """Return how many of the outermost loops two nests have in common."""
    pairs = zip(one.loops, two.loops, strict=False)
    return next((depth for depth, (a, b) in enumerate(pairs) if a.node != b.node), min(len(one.loops), len(two.loops)))


def _covers(before: Nest, other: StreamGroup, nest: Nest, group: StreamGroup, common: int) -> bool:
    if (other.array, len(other.axes)) != (group.array, len(group.axes)) or group.scattered or other.scattered:
        return False
    for axis, (mine, its) in enumerate(zip(group.axes, other.axes, strict=True)):
        low, high = _range(other, axis)
        first, last = _range(group, axis)
        if _moved(nest, mine, common) != _moved(before, its, common) or first < low or last > high:
            return False
    return True


def _range(group: StreamGroup, axis: int) -> tuple[int, int]:
    offsets = [stream.offset[axis] for stream in group.streams]
    return min(offsets), max(offsets)


def _moved(nest: Nest, axis: Axis, common: int) -> tuple[object, ...]:
    # Loops that only one nest is in must be as long as the other's to visit the same range.
    return tuple(
        (step.loop, step.factor, step.scale)
        if step.loop < common
        else (step.factor, step.scale, nest.loops[step.loop].extent.text)
        for step in axis.steps
    )


# Iterations of one, two, ... loops that stand for all, of each; of more loops than these, two of each.
_SAMPLES = (16, 8, 4, 3)


def _dependences(names: Sequence[str], domain: Any) -> dict[str, tuple[str, ...]]:
    """Return the loops whose range depends on outer ones, each with those, by the names of the domain's dimensions."""
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
    """Return the first iteration of a dimension and the number of them, at given iterations of others (`drivers`).

    Those are dimensions with their names in the polynomials.
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


def varying_ranges(
    names: Sequence[str], domain: Any, loops: Sequence[str]
) -> tuple[tuple[Driver, ...], dict[str, tuple[QuasiPolynomial, QuasiPolynomial]]]:
    """Return the loops that decide ranges of others, outermost first, and the ranges of these at their iterations.

    A range is the first iteration and their number.
    `names` are those of the domain's dimensions. Work-items that a guard cuts off count as all.
    """
    domain = without_holes(domain)
    dependent = {name: outer for name, outer in _dependences(names, domain).items() if name in loops}
    chosen = [name for name in names if any(name in outer for outer in dependent.values())]
    drivers = []
    for number, name in enumerate(chosen):
        before = [(names.index(one), DRIVER_PREFIX + one) for one in chosen[:number]]
        drivers.append(Driver(name, *range_of(domain, names.index(name), before)))
    ranges = {}
    for name, outer in dependent.items():
        given = [(names.index(one.name), one.parameter) for one in drivers if one.name in outer]
        ranges[name] = range_of(domain, names.index(name), given)
    return tuple(drivers), ranges


@dataclass(frozen=True)
class Samples:
    """Some iterations of a nest's drivers that stand for all, along the last axis of arrays."""

    drivers: tuple[str, ...]  # names of the drivers
    each: int  # iterations of each, the last driver fastest
    places: Any  # how many iterations of all drivers each stands for
    weights: Any  # what part of the executions of the innermost body; they add up to 1
    exact: Mapping[str, Any]  # number of the iteration of each driver all of whose iterations are there

    def mean_over(self, loops: Sequence[str], value: Any) -> Any:
        """Return the mean of a value over the iterations of those drivers that are among some loops."""
        axes = tuple(number - len(self.drivers) for number, name in enumerate(self.drivers) if name in loops)
        if not axes:
            return value
        shape = np.broadcast_shapes(np.shape(value), self.places.shape)
        grid = (*shape[:-1], *[self.each] * len(self.drivers))
        values, places = (np.broadcast_to(one, shape).reshape(grid) for one in (value, self.places))
        # What stands for nothing has no weight in the end, whatever its mean.
        places = np.where(places.sum(axis=axes, keepdims=True) > 0, places, 1.0)
        mean = (values * places).sum(axis=axes, keepdims=True) / places.sum(axis=axes, keepdims=True)
        return np.broadcast_to(mean, grid).reshape(shape)


def sampled(nest: Nest, sizes: Mapping[str, Any]) -> tuple[dict[str, Any], Samples]:
    """Return sizes with some iterations of a nest's drivers beside them.

    Sizes become arrays with one more axis, the last one. Of drivers that have no more iterations than are taken, each
    is there once.
    """
    each = (*_SAMPLES, *[2] * len(nest.drivers))[len(nest.drivers) - 1]
    parts = [grid.ravel() for grid in np.meshgrid(*[np.arange(each)] * len(nest.drivers), indexing="ij")]
    shape = np.broadcast_shapes(*(np.shape(value) for value in sizes.values()), ())
    count = len(parts[0])
    at: dict[str, Any] = {
        name: np.broadcast_to(np.asarray(value)[..., None], (*shape, count)) for name, value in sizes.items()
    }
    places = np.ones((*shape, count))
    exact = {}
    for driver, part in zip(nest.drivers, parts, strict=True):
        first, extent = (_array(one, at, places.shape) for one in (driver.first, driver.extent))
        few = np.minimum(part, np.maximum(extent - 1, 0))
        chosen = np.where(extent <= each, few, (part + 0.5) / each * extent)
        at[driver.parameter] = np.floor(first + chosen).astype(np.int64)
        places = places * np.where(extent <= each, part < extent, extent / each)
        if np.all(extent <= each):
            exact[driver.name] = np.floor(few)
    weights = places
    driving = {driver.name for driver in nest.drivers}
    for loop in nest.loops:
        if loop.varying is not None and loop.driver not in driving:
            weights = weights * np.maximum(_array(loop.varying, at, weights.shape), 0)
    total = weights.sum(axis=-1, keepdims=True)
    names = tuple(driver.name for driver in nest.drivers)
    return at, Samples(names, each, places, weights / np.where(total > 0, total, 1.0), exact)


def _array(polynomial: QuasiPolynomial, sizes: Mapping[str, Any], shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(np.asarray(polynomial.evaluate(sizes), dtype=float), shape)


def loop_strides(domain: Any, places: Sequence[int]) -> list[int]:
    """Return by how much the loops at some dimensions grow per iteration."""
    return [max(1, int(domain.get_stride(place).to_python())) for place in places]


def per_iteration(extent: QuasiPolynomial, stride: int) -> QuasiPolynomial:
    """Return the iterations of a loop from the values between its first and last, both counted."""
    if stride == 1:
        return extent
    return (extent + QuasiPolynomial.constant(stride - 1)) * Fraction(1, stride)


def without_holes(domain: Any) -> Any:
    """Return a domain with the iterations that constraints with ``%`` or ``//`` of its loops leave out."""
    if not any(True for _ in _divided(domain)):
        return domain
    return domain.remove_divs_involving_dims(isl.dim_type.set, 0, domain.dim(isl.dim_type.set))


def holes_of(domain: Any, sequential: range) -> bool:
    """Return whether iterations are left out by more than the steps of sequential loops."""
    return any(len(dims) != 1 or not dims.issubset(sequential) for dims in _divided(domain))


def _divided(domain: Any) -> Iterator[frozenset[int]]:
    """Return, for each constraint with a division of loops, the dimensions of these."""
    for conjunction in domain.compute_divs().get_basic_sets():
        yield from (row.floor_dims for row, _ in read_constraints(conjunction) if row.floor_dims)
