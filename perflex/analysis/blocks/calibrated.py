"""Costs of blocks on a device, from timed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import BlockError, CalibrationError
from perflex.features.sized_kernel import SizedKernel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.analysis.blocks.grids import GridStencil
    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import Machine
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.options import TimingOptions

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
    from perflex.analysis.blocks.grids import read_grids
    from perflex.analysis.blocks.quantities import block_expression, block_info, block_quantities
    from perflex.calibration.calibrating import calibration_from_table
    from perflex.expression.model import Model
    from perflex.features import extract_scop
    from perflex.fit.fitting import fit_model
    from perflex.fit.table import FeatureTable, scale_features_by_output
    from perflex.machines.lookup import load_machine
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
    fit = fit_model(model, scale_features_by_output(table), nonnegative=True, on_undetermined="warn")
    return calibration_from_table(model, table, device=chosen, timing=options, fit=fit)


def predicted_times(
    calibration: Calibration, stencil: GridStencil, blocks: NDArray[np.int64], machine: Machine, cores: int
) -> NDArray[np.float64]:
    """Return the predicted seconds of each block, shape ``(n,)``.

    Raises
    ------
    BlockError
        The calibration is none of `calibrate_blocks` for such a machine.
    """
    from perflex.analysis.blocks.quantities import block_quantities

    found = block_quantities(stencil, blocks, machine, cores)
    missing = [name for name in calibration.model.input_features() if name not in found]
    if missing:
        msg = f"the calibration needs {missing[0]}, which blocks do not have on {machine.name}; use calibrate_blocks"
        raise BlockError(msg)
    return np.broadcast_to(np.asarray(calibration.evaluate(found), float), (len(blocks),))
