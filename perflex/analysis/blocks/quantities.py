"""What blocks of a stencil cost, counted: the features of a calibrated choice."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.analysis.blocks.required_cache import needed_bytes
from perflex.fit.table import FeatureInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.analysis.blocks.grids import Grid, GridStencil
    from perflex.machines.levels import CacheLevel
    from perflex.machines.machine import Machine

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
    from perflex.features.families.blocks import BLOCK_UNITS

    found = {name: FeatureInfo(unit) for name, unit in BLOCK_UNITS.items()}
    return found | {f"f_block_vol_{place}": FeatureInfo("B", 1.0, "B") for place in _places(machine)}


def block_quantities(
    stencil: GridStencil, blocks: NDArray[np.int64], machine: Machine, cores: int
) -> dict[str, NDArray[np.float64]]:
    """Count what a launch costs, for each of some blocks.

    Each block is computed by one core, row by row, plane by plane; the blocks follow one another along x, then y, then
    z, and cores take the next as they become free.

    Parameters
    ----------
    stencil
        The grids.
    blocks
        Blocks that divide the grid, shape ``(n, 3)``, in points along x, y and z.
    machine
        With cache levels.
    cores
        Working cores.

    Returns
    -------
    dict
        Arrays of shape ``(n,)``: ``f_block_points`` and ``f_block_loads`` (of neighbours) of the grid;
        ``f_block_runs``, how often a contiguous piece of a grid is begun; ``f_block_tiles``; ``f_block_tail``, loads of
        one tile, for which other cores wait at the end; ``f_block_vol_<level>``, bytes between this level and the one
        before it, ``f_block_vol_mem`` between the last and the memory.
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
