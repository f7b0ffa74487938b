"""Samples from tables of times: counted for the machine that they are of, without a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.calibration.gathering import Measuring, gather
from perflex.calibration.times.table import KnownTimes
from perflex.calibration.times.target import target_for_times
from perflex.store.store import using_store
from perflex.timing.options import TimingOptions

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from perflex.calibration.times.table import TimesTable
    from perflex.expression.model import Model
    from perflex.fit.table import FeatureTable
    from perflex.machines.machine import Machine
    from perflex.progress import Progress
    from perflex.store.store import StorePlace


def table_of_times(
    model: Model,
    times: TimesTable,
    *,
    machine: str | Path | Machine | None = None,
    sub_group_size: int | None = None,
    executor: Executor | None = None,
    store: StorePlace | None = None,
    progress: Progress | None = None,
) -> FeatureTable:
    """Return a model's features and the times of a table's kernels, a row each.

    Parameters
    ----------
    model
        A model whose output is a wall time.
    times
        Kernels with their times, as of `load_times`.
    machine, sub_group_size
        What features are counted for; by default the machine that is called as the table's device.
    executor, store, progress
        As for `calibrate`.

    Raises
    ------
    CalibrationError, MachineError, MissingSizeError, UnsupportedKernelError
        As `calibrate` with `times`.
    """
    features = tuple(model.all_features())
    target = target_for_times(times, features, sub_group_size, machine)
    with using_store(store):
        measuring = Measuring(
            None, TimingOptions(), target, executor, progress=progress, may_lack=True, times=KnownTimes(times)
        )
        return gather(features, (), measuring)
