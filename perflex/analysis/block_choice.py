"""The choice of block sizes: analytic, and by costs of blocks on a device, from timed ones."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.analysis.block_quantities import needed_bytes
from perflex.errors import BlockError, CalibrationError
from perflex.features.sized_kernel import SizedKernel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.analysis.block_quantities import GridStencil
    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import CacheLevel, Machine
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.options import TimingOptions

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
    # Time of a launch that the calibration predicts, in seconds; None without one.
    predicted_s: float | None = None


def choose_block(
    kernel: Any,
    sizes: Mapping[str, int],
    machine: Machine | str | Path,
    criterion: Mapping[str, str] | None = None,
    *,
    cores: int | None = None,
    lanes: int = 1,
    tiles_per_core: int = 1,
    calibration: Calibration | None = None,
) -> BlockChoice:
    """Choose the block sizes of a stencil without running it.

    Of all blocks that divide the grid and meet the criterion: those with as equal shares of the cores as possible,
    among them those with the longest rows (smallest cut of the inner axis, for prefetching), among them the fewest
    tiles (least traffic of halos), among them those cut least along y. Where a grid's divisors make that cost over a
    quarter more, shares and halos together, shares within 5 % count as equal; where even that does, blocks may leave
    remainders at the grid's ends.

    With a calibration, of all blocks that meet the criterion, if one is given, those with the longest rows, and among
    them the one that is predicted to be fastest: how much waiting for the last tiles, starting tiles, halos, and planes
    that leave a cache cost is then known of the device.

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
        outermost axis: reuse in y, and in x). By default ``"plane"`` for the last level and ``"row"`` for the one
        before it; with a calibration, none.
    cores
        Working cores; by default all of the machine.
    lanes
        Row lengths are multiples of this (or whole rows): elements of a vector.
    tiles_per_core
        Fewest tiles per core. With 1, all wait for a core that is disturbed; a runtime that gives out tiles as cores
        become free can level that out when there are several.
    calibration
        Of `calibrate_blocks`, for this machine and number of cores.

    Returns
    -------
    BlockChoice
        In points.

    Raises
    ------
    BlockError
        The criterion names an unknown level or reuse, or no block meets it; or the calibration is none of blocks. The
        message says what fails.
    UnsupportedKernelError
        The kernel is no stencil on a grid.
    MachineError, FileFormatError
        There is no such machine, or it has no cache levels or number of cores.

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
    if min(workers, lanes, tiles_per_core) < 1:
        msg = f"{workers} cores, {lanes} lanes and {tiles_per_core} tiles per core: give one or more of each"
        raise BlockError(msg)
    wanted = _criterion(where, {} if criterion is None and calibration is not None else criterion)
    scop = extract_scop(kernel, sizes)
    stencil = read_grids(scop, sizes)
    blocks = _candidates(stencil.extents, lanes, remainders=calibration is None)
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
    predicted = None
    if calibration is None:
        place = _best(stencil, blocks, places, workers)
    else:
        places = places[blocks[places, 0] == blocks[places, 0].max()]
        times = predicted_times(calibration, stencil, blocks[places], where, workers)
        place, predicted = int(places[times.argmin()]), float(times.min())
    block = (int(blocks[place, 0]), int(blocks[place, 1]), int(blocks[place, 2]))
    tiles = int(_tiles(stencil, blocks[place]))
    each = -(-tiles // workers)
    conditions = [BlockCondition(v.name, r, int(need[place]), v.bytes_per_core(workers)) for v, r, need in needed]
    extra = float(_extra_loads(stencil, blocks[place : place + 1])[0])
    imbalance = float(_imbalance(stencil, blocks[place], workers))
    return BlockChoice(block, tiles, each, imbalance, extra, tuple(conditions), predicted)


def _criterion(machine: Machine, criterion: Mapping[str, str] | None) -> list[tuple[CacheLevel, str]]:
    levels = machine.need_levels()
    if criterion is None:
        criterion = {level.name: reuse for level, reuse in zip(levels[-2:], REUSES[-len(levels[-2:]) :], strict=True)}
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


def _candidates(extents: tuple[int, int, int], lanes: int, *, remainders: bool) -> NDArray[np.int64]:
    """Return all blocks that divide the grid, and those of nearly equal parts, shape ``(n, 3)``."""
    lengths = [[d for d in range(1, extent + 1) if extent % d == 0] for extent in extents]
    if remainders:
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


_OUTPUT = "f_cl_wall_time"
_AXES = 3


def calibrate_blocks(
    kernels: Sequence[tuple[Any, Mapping[str, int], tuple[int, int, int]]],
    machine: Machine | str | Path,
    *,
    device: str | TimedDevice | None = None,
    cores: int | None = None,
    timing: TimingOptions | None = None,
) -> Calibration:
    """Time stencils in blocks and fit what points, loads, contiguous runs, tiles, waiting and bytes of each cache cost.

    Parameters
    ----------
    kernels
        Loopy kernel, value of each size, and the block that it computes in: points along x, y and z. Grids should be
        smaller and larger than the last cache; blocks small and large. They need not be those that a block is to be
        chosen for.
    machine
        The machine, its name, or its file.
    device
        A device, or parts of its name; by default the preferred one.
    cores
        Working cores; by default all of the machine.
    timing
        How kernels are timed. By default 60 times each, since different blocks often differ by less than timings do.

    Returns
    -------
    Calibration
        For `choose_block`. Parameters in s per point, load, run, tile, and byte.

    Raises
    ------
    BlockError
        A block does not divide its grid.
    CalibrationError
        Fewer kernels could be timed than there are parameters.
    UnsupportedKernelError
        A kernel is no stencil on a grid.
    DeviceError, MachineError, FileFormatError
        There is no such device or machine, or it has no cache levels or number of cores.
    """
    from perflex.analysis.block_quantities import block_expression, block_info, block_quantities, read_grids
    from perflex.calibration.calibrating import calibration_from_table
    from perflex.expression.model import Model
    from perflex.features import extract_scop
    from perflex.fit.fitting import fit_model
    from perflex.fit.options import FitOptions
    from perflex.fit.table import FeatureTable
    from perflex.machines.files import load_machine
    from perflex.timing.measuring import chosen_device, measure
    from perflex.timing.options import TimingOptions
    from perflex.timing.results import Timing

    where = load_machine(machine)
    workers = int(where.need("cores")) if cores is None else cores
    model = Model(_OUTPUT, block_expression(where))
    names = tuple(model.input_features())
    jobs, labels, counts = [], [], []
    for kernel, sizes, block in kernels:
        stencil = read_grids(extract_scop(kernel), sizes)
        if len(block) != _AXES or any(extent % size for extent, size in zip(stencil.extents, block, strict=True)):
            msg = f"block {block} does not divide the grid {stencil.extents} of {stencil.name}; give one that does"
            raise BlockError(msg)
        found = block_quantities(stencil, np.array([block], np.int64), where, workers)
        counts.append([float(found[name][0]) for name in names])
        labels.append(f"{stencil.name} {'x'.join(map(str, stencil.extents))} in {'x'.join(map(str, block))}")
        jobs.append(SizedKernel(kernel, sizes, labels[-1]))
    chosen = chosen_device(device)
    # No timing reaches a precision of 0, so that each block is timed as often as options allow.
    options = timing or TimingOptions(min_trials=20, precision=0.0)
    outcomes = measure(jobs, chosen, options)
    timed = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Timing)]
    timings = outcomes.timings
    if len(timed) <= len(names):
        msg = f"{len(timed)} of {len(jobs)} blocks could be timed, for {len(names)} parameters; give more of them"
        raise CalibrationError(msg)
    rows = [[one.seconds, *counts[index]] for index, one in zip(timed, timings, strict=True)]
    table = FeatureTable(
        _OUTPUT,
        (_OUTPUT, *names),
        tuple(labels[index] for index in timed),
        np.array(rows),
        spread=np.array([one.spread for one in timings]),
        repeatability=np.array([one.repeatability for one in timings]),
        timing=outcomes.summary(),
        info=block_info(where),
        device=str(getattr(chosen, "name", "")),
        machine=where.name,
    )
    # Costs that these blocks cannot tell apart act together in others like them too.
    fit = fit_model(model, table, FitOptions(on_undetermined="warn"))
    return calibration_from_table(model, table, fit, device=chosen, timing=options)


def predicted_times(
    calibration: Calibration, stencil: GridStencil, blocks: NDArray[np.int64], machine: Machine, cores: int
) -> NDArray[np.float64]:
    """Return the predicted seconds of each block, shape ``(n,)``; a BlockError for calibrations of another kind."""
    from perflex.analysis.block_quantities import block_quantities

    found = block_quantities(stencil, blocks, machine, cores)
    missing = [name for name in calibration.model.input_features() if name not in found]
    if missing:
        msg = f"the calibration needs {missing[0]}, which blocks do not have on {machine.name}; use calibrate_blocks"
        raise BlockError(msg)
    return np.broadcast_to(np.asarray(calibration.evaluate(found), float), (len(blocks),))
