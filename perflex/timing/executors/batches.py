"""Batches of kernels that one worker times together, as plain data that goes to other processes and machines."""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from perflex.devices.device import Device, identity
from perflex.errors import DeviceError, PerflexError
from perflex.timing.isolation.affinity import affinity_of
from perflex.timing.rounds import Session, TimingJob
from perflex.timing.timer import Timer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.sized_kernel import SizedKernel
    from perflex.store.records import Sample
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.options import TimingOptions
    from perflex.timing.result_check import ResultCheck

_Job = TypeVar("_Job")

# A batch is what is lost at most when a worker dies, and has to be large enough for rounds to interleave kernels.
_MOST_KERNELS = 24
FEWEST_KERNELS = 8


@dataclass(frozen=True)
class Batch:
    """Kernels that are timed together in rounds by one worker.

    Attributes
    ----------
    device
        As the sender knows it.
    options
        How kernels are timed.
    session
        Name that the batch's samples get: a new one each time it is sent.
    affinity
        The setting of the device's processors that samples are kept under, see `Affinity`.
    kernels
        What the device's backend builds each kernel from (`request_for`), and the samples that are known of it.
    check
        What compares results.
    """

    device: TimedDevice
    options: TimingOptions
    session: str
    affinity: str
    kernels: tuple[tuple[SizedKernel | LaunchRequest, tuple[Sample, ...]], ...]
    check: ResultCheck | None = None


@dataclass(frozen=True)
class KernelResult:
    """The new samples of a kernel, and the kind of failure and the error if it failed."""

    samples: tuple[Sample, ...] = ()
    failure: tuple[str, PerflexError] | None = None


@dataclass(frozen=True)
class BatchResult:
    """The result of a batch.

    Attributes
    ----------
    kernels
        One result per kernel.
    error
        Why the batch ended early, as where the device was lost.
    check
        That of the batch, which knows the first kernel's results now.
    """

    kernels: tuple[KernelResult, ...]
    error: PerflexError | None = None
    check: ResultCheck | None = None


def divide(jobs: Sequence[_Job], workers: int, fewest: int = FEWEST_KERNELS) -> list[list[_Job]]:
    """Divide kernels into batches of about equal numbers, `fewest` at least.

    Neighbours stay together: they are often one kernel with several sizes, which is then built once, and not tried
    again with larger sizes once it hung.
    """
    if not jobs:
        return []
    # As many as workers, so that none is idle, unless batches became too small for rounds.
    for_all = min(workers, len(jobs) // fewest)
    number = max(1, math.ceil(len(jobs) / _MOST_KERNELS), for_all)
    bounds = [round(index * len(jobs) / number) for index in range(number + 1)]
    return [list(jobs[first:last]) for first, last in pairwise(bounds)]


def time_batch(batch: Batch) -> BatchResult:
    """Time the kernels of a batch in rounds on a device of this machine that is free; nothing is kept here.

    A PerflexError is raised where times of this worker cannot be mixed with others'; another one may do.
    """
    devices = devices_here(batch.device)
    _require_affinity(devices[0], batch)
    session = Session(batch.options, batch.session)
    jobs = [TimingJob(kernel, samples=list(samples)) for kernel, samples in batch.kernels]
    error: PerflexError | None = None
    try:
        with Timer(*devices, check=batch.check) as timer:
            timer.time(jobs, session)
    except PerflexError as raised:
        error = raised.alone()
    return BatchResult(tuple(_result(job, batch.session) for job in jobs), error, batch.check)


def _result(job: TimingJob, session: str) -> KernelResult:
    new = tuple(sample for sample in job.samples if sample.session == session)
    return KernelResult(new, None if job.failure is None else (job.failure.kind, job.failure.error.alone()))


def _require_affinity(device: TimedDevice, batch: Batch) -> None:
    setting = affinity_of(device, isolate=batch.options.isolate).setting
    if setting != batch.affinity:
        msg = (
            f"processors of {device} are set by {setting or 'nothing'} on {socket.gethostname()}, elsewhere by "
            f"{batch.affinity or 'nothing'}: times of both cannot be mixed; start all workers in the same way"
        )
        raise DeviceError(msg, device=device)


def devices_here(wanted: TimedDevice) -> list[TimedDevice]:
    """Return this machine's devices that will do for the client's, as they are called here; at least one."""
    from perflex.devices.listing import describe, list_devices

    if not isinstance(wanted, Device):
        return [wanted]
    host = socket.gethostname()
    # All names but the driver's, which is a fault of its own.
    named = [info for info in list_devices() if info.device.names[:3] == wanted.names[:3]]
    # One with a host is that very device.
    if wanted.host:
        named = [info for info in named if identity(info.device) == identity(wanted)]
    if not named:
        msg = (
            f"the worker on {host} has no {wanted}; it has: {describe(list_devices())}; "
            "start workers only where the device is"
        )
        raise DeviceError(msg, device=wanted)
    # Another driver compiles otherwise, so that its times are those of other kernels.
    same = [info for info in named if info.device.driver == wanted.driver]
    if not same:
        msg = (
            f"{wanted} has driver {wanted.driver} for the client, but the worker on {host} has driver "
            f"{named[0].device.driver}: times of both cannot be mixed; install the same driver on both"
        )
        raise DeviceError(msg, device=wanted)
    usable: list[TimedDevice] = [info.device for info in same if info.usable]
    if not usable:
        msg = f"{wanted} does not work on {host}: {same[0].reason}"
        raise DeviceError(msg, device=wanted)
    return usable
