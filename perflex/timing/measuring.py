"""Timing many kernels on one device, of this machine or of workers: interleaved rounds, failures kept apart."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from perflex.devices.device import Device
from perflex.devices.listing import device_of, find_device
from perflex.errors import DeviceError
from perflex.timing.executors.on_workers import measure_on
from perflex.timing.executors.worker_device import WorkerDevice
from perflex.timing.isolation.affinity import affinity_of
from perflex.timing.options import TimingOptions
from perflex.timing.rounds import Session
from perflex.timing.timer import Timer, jobs_of, outcomes_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from perflex.features.sized_kernel import SizedKernel
    from perflex.progress import Progress
    from perflex.store.records import Recorder
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.result_check import ResultCheck
    from perflex.timing.results import Measured


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


def measure(
    kernels: Sequence[SizedKernel | LaunchRequest],
    device: TimedDevice,
    options: TimingOptions | None = None,
    progress: Progress | None = None,
    recorder: Recorder | None = None,
    executor: Executor | None = None,
    check: ResultCheck | None = None,
) -> Measured:
    """Time kernels on a device, by the workers of an executor where it is one of theirs (`device_of_workers`).

    All kernels are built and run once; then they are timed in rounds, each round in another random order, until the
    time of each is known to the precision asked for or its trials or budget are spent. One process at a time does so
    on a device; another one waits, and a warning says for whom. On real devices kernels run in a process of their own:
    one that crashes the driver or does not end fails, alone. The workers of `executor` generate code. With a `check`,
    kernels whose results are wrong fail before they are timed.
    """
    options = options or TimingOptions()
    if isinstance(device, WorkerDevice):
        return measure_on(device, kernels, options, progress, recorder, check=check)
    session = Session(options, uuid.uuid4().hex, recorder)
    of_kernels = jobs_of(kernels, device, session)
    jobs = list(dict.fromkeys(of_kernels))
    with Timer(device, tells=True, check=check) as timer:
        timer.time(jobs, session, progress, executor)
    if progress is not None:
        progress(2 * len(jobs), 2 * len(jobs), "")
    found = outcomes_of(of_kernels, options, affinity_of(device, isolate=options.isolate).description)
    return found.labelled([kernel.label for kernel in kernels])
