"""Times of kernels that are counted: measured on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.times.table import RowTimes
from perflex.store.resume import recording

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from perflex.features.sized_kernel import SizedKernel
    from perflex.progress import Progress
    from perflex.store.records import Recorder
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.options import TimingOptions
    from perflex.timing.results import TimingSummary


def measured_times(
    rows: Sequence[SizedKernel],
    device: TimedDevice,
    timing: TimingOptions,
    *,
    executor: Executor | None,
    measure_executor: Executor | None,
    recorder: Recorder | None,
    progress: Progress | None,
) -> tuple[RowTimes, list[tuple[str, str]], TimingSummary]:
    """Return the times of kernels, label and reason of those that failed, and how measuring went.

    Arguments and errors as of `perflex.gather_feature_values`.
    """
    from perflex.timing.measuring import measure
    from perflex.timing.results import MeasurementFailure

    with recording(str(device), [row.label for row in rows], recorder) as used:
        if measure_executor is None:
            outcomes = measure(rows, device, timing, progress, used, executor)
        else:
            from perflex.timing.executors.rounds import measure_on

            outcomes = measure_on(measure_executor, rows, device, timing, progress, used)
    found = RowTimes(*(np.full(len(rows), np.nan) for _ in range(3)))
    failures = []
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, MeasurementFailure):
            # Reasons begin with the label, for they are errors of their own elsewhere.
            failures.append((outcome.label, outcome.reason.removeprefix(f"{outcome.label}: ")))
        else:
            found.seconds[index], found.spread[index] = outcome.seconds, outcome.spread
            found.repeatability[index] = outcome.repeatability
    return found, failures, outcomes.summary()
