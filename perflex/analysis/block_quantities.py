"""What blocks of a stencil cost, counted from the grids and neighbours that it reads: features of a calibration."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.cardinality import at_sizes, card_at
from perflex.fit.table import FeatureInfo
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.features.scop.scop import Access, Scop, Statement
    from perflex.machines.machine import CacheLevel, Machine

Offset = tuple[int, int, int]
_AXES = 3


@dataclass(frozen=True)
class Grid:
    """One grid: an array, or that part of one that a constant leading index selects.

    `offsets` are the neighbours that computing a point touches, as steps along x (the contiguous axis), y and z.
    """

    name: str
    offsets: frozenset[Offset]
    itemsize: int
    stored: bool

    @property
    def halo(self) -> Offset:
        """Points beyond a block along x, y and z, both sides together."""
        spans = [[offset[axis] for offset in self.offsets] for axis in range(_AXES)]
        return (max(spans[0]) - min(spans[0]), max(spans[1]) - min(spans[1]), max(spans[2]) - min(spans[2]))

    @property
    def rows(self) -> int:
        """Rows that lie between the first and the last touch of a row of the same plane, of all planes touched."""
        by_plane: dict[int, list[int]] = {}
        for offset in self.offsets:
            by_plane.setdefault(offset[2], []).append(offset[1])
        # A star of radius r has 2r + 1 rows in its own plane and one in 2r others: the 4r + 1 of Equation 10a.
        return sum(max(rows) - min(rows) + 1 for rows in by_plane.values())

    @property
    def planes(self) -> int:
        """Planes that lie between the first and the last touch of a plane."""
        return self.halo[2] + 1


@dataclass(frozen=True)
class GridStencil:
    """A kernel that computes each point of a grid (`extents` along x, y and z) from neighbours in grids."""

    name: str
    extents: tuple[int, int, int]
    grids: tuple[Grid, ...]


def read_grids(scop: Scop, sizes: Mapping[str, int]) -> GridStencil:
    """Return the grids of a kernel; an UnsupportedKernelError names an access that does not move with the others.

    Each instance of its statements computes one point; how loops, work-items and work-groups go over the points does
    not matter.
    """
    scop.check_sizes(sizes)
    found: dict[str, tuple[set[Offset], int, bool]] = {}
    movements: dict[Offset, str] = {}
    with ISL_LOCK:
        for statement in scop.statements:
            for access in statement.accesses:
                if scop.array(access.array).space != "global":
                    continue
                first, last = _ends(scop, statement, access, sizes)
                array = scop.array(access.array)
                lead, place = first[:-_AXES], first[-_AXES:]
                movement = _reversed([after - before for before, after in zip(place, last[-_AXES:], strict=True)])
                movements.setdefault(movement, access.text or access.array)
                if len(movements) > 1 or last[:-_AXES] != lead:
                    raise _refused(scop, access, f"moves otherwise than {next(iter(movements.values()))}")
                name = access.array + "".join(f"[{index}]" for index in lead)
                offsets, itemsize, stored = found.get(name, (set(), array.itemsize, False))
                offsets.add(_reversed(place))
                found[name] = (offsets, itemsize, stored or access.direction == "store")
    if not found:
        msg = f"kernel {scop.name!r} touches no global array; there is nothing to block"
        raise UnsupportedKernelError(msg, kernel=scop.name)
    (movement,) = movements
    grids = tuple(Grid(name, frozenset(offsets), size, stored) for name, (offsets, size, stored) in found.items())
    return GridStencil(scop.name, (movement[0] + 1, movement[1] + 1, movement[2] + 1), grids)


def _reversed(place: Sequence[int]) -> Offset:
    return (place[2], place[1], place[0])


def _refused(scop: Scop, access: Access, reason: str) -> UnsupportedKernelError:
    what = access.text or access.array
    msg = f"kernel {scop.name!r} is no stencil on a grid whose blocks could be chosen: {what} {reason}"
    return UnsupportedKernelError(msg, kernel=scop.name, access=what)


def _ends(
    scop: Scop, statement: Statement, access: Access, sizes: Mapping[str, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the index tuples of the first and the last instance; with fewer than three axes, zeros before."""
    array = scop.array(access.array)
    strides = [int(stride.evaluate(sizes)) for stride in access.strides or array.strides]
    if strides != sorted(strides, reverse=True) or strides[-1] != 1:
        raise _refused(scop, access, "is no access of an array whose last axis is contiguous")
    domain = at_sizes(statement.domain, sizes)
    relation = at_sizes(access.relation, sizes)
    if domain.is_empty() or not relation.is_single_valued():
        raise _refused(scop, access, "touches no element at these sizes, or one of several")
    ends = []
    for end in (domain.lexmin(), domain.lexmax()):
        point = end.apply(relation).sample_point()
        index = [point.get_coordinate_val(isl.dim_type.set, i).to_python() for i in range(len(strides))]
        ends.append((*(0 for _ in range(_AXES - len(index))), *(int(value) for value in index)))
    spans = [abs(after - before) + 1 for before, after in zip(*ends, strict=True)]
    # Between two ends that are opposite corners of a box lie as many instances as the box has points.
    # Counted by formula: isl's own count lists the points, of which there may be too many.
    if prod(spans) != card_at(domain, ()):
        raise _refused(scop, access, "is executed for points that fill no box")
    return ends[0], ends[1]


_COSTS = {
    "f_block_points": "p_point",
    "f_block_loads": "p_load",
    "f_block_runs": "p_run",
    "f_block_tiles": "p_tile",
    "f_block_tail": "p_tail",
}


def block_expression(machine: Machine) -> str:
    """Return the model of a launch in blocks: the sum of all quantities, each with its cost."""
    costs = [f"{parameter} * {name}" for name, parameter in _COSTS.items()]
    return " + ".join([*costs, *(f"p_{place} * f_block_vol_{place}" for place in _places(machine))])


def block_info(machine: Machine) -> dict[str, FeatureInfo]:
    """Return the unit of each quantity."""
    from perflex.features.families.launches import BLOCK_UNITS

    found = {name: FeatureInfo(unit) for name, unit in BLOCK_UNITS.items()}
    return found | {f"f_block_vol_{place}": FeatureInfo("B", 1.0, "B") for place in _places(machine)}


def block_quantities(
    stencil: GridStencil, blocks: NDArray[np.int64], machine: Machine, cores: int
) -> dict[str, NDArray[np.float64]]:
    """Count what a launch costs for each of some blocks that divide the grid, shape ``(n, 3)``, by identifier.

    Each block is computed by one core, row by row, plane by plane; the blocks follow one another along x, then y, then
    z, and cores take the next as they become free. Arrays of shape ``(n,)``: ``f_block_points`` and ``f_block_loads``
    (of neighbours) of the grid; ``f_block_runs``, how often a contiguous piece of a grid is begun; ``f_block_tiles``;
    ``f_block_tail``, loads of one tile, for which other cores wait at the end; ``f_block_vol_<level>``, bytes between
    this level and the one before it, ``f_block_vol_mem`` between the last and the memory.
    """
    points = prod(stencil.extents)
    tiles = points / np.prod(blocks, axis=1)
    loads = sum(len(grid.offsets) for grid in stencil.grids if not grid.stored)
    found = {
        "f_block_points": np.full(len(blocks), float(points)),
        "f_block_loads": np.full(len(blocks), float(points * loads)),
        "f_block_runs": _runs(stencil, blocks),
        "f_block_tiles": tiles,
        "f_block_tail": points * loads / tiles,
    }
    levels = machine.need_levels()
    *inner, _ = _places(machine)
    # A level's volume is what the one before it does not hold, so that places are one ahead of levels.
    for place, level in zip(inner, levels, strict=False):
        available = level.bytes_per_core(cores)
        found[f"f_block_vol_{place}"] = tiles * _of_tile(stencil, blocks, available, levels[0])
    found["f_block_vol_mem"] = _beyond_all(stencil, blocks, cores * levels[-1].bytes_per_core(cores), cores, levels[0])
    return found


def needed_bytes(
    stencil: GridStencil, reuse: str, blocks: NDArray[np.int64], *, halo: bool = True
) -> NDArray[np.int64]:
    """Return the bytes that a cache must exceed for reuse (``"row"`` or ``"plane"``) in blocks, shape ``(n,)``.

    Blocks are points along x, y and z, shape ``(n, 3)``. Without `halo`, rows and planes are as in Equation 10.
    """
    total = np.zeros(len(blocks), np.int64)
    for grid in stencil.grids:
        beside = grid.halo if halo else (0, 0, 0)
        row = blocks[:, 0] + beside[0]
        total += grid.itemsize * (grid.rows * row if reuse == "row" else grid.planes * row * (blocks[:, 1] + beside[1]))
    return total


def _places(machine: Machine) -> list[str]:
    return [*(level.name.lower() for level in machine.need_levels()[1:]), "mem"]


def _runs(stencil: GridStencil, blocks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how many contiguous pieces are begun: planes of a tile whose rows are whole ones, else rows."""
    points = prod(stencil.extents)
    whole = blocks[:, 0] == stencil.extents[0]
    planes = sum(_planes_touched(grid) for grid in stencil.grids)
    rows = sum(grid.rows for grid in stencil.grids)
    return np.where(whole, points / (blocks[:, 0] * blocks[:, 1]) * planes, points / blocks[:, 0] * rows)


def _planes_touched(grid: Grid) -> int:
    return len({offset[2] for offset in grid.offsets})


def _stored_times(first: CacheLevel) -> int:
    """Return how often a line that a core writes crosses: evicted, and fetched before that."""
    return 2 if first.write_allocate else 1


def _of_tile(stencil: GridStencil, blocks: NDArray[np.int64], available: int, first: CacheLevel) -> NDArray[np.float64]:
    """Return the bytes beyond a core's own cache for one tile, whose data it does not hold before (Equation 10)."""
    planes_held = _held(needed_bytes(stencil, "plane", blocks), available)
    rows_held = _held(needed_bytes(stencil, "row", blocks), available)
    total = np.zeros(len(blocks))
    for grid in stencil.grids:
        wide = (blocks + np.array(grid.halo)).astype(float)
        if grid.stored:
            total += grid.itemsize * np.prod(blocks, axis=1) * _stored_times(first)
            continue
        touched = _planes_touched(grid)
        once = np.prod(wide, axis=1)
        # With rows held, a plane's first row loads all its rows, each further one a new row of every plane touched.
        by_planes = wide[:, 0] * (grid.rows + touched * (blocks[:, 1] - 1)) * blocks[:, 2]
        by_rows = wide[:, 0] * grid.rows * blocks[:, 1] * blocks[:, 2]
        total += grid.itemsize * _mixed(planes_held, once, _mixed(rows_held, by_planes, by_rows))
    return total


def _beyond_all(
    stencil: GridStencil, blocks: NDArray[np.int64], available: int, cores: int, first: CacheLevel
) -> NDArray[np.float64]:
    """Return the bytes beyond the last cache, which all cores share: what one tile loads, its neighbours find there."""
    x, y, z = stencil.extents
    whole = sum(grid.itemsize * prod(np.array(stencil.extents) + grid.halo) for grid in stencil.grids)
    # A layer is as deep as a tile and as wide as the grid; the next layer finds the planes that both touch.
    layer = np.zeros(len(blocks), np.int64)
    for grid in stencil.grids:
        layer += grid.itemsize * (x + grid.halo[0]) * (y + grid.halo[1]) * (blocks[:, 2] + grid.halo[2])
    layers_held = _held(layer, available)
    planes_held = _held(cores * needed_bytes(stencil, "plane", blocks), available)
    total = np.zeros(len(blocks))
    for grid in stencil.grids:
        points = float(x * y * z) * grid.itemsize
        if grid.stored:
            total += points * _stored_times(first)
            continue
        # A tile loads its halo's planes beside its own; where planes are not held, each load of one is a miss.
        again = _mixed(planes_held, 1 + grid.halo[2] / blocks[:, 2], float(grid.planes))
        total += points * _mixed(layers_held, 1.0, again)
    return _mixed(_held(np.full(len(blocks), whole), available), 0.0, total)


def _held(needed: NDArray[np.int64], available: int) -> NDArray[np.float64]:
    """Return which part of data is still found: all up to half of a cache, none from a whole one on.

    Caches are neither fully associative nor strict about what was used last, and tiles follow no strict order.
    """
    return np.clip(2 - 2 * needed / available, 0.0, 1.0)


def _mixed(held: NDArray[np.float64], one: Any, other: Any) -> NDArray[np.float64]:
    mixed: NDArray[np.float64] = held * one + (1 - held) * other
    return mixed
