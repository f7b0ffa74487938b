"""Recognising the 3-D stencils that Su's closed forms are for (Su et al. 2015, Sections 2.2 and 3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.gpu.su_accesses import StencilAccess, global_accesses
from perflex.features.polynomials.cardinality import at_sizes
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.scop.scop import Launch, Scop

_AXES = "xyz"


@dataclass(frozen=True)
class LoadedArray:
    """What a work-item loads of one array.

    Attributes
    ----------
    name
        The array.
    halo
        Values beyond the work-item's own points along x, y and z, both sides together: Su's halo_width.
    aligned, misaligned
        Distinct values that a work-item loads, in its own column of x and beside it.
    """

    name: str
    halo: tuple[int, int, int]
    aligned: int
    misaligned: int


@dataclass(frozen=True)
class SuStencil:
    """A stencil on a 3-D grid as Su's closed forms see it; x is the fastest axis.

    Attributes
    ----------
    grid
        Computed points along x, y and z.
    group
        Work-items of a work-group along x, y and z.
    chunk
        Consecutive points along z that each work-item computes.
    itemsize
        Bytes of a value.
    loads
        Each array that is read.
    stores
        Values that a work-item stores.
    """

    grid: tuple[int, int, int]
    group: tuple[int, int, int]
    chunk: int
    itemsize: int
    loads: tuple[LoadedArray, ...]
    stores: int

    @property
    def items_per_group(self) -> int:
        """Work-items of a work-group."""
        return prod(self.group)


def recognise_stencil(scop: Scop, sizes: Mapping[str, int]) -> SuStencil:
    """Return a kernel as a stencil of Su's kind.

    Each work-item computes one point, or `chunk` consecutive ones along z, of one or more arrays from a
    neighbourhood of the same points of others; work-groups divide the grid evenly.

    Raises
    ------
    UnsupportedKernelError
        The kernel is something else; the message says what.
    """
    launch = _only_launch(scop, sizes)
    accesses = global_accesses(scop, sizes)
    stores = [access for access in accesses if access.direction == "store"]
    loads = [access for access in accesses if access.direction == "load"]
    if not stores or not loads:
        raise refused(scop, "it does not both load and store global arrays")
    movement = stores[0].movement
    other = next((access for access in accesses if access.movement != movement), None)
    if other is not None:
        raise refused(scop, f"{other.text} moves through its array otherwise than {stores[0].text}", access=other.text)
    itemsizes = {access.itemsize for access in accesses}
    if len(itemsizes) > 1:
        raise refused(scop, "its arrays have elements of different sizes")
    chunk, written = _chunk(scop, stores)
    group, groups = _shape(scop, sizes, launch, movement, chunk)
    return SuStencil(
        grid=(group[0] * groups[0], group[1] * groups[1], group[2] * groups[2] * chunk),
        group=group,
        chunk=chunk,
        itemsize=itemsizes.pop(),
        loads=tuple(
            _loaded(scop, name, [access for access in loads if access.array == name], chunk)
            for name in dict.fromkeys(access.array for access in loads)
        ),
        stores=chunk * written,
    )


def refused(scop: Scop, reason: str, **context: str) -> UnsupportedKernelError:
    """Return the error for a kernel that is no stencil of Su's kind."""
    msg = f"kernel {scop.name!r} is no stencil of Su's closed forms: {reason}; f_vol_... features take any kernel"
    return UnsupportedKernelError(msg, kernel=scop.name, **context)


def _only_launch(scop: Scop, sizes: Mapping[str, int]) -> Launch:
    if len(scop.launches) != 1 or scop.launches[0].repeats.evaluate(sizes) != 1:
        raise refused(scop, "it is launched more than once")
    if scop.barriers or any(array.space == "local" for array in scop.arrays):
        raise refused(scop, "it uses local memory or barriers, which they leave out (Section 3.6)")
    launch = scop.launches[0]
    if not all(extent.evaluate(sizes) > 0 for extent in launch.groups):
        raise refused(scop, "it has no work-groups at these sizes")
    for statement in scop.statements:
        if not statement.exact:
            raise refused(scop, f"statement {statement.name!r} is executed under a condition on data")
        if any(scop.array(access.array).space == "global" for access in statement.accesses):
            _require_same_work(scop, sizes, statement.domain, launch)
    return launch


def _require_same_work(scop: Scop, sizes: Mapping[str, int], domain: Any, launch: Launch) -> None:
    """Stop unless every work-item executes the same instances."""
    extents = [int(extent.evaluate(sizes)) for extent in launch.groups] + list(launch.items)
    with ISL_LOCK:
        there = at_sizes(domain, sizes)
        loops = there.dim(isl.dim_type.set) - len(extents)
        first = there
        for axis in range(len(extents)):
            first = first.fix_val(isl.dim_type.set, axis, isl.Val(0))
        names = [f"a{i}" for i in range(len(extents))]
        bounds = " and ".join(f"0 <= {name} < {extent}" for name, extent in zip(names, extents, strict=True))
        every = isl.Set(f"{{ [{', '.join([*names, *(f's{i}' for i in range(loops))])}] : {bounds} }}")
        # With equal work for all, the domain is the first work-item's loops times all work-items.
        same = first.project_out(isl.dim_type.set, 0, len(extents)).insert_dims(isl.dim_type.set, 0, len(extents))
        # isl tells named from unnamed tuples, and `every` has no name.
        if not there.reset_tuple_id().is_equal(same.intersect(every)):
            reason = "work-groups do not divide the grid evenly, or some work-items compute something else"
            raise refused(scop, reason)


def _chunk(scop: Scop, stores: Sequence[StencilAccess]) -> tuple[int, int]:
    """Return the number of consecutive points of a work-item, and that of arrays it stores to."""
    points: dict[str, set[tuple[int, ...]]] = {}
    for access in stores:
        points.setdefault(access.array, set()).update(access.points)
    counts = set()
    for name, found in points.items():
        for axis in (0, 1):
            several = len({point[axis] for point in found})
            if several > 1:
                reason = f"each work-item computes {several} points of {name!r} along {_AXES[axis]}, not only along z"
                raise refused(scop, reason)
        planes = sorted(point[2] for point in found)
        if planes != list(range(planes[0], planes[0] + len(planes))):
            raise refused(scop, f"the points of a work-item in {name!r} are not consecutive along z")
        counts.add(len(planes))
    if len(counts) > 1:
        raise refused(scop, "it stores different numbers of points to its arrays")
    return counts.pop(), len(points)


def _shape(
    scop: Scop, sizes: Mapping[str, int], launch: Launch, movement: tuple[tuple[int, ...], ...], chunk: int
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the work-group's extents and the numbers of work-groups along x, y and z."""
    extents = [int(extent.evaluate(sizes)) for extent in launch.groups]
    group, groups = [1, 1, 1], [1, 1, 1]
    for axis, coefficients in enumerate(movement):
        step = chunk if axis == 2 else 1
        by_group, by_item = coefficients[: len(extents)], coefficients[len(extents) :]
        for local, coefficient in enumerate(by_item):
            if coefficient and launch.items[local] > 1:
                if coefficient != step or group[axis] > 1:
                    raise refused(scop, _skips(axis, coefficient, step))
                group[axis] = launch.items[local]
        for number, coefficient in enumerate(by_group):
            if coefficient and extents[number] > 1:
                if coefficient != step * group[axis] or groups[axis] > 1:
                    raise refused(scop, _skips(axis, coefficient, step * group[axis]))
                groups[axis] = extents[number]
    if prod(group) != launch.group_size or prod(groups) != prod(extents):
        raise refused(scop, "several work-items compute the same point, or its arrays have no three axes")
    return (group[0], group[1], group[2]), (groups[0], groups[1], groups[2])


def _skips(axis: int, found: int, expected: int) -> str:
    return f"neighbours along {_AXES[axis]} are {found} points apart where {expected} would leave no gap"


def _loaded(scop: Scop, name: str, accesses: Sequence[StencilAccess], chunk: int) -> LoadedArray:
    points = set().union(*(access.points for access in accesses))
    low = [min(point[axis] for point in points) for axis in range(3)]
    halo = [max(point[axis] for point in points) - low[axis] for axis in range(3)]
    # The chunk's own points along z are no halo.
    halo[2] -= chunk - 1
    for axis, width in enumerate(halo):
        # Su's halo_width counts both sides (2 at radius 1), so an odd one is no symmetric stencil.
        if width < 0 or width % 2:
            reason = f"the points of {name!r} that it reads lie unevenly about its own along {_AXES[axis]}"
            raise refused(scop, reason, access=accesses[0].text)
    centre = low[0] + halo[0] // 2
    # Eq. 4: loads beside the centre column straddle a 128-byte boundary and count twice.
    aligned = sum(point[0] == centre for point in points)
    return LoadedArray(name, (halo[0], halo[1], halo[2]), aligned, len(points) - aligned)
