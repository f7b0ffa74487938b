"""Su's closed forms of the data traffic of 3-D stencils, and the kernels that they are for.

Su, Cai, Wen and Zhang 2015: Sections 2.2 and 3.5, Eqs. 3 to 18. Their "group" of thread blocks is a wave here, and each
step has a name of its own, so that the paper's Table 2 can be read row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.gpu.resolved_launch import ResolvedLaunch, ResolvedPiece, resolve
from perflex.features.scop.scop import Scop
from perflex.machines.machine import Machine
from perflex.machines.residency import Residency, residency

# A work-item with more iterations computes no stencil.
_MOST_POINTS = 65536


_AXES = "xyz"


@dataclass(frozen=True)
class StencilAccess:
    """An access of a global array with three axes."""

    array: str
    direction: str
    text: str
    itemsize: int  # bytes of an element
    # for x, y and z (fastest axis first): by how many elements each group and local axis moves it
    movement: tuple[tuple[int, ...], ...]
    points: frozenset[tuple[int, ...]]  # elements, as (x, y, z), that the first work-item touches


@dataclass(frozen=True)
class LoadedArray:
    """What a work-item loads of one array."""

    name: str
    # values beyond the work-item's own points along x, y and z, both sides together: Su's halo_width
    halo: tuple[int, int, int]
    aligned: int  # distinct values that a work-item loads in its own column of x
    misaligned: int  # ... and beside it


@dataclass(frozen=True)
class SuStencil:
    """A stencil on a 3-D grid as Su's closed forms see it; x is the fastest axis."""

    grid: tuple[int, int, int]  # computed points along x, y and z
    group: tuple[int, int, int]  # work-items of a work-group along x, y and z
    chunk: int  # consecutive points along z that each work-item computes
    itemsize: int  # bytes of a value
    loads: tuple[LoadedArray, ...]  # each array that is read
    stores: int  # values that a work-item stores

    @property
    def items_per_group(self) -> int:
        """Work-items of a work-group."""
        return prod(self.group)


def recognise_stencil(scop: Scop, sizes: Mapping[str, int]) -> SuStencil:
    """Return a kernel as a stencil of Su's kind; an `UnsupportedKernelError` says why another is none.

    Each work-item computes one point, or `chunk` consecutive ones along z, of one or more arrays from a
    neighbourhood of the same points of others; work-groups divide the grid evenly.
    """
    launch = _only_launch(scop, sizes)
    accesses = [access for piece in launch.pieces for access in _accesses(scop, launch, piece)]
    stores = [access for access in accesses if access.direction == "store"]
    loads = [access for access in accesses if access.direction == "load"]
    if not stores or not loads:
        raise _refused(scop, "it does not both load and store global arrays")
    movement = stores[0].movement
    other = next((access for access in accesses if access.movement != movement), None)
    if other is not None:
        raise _refused(scop, f"{other.text} moves through its array otherwise than {stores[0].text}", access=other.text)
    itemsizes = {access.itemsize for access in accesses}
    if len(itemsizes) > 1:
        raise _refused(scop, "its arrays have elements of different sizes")
    chunk, written = _chunk(scop, stores)
    group, groups = _shape(scop, launch, movement, chunk)
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


def _refused(scop: Scop, reason: str, **context: str) -> UnsupportedKernelError:
    msg = f"kernel {scop.name!r} is no stencil of Su's closed forms: {reason}; f_vol_... features take any kernel"
    return UnsupportedKernelError(msg, kernel=scop.name, **context)


def _only_launch(scop: Scop, sizes: Mapping[str, int]) -> ResolvedLaunch:
    if len(scop.launches) != 1 or scop.launches[0].repeats.evaluate(sizes) != 1:
        raise _refused(scop, "it is launched more than once")
    if scop.barriers or any(array.space == "local" for array in scop.arrays):
        raise _refused(scop, "it uses local memory or barriers, which they leave out (Section 3.6)")
    if not all(extent.evaluate(sizes) > 0 for extent in scop.launches[0].groups):
        raise _refused(scop, "it has no work-groups at these sizes")
    for statement in scop.statements:
        if statement.guarded or scop.assumed(statement):
            raise _refused(scop, f"statement {statement.name!r} is executed under a condition on data")
    return resolve(scop, sizes, register_reuse=False)[0]


def _accesses(scop: Scop, launch: ResolvedLaunch, piece: ResolvedPiece) -> Iterator[StencilAccess]:
    """Yield the accesses of global arrays, which every work-item has to execute alike."""
    accesses = [access for access in piece.accesses if launch.spaces[access.array] == "global"]
    every = tuple((0, extent - 1) for extent in (*launch.groups, *launch.items))
    axes = len(every)
    guarded = any(dim < axes for form in piece.constraints for dim in form.dims)
    if accesses and (guarded or piece.ranges[:axes] != every):
        raise _refused(scop, "work-groups do not divide the grid evenly, or some work-items compute something else")
    loops = piece.ranges[axes:]
    for access in accesses:
        order = sorted(range(len(access.axes)), key=lambda axis: access.strides[axis])
        reason = ""
        if len(order) != 3 or access.strides[order[0]] != 1:
            reason = "is no access of an array with three axes, the fastest of which is contiguous"
        elif any(form.floor_dims for form in access.axes):
            reason = "has a subscript that is not affine in the work-item"
        elif prod(end - start + 1 for start, end in loops) > _MOST_POINTS:
            reason = f"is executed more than {_MOST_POINTS} times by a work-item"
        if reason:
            raise _refused(scop, f"{access.text} {reason}", access=access.text)
        forms = [access.axes[axis] for axis in order]
        # Iterations of the first work-item.
        values = np.meshgrid(*([0] * axes), *(np.arange(start, end + 1) for start, end in loops), indexing="ij")
        at = dict(enumerate(values))
        runs = np.ones(values[0].shape, dtype=bool)
        for form in piece.constraints:
            runs &= form(at) >= 0
        columns = [np.broadcast_to(form(at), runs.shape)[runs].tolist() for form in forms]
        yield StencilAccess(
            access.array,
            access.direction,
            access.text,
            access.itemsize,
            tuple(tuple(form.coefficient(dim) for dim in range(axes)) for form in forms),
            frozenset(zip(*columns, strict=True)),
        )


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
                raise _refused(scop, reason)
        planes = sorted(point[2] for point in found)
        if planes != list(range(planes[0], planes[0] + len(planes))):
            raise _refused(scop, f"the points of a work-item in {name!r} are not consecutive along z")
        counts.add(len(planes))
    if len(counts) > 1:
        raise _refused(scop, "it stores different numbers of points to its arrays")
    return counts.pop(), len(points)


def _shape(
    scop: Scop, launch: ResolvedLaunch, movement: tuple[tuple[int, ...], ...], chunk: int
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the work-group's extents and the numbers of work-groups along x, y and z."""
    extents = launch.groups
    group, groups = [1, 1, 1], [1, 1, 1]
    for axis, coefficients in enumerate(movement):
        step = chunk if axis == 2 else 1
        by_group, by_item = coefficients[: len(extents)], coefficients[len(extents) :]
        for local, coefficient in enumerate(by_item):
            if coefficient and launch.items[local] > 1:
                if coefficient != step or group[axis] > 1:
                    raise _refused(scop, _skips(axis, coefficient, step))
                group[axis] = launch.items[local]
        for number, coefficient in enumerate(by_group):
            if coefficient and extents[number] > 1:
                if coefficient != step * group[axis] or groups[axis] > 1:
                    raise _refused(scop, _skips(axis, coefficient, step * group[axis]))
                groups[axis] = extents[number]
    if prod(group) != prod(launch.items) or prod(groups) != prod(extents):
        raise _refused(scop, "several work-items compute the same point, or its arrays have no three axes")
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
            raise _refused(scop, reason, access=accesses[0].text)
    centre = low[0] + halo[0] // 2
    # Eq. 4: loads beside the centre column straddle a 128-byte boundary and count twice.
    aligned = sum(point[0] == centre for point in points)
    return LoadedArray(name, (halo[0], halo[1], halo[2]), aligned, len(points) - aligned)


# The paper's fitted constants of Eqs. 8 and 15; that of Eq. 17 is given no value there.
_DELTA = _EPSILON = 0.01


@dataclass(frozen=True)
class SuVolumes:
    """Every step of the closed forms; numbers of values are per work-item, work-group or wave, volumes in bytes."""

    itemsize: int  # bytes of a value
    # items_per_group, items, groups: rows 6 to 8 of Table 2
    items_per_group: int
    items: int
    groups: int
    # residency, wave_groups: rows 9 to 11; a wave has no more work-groups than there are
    residency: Residency
    wave_groups: int
    # aligned_loads, misaligned_loads, item_stores: per work-item, rows 12, 13 and 15
    aligned_loads: int
    misaligned_loads: int
    item_stores: int
    # group_loads_net, smx_miss_ratio: per work-group, rows 16 and 17
    group_loads_net: float
    smx_miss_ratio: float
    waves: int  # row 20 (Eq. 10)
    # width_y, height_z: rows 21 and 22 (Eqs. 13 and 14) of the array with the widest halo
    width_y: int
    height_z: int
    # wave_loads_net, l2_miss_ratio: per wave, rows 23 and 24
    wave_loads_net: float
    l2_miss_ratio: float

    @property
    def item_loads(self) -> int:
        """Values loaded by a work-item, those beside its column twice: row 14 (Eq. 4)."""
        return self.aligned_loads + 2 * self.misaligned_loads

    @property
    def group_loads(self) -> float:
        """Values loaded by a work-group: row 18 (Eq. 7)."""
        return self.group_loads_net * (1 + self.smx_miss_ratio)

    @property
    def group_stores(self) -> int:
        """Values stored by a work-group: row 19."""
        return self.items_per_group * self.item_stores

    @property
    def wave_loads(self) -> float:
        """Values loaded by a wave: row 25 (Eq. 11)."""
        return self.wave_loads_net * (1 + self.l2_miss_ratio)

    @property
    def wave_stores(self) -> int:
        """Values stored by a wave: row 26."""
        return self.wave_groups * self.group_stores

    @property
    def v_smx(self) -> int:
        """Volume between registers and the first cache, in bytes per launch: row 27 (Eq. 3)."""
        return self.items * (self.item_loads + self.item_stores) * self.itemsize

    @property
    def v_l2(self) -> float:
        """Volume between the first cache and the L2, in bytes per launch: row 28 (Eq. 5)."""
        return self.groups * (self.group_loads + self.group_stores) * self.itemsize

    @property
    def v_gm(self) -> float:
        """Volume between the L2 and DRAM, in bytes per launch: row 29 (Eq. 9)."""
        return self.waves * (self.wave_loads + self.wave_stores) * self.itemsize


def su_volumes(stencil: SuStencil, machine: Machine, *, registers: int | None = None) -> SuVolumes:
    """Return the data traffic of a stencil on a machine, step by step.

    Several arrays add up; an array without halo contributes its own points only. Where Eqs. 13 and 14 exceed the grid
    with its halo, the grid counts, and where a wave could hold more work-groups than there are, those there are.
    Without a number of 32-bit registers per work-item, these limit nothing.
    """
    size, per_group = stencil.itemsize, stencil.items_per_group
    items = prod(stencil.grid) // stencil.chunk
    groups = items // per_group
    held = residency(machine, per_group, 0, registers)
    wave_groups = min(held.wave_groups, groups)
    line = (machine.su_line_bytes or machine.need("line_bytes")) / size
    # Eq. 12 says "L2 cache line", which is 32 bytes in Table 2: a sector.
    sector = machine.need("sector_bytes") / size
    group_net = sum(_group_loads(stencil, array, line) for array in stencil.loads)
    shapes = [_wave_shape(stencil, array, wave_groups) for array in stencil.loads]
    wave_net = sum(
        (stencil.grid[0] + (2 * sector if array.halo[0] else 0)) * width * height
        for array, (width, height) in zip(stencil.loads, shapes, strict=True)
    )  # Eq. 12
    width_y, height_z = max(shapes)
    return SuVolumes(
        itemsize=size,
        items_per_group=per_group,
        items=items,
        groups=groups,
        residency=held,
        wave_groups=wave_groups,
        aligned_loads=sum(array.aligned for array in stencil.loads),
        misaligned_loads=sum(array.misaligned for array in stencil.loads),
        item_stores=stencil.stores,
        group_loads_net=group_net,
        smx_miss_ratio=_smx_miss_ratio(stencil, machine, held, group_net),
        waves=ceil(groups / wave_groups),  # Eq. 10
        width_y=width_y,
        height_z=height_z,
        wave_loads_net=wave_net,
        l2_miss_ratio=wave_net * size / machine.need("l2_bytes") * _EPSILON,  # Eq. 15
    )


def _group_loads(stencil: SuStencil, array: LoadedArray, line: float) -> float:
    """Return the values a work-group needs of an array: Eq. 16, which is Eq. 6 for chunk 1."""
    (x, y, z), (halo_x, halo_y, halo_z) = stencil.group, array.halo
    planes = z * stencil.chunk
    sides = 2 * ceil(halo_x / 2 / line)  # a whole line for each row and side
    return x * y * planes + x * planes * halo_y + x * y * halo_z + line * y * planes * sides


def _smx_miss_ratio(stencil: SuStencil, machine: Machine, held: Residency, net: float) -> float:
    """Return Eq. 8, or Eq. 17 for chunks whose values exceed the storage."""
    resident = held.groups_per_unit * net * stencil.itemsize
    capacity = machine.need("l1_bytes")
    ratio = resident / capacity * _DELTA
    # Section 3.5 adjusts Eq. 8 only for chunks whose resident values exceed the storage.
    if stencil.chunk == 1 or resident <= capacity:
        return ratio
    halo = max(array.halo[2] for array in stencil.loads)
    # Eq. 17 without the term whose constant has no value.
    return ratio * (1 + halo) / (stencil.chunk + halo)


def _wave_shape(stencil: SuStencil, array: LoadedArray, wave_groups: int) -> tuple[int, int]:
    """Return the width along y and the height along z of what a wave needs (Eqs. 13 and 14)."""
    (x, y, z), (nx, ny, nz) = stencil.group, stencil.grid
    rows = y * ceil(wave_groups * x / nx)
    planes = z * stencil.chunk * ceil(wave_groups / (nx * ny / (x * y)))
    return min(rows, ny) + array.halo[1], min(planes, nz) + array.halo[2]
