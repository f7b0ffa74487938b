"""Timing many kernels on one device, of this machine or of workers: interleaved rounds, failures kept apart."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from perflex.devices.device import Device
from perflex.devices.listing import device_of, find_device
from perflex.errors import DeviceError, warn
from perflex.features.sized_kernel import sized_kernels
from perflex.timing.executors.on_workers import measure_on
from perflex.timing.executors.worker_device import WorkerDevice
from perflex.timing.isolation.affinity import affinity_of
from perflex.timing.launch.source_plan import names_taken
from perflex.timing.options import TimingOptions
from perflex.timing.results import Measured, MeasurementFailure, Timing
from perflex.timing.rounds import Session
from perflex.timing.timer import Timer, jobs_of, outcomes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from perflex.features.sized_kernel import SizedKernel
    from perflex.progress import Progress
    from perflex.store.records import Recorder
    from perflex.timing.launch.backend import TimedDevice


def chosen_device(device: str | TimedDevice | None, output: str | None = None) -> TimedDevice:
    """Return the device that is asked for: one as it is, or by parts of its name."""
    if device is None and output is not None:
        return device_of(output)
    if device is None or isinstance(device, str):
        return find_device(device)
    given: object = device
    if not isinstance(given, Device) and not hasattr(given, "backend"):
        msg = f"{given!r:.60} is no device; give one of find_device, or parts of its name"
        raise DeviceError(msg)
    return device


def time_kernel(
    kernel: Any, sizes: Mapping[str, Any], device: str | TimedDevice | None = None, timing: TimingOptions | None = None
) -> Timing:
    """Time a kernel as `calibrate` times measurement kernels; it needs no calibration.

    The data are made up: floating-point numbers between 0.5 and 1.5, integers of one, and 0.75 for floating-point
    arguments that `sizes` does not name. Which side of a condition on data is taken, these decide.

    Parameters
    ----------
    kernel
        A loopy translation unit, what `annotate` returned for one, or one of `source_kernel`.
    sizes
        Value of each size parameter, and of other scalar arguments that are to have one.
    device
        Where to run: a device, or parts of its name; by default the default one.
    timing
        How it is timed.

    Returns
    -------
    Timing
        The time of one launch in seconds, its interval, and how it was measured.

    Raises
    ------
    DeviceError
        No working device fits, several do, or it is lost.
    MeasurementError
        The kernel does not build or run, or data decide its subscripts or trip counts.
    MissingSizeError
        A size parameter has no value.

    Warns
    -----
    PerflexWarning
        `sizes` names something that the kernel does not take.
    """
    (job,), where = sized_kernels([(kernel, sizes)]), chosen_device(device)
    (outcome,) = measure([job], where, timing)
    if isinstance(outcome, MeasurementFailure):
        raise outcome.error
    there = where.device if isinstance(where, WorkerDevice) else where
    if isinstance(there, Device):
        taken = names_taken(job, there.api)
        if unknown := [name for name in sizes if name not in taken]:
            warn(f"kernel {job.group!r} takes no {', '.join(unknown)}; it takes {', '.join(taken) or 'no number'}")
    return outcome


def measure(
    kernels: Sequence[SizedKernel],
    device: TimedDevice,
    options: TimingOptions | None = None,
    progress: Progress | None = None,
    recorder: Recorder | None = None,
    executor: Executor | None = None,
) -> Measured:
    """Time kernels on a device, by the workers of an executor where it is one of theirs (`device_of_workers`).

    All kernels are built and run once; then they are timed in rounds, each round in another random order, until the
    time of each is known to the precision asked for or its trials or budget are spent. One process at a time does so
    on a device; another one waits, and a warning says for whom. On real devices kernels run in a process of their own:
    one that crashes the driver or does not end fails, alone. The workers of `executor` generate code.
    """
    options = options or TimingOptions()
    if isinstance(device, WorkerDevice):
        return measure_on(device, kernels, options, progress, recorder)
    session = Session(options, uuid.uuid4().hex, recorder)
    of_kernels = jobs_of(kernels, device, session)
    jobs = list(dict.fromkeys(of_kernels))
    with Timer(device, tells=True) as timer:
        timer.time(jobs, session, progress, executor)
    if progress is not None:
        progress(2 * len(jobs), 2 * len(jobs), "")
    found = outcomes_of(of_kernels, options, affinity_of(device, isolate=options.isolate).said)
    return found.labelled([kernel.label for kernel in kernels])
