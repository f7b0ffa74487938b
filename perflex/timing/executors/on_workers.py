"""Timing and building kernels in the workers of an executor; what they send back is put together and kept here."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from perflex.errors import PerflexError
from perflex.timing.executors.batches import FEWEST_KERNELS, Batch, devices_here, divide, time_batch
from perflex.timing.executors.workers import FAULTS, LOSSES, Workers
from perflex.timing.launch.request import request_for
from perflex.timing.options import TimingOptions
from perflex.timing.results import MeasurementFailure
from perflex.timing.rounds import Session
from perflex.timing.timer import jobs_of, outcomes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from perflex.features.sized_kernel import SizedKernel
    from perflex.progress import Progress
    from perflex.store.records import MeasurementKey, Recorder, Sample
    from perflex.timing.executors.batches import BatchResult
    from perflex.timing.executors.worker_device import WorkerDevice
    from perflex.timing.executors.workers import Answer
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.result_check import ResultCheck
    from perflex.timing.results import Measured
    from perflex.timing.rounds import TimingJob

# A batch is sent so many times where workers are lost: kernels run in processes of their own, and end no worker.
_TRIES = 2


def measure_on(
    device: WorkerDevice,
    kernels: Sequence[SizedKernel | LaunchRequest],
    options: TimingOptions | None = None,
    progress: Progress | None = None,
    recorder: Recorder | None = None,
    *,
    check: ResultCheck | None = None,
    fewest: int = FEWEST_KERNELS,
) -> Measured:
    """Time kernels on workers' devices; as `measure`, for kernels whose code was generated before, too.

    Code is generated here and sent as plain data, in batches of some 24 kernels that are timed in rounds, at least
    `fewest`. A worker takes a device with the same names and driver that is free; a lock for each device of a machine
    keeps others from timing on it at the same time. Samples are kept as those of any such device, but in a local pool.
    A worker with another driver, or whose device is pinned otherwise, is left out with a warning where the executor
    knows workers.

    Samples and failures are written here, when a batch is done; workers never open the recorder's file. When a worker
    dies its batch is timed again, once, under a new session name.

    Raises
    ------
    ExecutorError
        The executor fails; what was timed is kept.
    DeviceError
        A device is lost, or no worker's times can be mixed with what was asked for.
    """
    options = options or TimingOptions()
    session = Session(options, uuid.uuid4().hex, recorder, device.affinity.setting)
    of_kernels = jobs_of(kernels, device.device, session)
    run = _Run(list(dict.fromkeys(of_kernels)), device, session, progress, check)
    wanted = run.generated()
    try:
        # Whose results others are compared with is known before the others are sent; the first may fail.
        while check is not None and check.lacks_first and wanted:
            run.time([[wanted.pop(0)]])
        run.time(divide(wanted, run.workers.slots(), fewest))
    finally:
        run.abandon()
    if progress is not None:
        progress(2 * len(run.jobs), 2 * len(run.jobs), "")
    return outcomes_of(of_kernels, options, device.affinity.description).labelled([kernel.label for kernel in kernels])


@runtime_checkable
class _AddsMany(Protocol):
    def add_many(
        self, samples: Sequence[tuple[MeasurementKey, Sample]], labels: Mapping[MeasurementKey, str]
    ) -> None: ...


@dataclass(frozen=True, eq=False)
class _Sent:
    """A batch at work, for the how-manieth time."""

    jobs: list[TimingJob]
    session: Session
    tries: int


@dataclass(eq=False)
class _Run:
    """One call of `measure_on`."""

    jobs: list[TimingJob]
    device: WorkerDevice
    session: Session
    progress: Progress | None
    check: ResultCheck | None
    sent: dict[Future[Answer], _Sent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.workers = Workers(self.device.executor)

    def generated(self) -> list[TimingJob]:
        """Return the kernels to be timed, with code: generating it meanwhile would disturb CPU devices."""
        wanted = []
        for number, job in enumerate(self.jobs):
            self._report(number, job.label)
            if job.is_due(self.session.options):
                try:
                    job.kernel = request_for(job.kernel, self.device.device)
                    wanted.append(job)
                except PerflexError as error:
                    job.give_up(error, "prepare", self.session)
        return wanted

    def time(self, batches: Sequence[list[TimingJob]]) -> None:
        """Have batches timed."""
        for jobs in batches:
            # Some executors work while they are handed the work, and lose all when they are handed more.
            if self._send(jobs).done():
                self._collect()
        while self.sent:
            self._collect()

    def abandon(self) -> None:
        """Cancel what has not begun."""
        for future in self.sent:
            future.cancel()

    def _send(self, jobs: list[TimingJob], tries: int = 1) -> Future[Answer]:
        session = replace(self.session, name=uuid.uuid4().hex)
        kernels = tuple((job.kernel, tuple(job.samples)) for job in jobs)
        affinity = session.affinity or ""
        batch = Batch(self.device.device, session.options, session.name, affinity, kernels, self.check)
        future = self.workers.submit(time_batch, batch)
        self.sent[future] = _Sent(jobs, session, tries)
        return future

    def _collect(self) -> None:
        """Take results; only then raise what went wrong with others."""
        faults: list[BaseException] = []
        for future in self.workers.completed(self.sent):
            sent = self.sent.pop(future)
            try:
                answer = future.result()
            except (*LOSSES, *FAULTS) as error:
                if isinstance(error, LOSSES) and sent.tries < _TRIES:
                    self._send(sent.jobs, sent.tries + 1)
                else:
                    fault = self.workers.explained(error)
                    fault.__cause__ = None if fault is error else error
                    faults.append(fault)
            else:
                faults += self._accepted(sent, answer)
        if faults:
            raise faults[0]
        waiting = sum(len(sent.jobs) for sent in self.sent.values())
        label = next((sent.jobs[0].label for sent in self.sent.values()), "")
        self._report(2 * len(self.jobs) - waiting, label)

    def _accepted(self, sent: _Sent, answer: Answer) -> list[PerflexError]:
        """Take a result; return the error that it ended with unless other workers may do better."""
        if answer.error is not None:
            # This worker's times cannot be mixed with the others'.
            left = self.workers.leave_out(answer.worker, answer.error.message) and self.workers.slots()
            if left:
                self._send(sent.jobs)
            return [] if left else [answer.error]
        result: BatchResult = answer.value
        _record(sent, result)
        for job, outcome in zip(sent.jobs, result.kernels, strict=True):
            job.samples += outcome.samples
            if outcome.failure is not None:
                kind, error = outcome.failure
                job.give_up(error, kind, sent.session)
        if self.check is not None and result.check is not None:
            self.check.take_first(result.check)
        return [] if result.error is None else [result.error]

    def _report(self, done: int, label: str) -> None:
        if self.progress is not None:
            self.progress(done, 2 * len(self.jobs), label)


def _record(sent: _Sent, result: BatchResult) -> None:
    """Have the recorder keep all samples of a batch, together if it can."""
    recorder = sent.session.recorder
    if recorder is None:
        return
    pairs: list[tuple[MeasurementKey, Sample]] = []
    labels = {}
    for job, outcome in zip(sent.jobs, result.kernels, strict=True):
        if job.key is not None:
            labels[job.key] = job.label
            pairs += [(job.key, sample) for sample in outcome.samples]
    if isinstance(recorder, _AddsMany):
        recorder.add_many(pairs, labels)
        return
    for key, sample in pairs:
        recorder.add(key, sample, labels[key])


@dataclass(frozen=True)
class _Builds:
    """Kernels to build for a device as the sender knows it; for their machine code, or for what they take."""

    device: TimedDevice
    options: TimingOptions
    kernels: tuple[SizedKernel, ...]
    code: bool


def built_on(
    device: WorkerDevice,
    kernels: Sequence[SizedKernel],
    options: TimingOptions,
    progress: Progress | None = None,
    *,
    code: bool,
) -> list[Any]:
    """Return what `compiled_code` (with `code`) or `resource_use` makes of kernels where they are to be timed."""
    found: list[Any] = []
    workers = Workers(device.executor)
    parts = divide(kernels, workers.slots())
    works = [_Builds(device.device, options, tuple(part), code) for part in parts]
    for answer in workers.answers(_built, works):
        if answer.error is not None:
            raise answer.error
        found += answer.value
        if progress is not None:
            progress(len(found), len(kernels), f"building {kernels[len(found) - 1].label}")
    return found


def _built(builds: _Builds) -> list[Any]:
    """Build in a worker."""
    from perflex.timing.compiled_code import compiled_code, resource_use

    build = compiled_code if builds.code else resource_use
    outcomes: list[Any] = build(builds.kernels, devices_here(builds.device)[0], builds.options)
    return [replace(one, error=one.error.alone()) if isinstance(one, MeasurementFailure) else one for one in outcomes]
