"""Building and timing kernels on one device, which is this process's alone meanwhile."""

from __future__ import annotations

import math
from contextlib import ExitStack, closing, nullcontext
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from perflex.devices.device import Device
from perflex.errors import MeasurementError, PerflexError
from perflex.features.sized_kernel import SizedKernel
from perflex.timing.device_lock import device_lock
from perflex.timing.disturbance import disturbed as disturbed_samples
from perflex.timing.disturbance import full_use, used_samples
from perflex.timing.isolation.backend import IsolatedBackend
from perflex.timing.key import measurement_key
from perflex.timing.launch.backend import RunLimits, backend_of
from perflex.timing.launch.request import LaunchRequest, launch_request
from perflex.timing.results import Measured, MeasurementFailure, Timing
from perflex.timing.rounds import TimingJob, start, time_in_rounds
from perflex.timing.statistics import estimate, interim_level, is_known_to
from perflex.workers import EXECUTOR_FAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor, Future
    from typing import Self

    from numpy.typing import NDArray

    from perflex.progress import Progress
    from perflex.store.records import MeasurementKey
    from perflex.timing.launch.backend import Backend, TimedDevice
    from perflex.timing.options import TimingOptions
    from perflex.timing.result_check import ResultCheck
    from perflex.timing.results import FailureKind
    from perflex.timing.rounds import Session

_Generated: TypeAlias = "LaunchRequest | PerflexError"

# Failures that cost a process each time.
_NOT_AGAIN: Mapping[str, FailureKind] = {"hang": "hang", "crash": "crash"}


class Timer:
    """Builds kernels and times them side by side on the first of some devices that is free.

    It is opened with the first kernel, and stays open and this process's alone until the end of the ``with`` block.
    With `tells`, a warning says for whom this process waits. With a `check`, kernels whose results are wrong fail.
    """

    def __init__(self, *devices: TimedDevice, tells: bool = False, check: ResultCheck | None = None) -> None:
        self._devices = devices
        self._tells = tells
        self._check = check
        self._backend: Backend | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def time(
        self,
        jobs: Sequence[TimingJob],
        session: Session,
        progress: Progress | None = None,
        executor: Executor | None = None,
    ) -> None:
        """Build the kernels that are not built and run them once; then time all in rounds until they are known.

        Each half counts one step of progress for each kernel. An executor's workers generate code. Where no kernel is
        to be timed any more, as in a run that is resumed, the device need not even be there.
        """
        count = len(jobs)
        due = [job for job in jobs if job.is_due(session.options)]
        if not due:
            return

        def report(done: int, label: str) -> None:
            if progress is not None:
                progress(done, 2 * count, label)

        backend = self._opened(session.options)
        ahead = GeneratedAhead([job for job in due if job.runnable is None], backend.device, executor)
        for index, job in enumerate(jobs):
            report(index, job.label)
            if job.runnable is None and job.is_due(session.options):
                self._start(job, ahead, backend, session)
        time_in_rounds(jobs, session, lambda share, label: report(count + round(count * share), label))

    def _start(self, job: TimingJob, ahead: GeneratedAhead, backend: Backend, session: Session) -> None:
        if failed := ahead.take(job):
            job.give_up(failed, "prepare", session)
            return
        start(job, backend, session)
        if self._check is not None and job.failure is None:
            try:
                self._check.require_right(job.kernel, job.runnable)
            except MeasurementError as error:
                job.give_up(error, "run", session)

    def _opened(self, options: TimingOptions) -> Backend:
        if self._backend is None:
            # One's own devices see to it themselves that nobody else measures there.
            alone = all(isinstance(device, Device) for device in self._devices) or not self._tells
            lock = device_lock(*self._devices, tells=self._tells) if alone else nullcontext(self._devices[0])
            device = self._open.enter_context(lock)
            self._backend = self._open.enter_context(closing(open_backend(device, options)))
        return self._backend


class GeneratedAhead:
    """Code of kernels, in the making by an executor's workers; for a `Device`, and in the order of the jobs."""

    def __init__(self, jobs: Sequence[TimingJob], device: TimedDevice, executor: Executor | None) -> None:
        self._pending: dict[int, tuple[Future[list[_Generated]], int]] = {}
        if executor is None or not isinstance(device, Device):
            return
        # One kernel at all its sizes goes to one worker: its code is the same.
        by_kernel: dict[int, list[tuple[TimingJob, SizedKernel]]] = {}
        for job in jobs:
            if isinstance(job.kernel, SizedKernel):
                by_kernel.setdefault(id(job.kernel.kernel), []).append((job, job.kernel))
        try:
            for group in by_kernel.values():
                future = executor.submit(_generate, [sized for _, sized in group], device)
                self._pending |= {id(job): (future, place) for place, (job, _) in enumerate(group)}
        except EXECUTOR_FAULTS:
            return  # what was not handed over is generated here

    def take(self, job: TimingJob) -> PerflexError | None:
        """Give a job its code if that was made; return why it cannot be."""
        if id(job) not in self._pending:
            return None
        future, place = self._pending.pop(id(job))
        try:
            found = future.result()[place]
        except EXECUTOR_FAULTS:
            return None  # building generates it here
        if isinstance(found, PerflexError):
            return found
        job.kernel = found
        return None


def _generate(jobs: Sequence[SizedKernel], device: Device) -> list[_Generated]:
    """Generate code in a worker, which may be another process."""
    made: list[_Generated] = []
    for job in jobs:
        try:
            made.append(launch_request(job, device))
        except PerflexError as error:
            made.append(error)
    return made


def open_backend(device: TimedDevice, options: TimingOptions) -> Backend:
    """Return what runs kernels on a device, those of a `Device` in a process of their own where that is asked for."""
    if not isinstance(device, Device):
        return device.backend()
    if not options.isolate:
        return backend_of(device)
    backend = IsolatedBackend(device, RunLimits(launch_s=options.limit_s, build_s=options.build_limit_s))
    backend.worker()  # its process starts while code of the first kernel is generated here
    return backend


def jobs_of(kernels: Sequence[SizedKernel | LaunchRequest], device: TimedDevice, session: Session) -> list[TimingJob]:
    """Return kernels as jobs that know their samples and failures of earlier sessions.

    Those that are one kernel under several labels share a job, as their samples are trials of one measurement.
    """
    jobs = [TimingJob(kernel) for kernel in kernels]
    known: dict[MeasurementKey, TimingJob] = {}
    for job in jobs:
        _recall(job, device, session)
    return [job if job.key is None else known.setdefault(job.key, job) for job in jobs]


def _recall(job: TimingJob, device: TimedDevice, session: Session) -> None:
    """Give a kernel what is known of it from earlier sessions."""
    if session.recorder is None or isinstance(job.kernel, LaunchRequest):
        return  # samples are kept under what a kernel is, which its code does not tell
    try:
        job.key = measurement_key(job.kernel, device, session.options, session.affinity)
    except MeasurementError as error:
        job.failure = MeasurementFailure(job.label, f"{job.label}: {error.message}", "prepare", error)
        return
    job.samples = list(session.recorder.earlier(job.key))
    job.resumed = len(job.samples)
    failure = session.recorder.failure(job.key)
    if failure is None or failure.kind not in _NOT_AGAIN or session.options.retry_failures:
        return
    msg = f"{failure.message} (in an earlier run; TimingOptions(retry_failures=True) tries it again)"
    again = MeasurementError(msg, kernel=job.label, kind=failure.kind)
    job.failure = MeasurementFailure(job.label, msg, _NOT_AGAIN[failure.kind], again)


def outcomes_of(jobs: Sequence[TimingJob], options: TimingOptions, affinity: str = "") -> Measured:
    """Return what is known of jobs, `affinity` as in `Measured`."""
    timed = [job for job in dict.fromkeys(jobs) if job.failure is None]
    full = full_use(job.samples for job in timed)
    chosen = [used_samples(job.samples, full) for job in timed]
    timings = {
        id(job): _timing(job, np.array([sample.seconds for sample in used]), options, disturbed=poor)
        for job, (used, poor) in zip(timed, chosen, strict=True)
    }
    outcomes = [job.failure or timings[id(job)] for job in jobs]
    return Measured(outcomes, sum(job.resumed for job in dict.fromkeys(jobs)), affinity)


def _timing(job: TimingJob, values: NDArray[np.float64], options: TimingOptions, *, disturbed: bool) -> Timing:
    """Summarize the samples of a kernel that are used."""
    found = estimate(values, interim_level(options.trials))
    told = [sample.activity for sample in job.samples if sample.activity is not None]
    clocks = [one.clock_hz for one in told if one.clock_hz is not None]
    return Timing(
        label=job.label,
        seconds=found.seconds,
        spread=found.spread,
        samples=tuple(sample.seconds for sample in job.samples),
        # Earlier sessions may have averaged over another number of launches.
        launches=job.samples[-1].launches,
        interval=found.interval,
        outliers=found.outliers,
        # How well a correction for what was lacking is known, no interval tells.
        precise=is_known_to(options.precision, values, interim_level(options.trials)) and not disturbed,
        repeatability=found.repeatability,
        disturbed_samples=int(disturbed_samples(job.samples).sum()),
        disturbed=disturbed,
        clock_hz=(min(clocks), max(clocks)) if clocks else (math.nan, math.nan),
        other_processes=max((one.other_processes or 0 for one in told), default=0),
    )
