"""The choice of block sizes: analytic, without running it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.analysis.block_quantities import needed_bytes
from perflex.errors import BlockError, MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.analysis.block_quantities import GridStencil
    from perflex.machines.machine import CacheLevel, Machine

REUSES = ("row", "plane")
# Shares that differ by so much are equal enough where exactly equal ones cost too much halo.
_EVEN = 0.05
# Imbalances that are equal may differ by rounding, and must fall into one step.
_ROUNDING = 1e-9
# What a stricter rule may cost, shares and halos together, beside a less strict one.
_RULE_MAY_COST = 1.25


@dataclass(frozen=True)
class BlockCondition:
    """What a cache has to hold for reuse."""

    level: str
    # ``"row"``: along y, the rows of a block that a point's neighbours lie in (Equation 10a); ``"plane"``: along z, the
    # planes of a block (Equation 10b).
    reuse: str
    # What the block that was chosen needs, its halo counted.
    needed_bytes: int
    # The part of the cache that each working core has.
    available_bytes: int

    def __str__(self) -> str:
        return f"{self.level} holds each {self.reuse}: {self.needed_bytes} B of {self.available_bytes} B per core"


@dataclass(frozen=True)
class BlockChoice:
    """A block that was chosen."""

    # Points along x (the contiguous axis), y and z.
    block: tuple[int, int, int]
    tiles: int
    # Blocks of the core that has most of them.
    tiles_per_core: int
    # How many times as long the cores work as they would with equal shares: 1 where the tiles are a multiple.
    imbalance: float
    # Points loaded per point computed because blocks have halos, at most, as a fraction.
    extra_loads: float
    # What each cache of the criterion holds.
    conditions: tuple[BlockCondition, ...]

    def __str__(self) -> str:
        x, y, z = self.block
        imbalance, halos = 100 * (self.imbalance - 1), 100 * self.extra_loads
        tiles = f"{self.tiles} tiles, {self.tiles_per_core} per core at most (imbalance {imbalance:.0f} %)"
        lines = [
            f"block: {x} x {y} x {z} points (x, y, z)",
            f"{tiles}, at most {halos:.0f} % more loads because of halos",
        ]
        return "\n".join([*lines, *map(str, self.conditions)])


def choose_block(
    kernel: Any,
    sizes: Mapping[str, int],
    machine: Machine | str | Path,
    criterion: Mapping[str, str] | None = None,
    *,
    cores: int | None = None,
    lanes: int = 1,
    tiles_per_core: int = 8,
) -> BlockChoice:
    """Choose the block sizes of a stencil without running it.

    Of all blocks that divide the grid and meet the criterion: those with as equal shares of the cores as possible,
    among them those with the longest rows (smallest cut of the inner axis, for prefetching), among them the fewest
    tiles (least traffic of halos), among them those cut least along y. Where a grid's divisors make that cost over a
    quarter more, shares and halos together, shares within 5 % count as equal; where even that does, blocks may leave
    remainders at the grid's ends.

    Parameters
    ----------
    kernel
        A loopy kernel, a measurement kernel, or a Scop, which computes each point of a grid from neighbours in others;
        its own blocks, if any, do not matter. Within a block, points are to be computed row by row, plane by plane.
    sizes
        Value of each size.
    machine
        The machine, its name, or its file.
    criterion
        For levels by name, the reuse that each must hold: ``"row"`` or ``"plane"`` (in the paper, where x is the
        outermost axis: reuse in y, and in x). By default ``"plane"`` for the second level, which lost the least of the
        rules that were timed.
    cores
        Working cores; by default all of the machine.
    lanes
        Row lengths are multiples of this (or whole rows): elements of a vector.
    tiles_per_core
        Fewest tiles per core. With 1, all wait for a core that is disturbed; a runtime that gives out tiles as cores
        become free levels that out when there are several.

    Returns
    -------
    BlockChoice
        In points.

    Raises
    ------
    BlockError
        The criterion names an unknown level or reuse, or no block meets it; the message says what fails.
    UnsupportedKernelError
        The kernel is no stencil on a grid.
    MachineError, FileFormatError
        There is no such machine, or it has no cache levels or number of cores, or fewer cores.

    Notes
    -----
    Source: Alappat et al., YaskSite (2021), Section V-A, Equation 10, for any offsets and with halos counted.
    """
    from perflex.analysis.block_quantities import read_grids
    from perflex.features import extract_scop
    from perflex.machines.files import load_machine

    where = load_machine(machine)
    where.need_levels()
    workers = int(where.need("cores")) if cores is None else cores
    if workers > (where.cores or workers):
        msg = f"machine {where.name} has {where.cores} cores, not {workers}; give fewer working cores"
        raise MachineError(msg, machine=where.name, fact="cores")
    if min(workers, lanes, tiles_per_core) < 1:
        msg = f"{workers} cores, {lanes} lanes and {tiles_per_core} tiles per core: give one or more of each"
        raise BlockError(msg)
    wanted = _criterion(where, criterion)
    scop = extract_scop(kernel, sizes)
    stencil = read_grids(scop, sizes)
    blocks = _candidates(stencil.extents, lanes)
    holds = _tiles(stencil, blocks) >= tiles_per_core * workers
    if not holds.any():
        msg = f"{stencil.name} has no {tiles_per_core} tiles for each of {workers} cores at these sizes; ask for fewer"
        raise BlockError(msg)
    needed = [(level, reuse, needed_bytes(stencil, reuse, blocks)) for level, reuse in wanted]
    for level, reuse, need in needed:
        # Strict, as Equation 10.
        met = need < level.bytes_per_core(workers)
        if not met.any() or not (holds & met).any():
            msg = (
                f"no block of {stencil.name} meets the criterion {level.name}: {reuse}: the smallest needs "
                f"{int(need[holds].min())} B, and each of {workers} cores has {level.bytes_per_core(workers)} B; "
                "name another level or fewer cores"
            )
            raise BlockError(msg, level=level.name)
        holds &= met
    places = np.flatnonzero(holds)
    place = _best(stencil, blocks, places, workers)
    block = (int(blocks[place, 0]), int(blocks[place, 1]), int(blocks[place, 2]))
    tiles = int(_tiles(stencil, blocks[place]))
    each = -(-tiles // workers)
    conditions = [BlockCondition(v.name, r, int(need[place]), v.bytes_per_core(workers)) for v, r, need in needed]
    extra = float(_extra_loads(stencil, blocks[place : place + 1])[0])
    imbalance = float(_imbalance(stencil, blocks[place], workers))
    return BlockChoice(block, tiles, each, imbalance, extra, tuple(conditions))


def _criterion(machine: Machine, criterion: Mapping[str, str] | None) -> list[tuple[CacheLevel, str]]:
    levels = machine.need_levels()
    if criterion is None:
        criterion = {levels[min(1, len(levels) - 1)].name: "plane"}
    by_name = {level.name.casefold(): level for level in levels}
    found = []
    for name, reuse in criterion.items():
        if name.casefold() not in by_name:
            msg = f"machine {machine.name} has no level {name!r}; it has {', '.join(level.name for level in levels)}"
            raise BlockError(msg, level=name)
        if reuse not in REUSES:
            msg = f"a criterion asks for reuse of a {' or a '.join(REUSES)}, not of {reuse!r}"
            raise BlockError(msg, level=name)
        found.append((by_name[name.casefold()], reuse))
    return found


def _candidates(extents: tuple[int, int, int], lanes: int) -> NDArray[np.int64]:
    """Return all blocks that divide the grid, and those of nearly equal parts, shape ``(n, 3)``."""
    lengths = [[d for d in range(1, extent + 1) if extent % d == 0] for extent in extents]
    parts = [{-(-extent // part) for part in range(1, extent + 1)} for extent in extents]
    lengths = [sorted({*exact, *near}) for exact, near in zip(lengths, parts, strict=True)]
    lengths[0] = [d for d in lengths[0] if d % lanes == 0 or d == extents[0]]
    return np.stack([axis.ravel() for axis in np.meshgrid(*lengths, indexing="ij")], axis=1).astype(np.int64)


def _tiles(stencil: GridStencil, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
    tiles: NDArray[np.int64] = np.prod(-(-np.array(stencil.extents) // blocks), axis=-1)
    return tiles


def _imbalance(stencil: GridStencil, blocks: NDArray[np.int64], cores: int) -> NDArray[np.float64]:
    """Return the points of the core that has most of them, whole tiles, over its share."""
    points = -(-_tiles(stencil, blocks) // cores) * np.prod(blocks, axis=-1)
    return np.asarray(points * cores / prod(stencil.extents), dtype=np.float64)


def _extra_loads(stencil: GridStencil, blocks: NDArray[np.int64]) -> NDArray[np.float64]:
    loaded = np.zeros(len(blocks))
    plain = np.zeros(len(blocks))
    for grid in stencil.grids:
        loaded += grid.itemsize * np.prod(blocks + np.array(grid.halo), axis=1)
        plain += grid.itemsize * np.prod(blocks, axis=1)
    return loaded / plain - 1


def _best(stencil: GridStencil, blocks: NDArray[np.int64], places: NDArray[np.int64], cores: int) -> int:
    whole = places[(np.array(stencil.extents) % blocks[places] == 0).all(axis=1)]
    tries = [(group, even) for group, even in ((whole, 0.0), (whole, _EVEN), (places, _EVEN)) if group.size]
    best = [_first(stencil, blocks, group, cores, even) for group, even in tries]
    loads = 1 + _extra_loads(stencil, blocks[best])
    cost = _imbalance(stencil, blocks[best], cores) * loads
    # `argmax` finds the first true entry: the strictest rule that costs no more.
    return best[int(np.argmax(cost <= _RULE_MAY_COST * cost.min()))]


def _first(stencil: GridStencil, blocks: NDArray[np.int64], places: NDArray[np.int64], cores: int, even: float) -> int:
    chosen = blocks[places]
    uneven = _imbalance(stencil, chosen, cores) - 1
    if even:
        uneven = np.floor(uneven / even + _ROUNDING)
    # The last key is the first to sort by.
    order = np.lexsort((-chosen[:, 1], _tiles(stencil, chosen), -chosen[:, 0], uneven))
    return int(places[order[0]])
