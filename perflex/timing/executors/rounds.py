"""Timing many kernels in the workers of an executor; what they send back is put together and kept here."""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from perflex.errors import MeasurementError, PerflexError
from perflex.timing.executors.pool import FAULTS, LOSSES, Pool, WorkersDiedError
from perflex.timing.executors.portions import Item, Portion, divide
from perflex.timing.executors.worker_device import device_of_workers
from perflex.timing.launch.request import request_for
from perflex.timing.measuring import entries_of, outcomes_of
from perflex.timing.options import TimingOptions
from perflex.timing.rounds import Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor, Future

    from perflex.features.sized_kernel import SizedKernel
    from perflex.progress import Progress
    from perflex.store.records import MeasurementKey, Recorder, Sample
    from perflex.timing.executors.portions import PortionResult
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.results import Measured
    from perflex.timing.rounds import Entry

# So many workers may die in a portion before its kernels are tried one by one, and in one kernel before it is given up.
_DEATHS = 2


def measure_on(
    executor: Executor,
    jobs: Sequence[SizedKernel],
    device: TimedDevice,
    options: TimingOptions | None = None,
    progress: Progress | None = None,
    recorder: Recorder | None = None,
) -> Measured:
    """Time kernels on a device in the workers of an executor; arguments and result as `measure`.

    Code is generated here and sent as plain data, in portions of some 24 kernels that are timed in rounds. A worker
    takes a device with the same names and driver that is free; a lock for each device of a machine keeps others from
    timing on it at the same time. Samples are kept as those of any such device, but in a local pool. A worker with
    another driver, or whose device is pinned otherwise, is left out with a warning where the executor knows workers.

    Samples and failures are written here, when a portion is done; workers never open the recorder's file. When a worker
    dies its portion is timed again, under a new session name; when it does so twice, its kernels are timed one by one,
    and one whose workers die all the same fails, as a crash.
    """
    options = options or TimingOptions()
    found = device_of_workers(executor, device, isolate=options.isolate)
    device, affinity = found.device, found.affinity
    session = Session(options, uuid.uuid4().hex, recorder, affinity.setting)
    entries = entries_of(jobs, device, session)
    pool = Pool(executor)
    run = _Run(list(dict.fromkeys(entries)), device, session, pool, progress)
    try:
        run.generate_all()
        run.time_all()
    finally:
        run.abandon()
        pool.close()
    return outcomes_of(entries, options, affinity.said).labelled([job.label for job in jobs])


@runtime_checkable
class _AddsMany(Protocol):
    def add_many(
        self, samples: Sequence[tuple[MeasurementKey, Sample]], labels: Mapping[MeasurementKey, str]
    ) -> None: ...


@dataclass(eq=False)
class _KernelGroup:
    """Kernels that are to be timed together, how many workers died of that, and whether it is one tried alone."""

    entries: list[Entry]
    deaths: int = 0
    alone: bool = False


@dataclass(frozen=True, eq=False)
class _Submitted:
    """A group at work; results come in the order of its kernels."""

    group: _KernelGroup
    session: Session


@dataclass(eq=False)
class _Run:
    """One call of `measure_on`."""

    entries: list[Entry]
    device: TimedDevice
    session: Session
    pool: Pool
    progress: Progress | None
    waiting: deque[_KernelGroup] = field(default_factory=deque)
    running: dict[Future[PortionResult], _Submitted] = field(default_factory=dict)
    one_at_a_time: bool = False

    def generate_all(self) -> None:
        """Generate the code of all kernels before any is timed: doing it meanwhile would disturb CPU devices."""
        wanted = []
        for number, entry in enumerate(self.entries):
            self._report(number, entry.label)
            known = entry.failure is None and entry.is_known(self.session.options)
            if entry.failure is None and not known and self._generate(entry):
                wanted.append(entry)
        self.waiting.extend(map(_KernelGroup, divide(wanted, self.pool.width(1) if wanted else 1)))

    def time_all(self) -> None:
        """Have all groups timed."""
        while self.waiting or self.running:
            self._submit()
            done = self.pool.wait(self.running)
            if done:
                self._collect(done)
        self._report(2 * len(self.entries), "")

    def abandon(self) -> None:
        """Cancel what has not begun."""
        for future in self.running:
            future.cancel()

    def _submit(self) -> None:
        width = self.pool.width(len(self.waiting) + len(self.running))
        if self.one_at_a_time:
            width = min(1, width)
        while self.waiting and len(self.running) < width:
            group = self.waiting.popleft()
            session = replace(self.session, name=uuid.uuid4().hex)
            future = self.pool.submit(self._portion(group.entries, session.name))
            self.running[future] = _Submitted(group, session)
            self._report(self._count(), group.entries[0].label)
            if future.done():  # some executors work while they are handed the work
                break

    def _portion(self, entries: Sequence[Entry], session: str) -> Portion:
        from perflex.version import __version__

        items = (Item(entry.job, tuple(entry.samples)) for entry in entries)
        options, affinity = self.session.options, self.session.affinity or ""
        return Portion(__version__, self.device, options, session, affinity, tuple(items))

    def _collect(self, done: set[Future[PortionResult]]) -> None:
        """Take results; only then raise what went wrong with others."""
        faults: list[BaseException] = []
        several = len(self.running) > 1
        for future in done:
            submitted = self.running.pop(future)
            try:
                result = future.result()
            except LOSSES as error:
                self._lost(submitted, error, blamed=not (several and self.pool.breaks_as_a_whole))
            except PerflexError as error:
                faults.append(error)
            except FAULTS as error:
                fault = self.pool.explained(error)
                fault.__cause__ = None if fault is error else error
                faults.append(fault)
            else:
                faults += self._accepted(submitted, result)
        if faults:
            raise faults[0]
        self._report(self._count(), next((submitted.group.entries[0].label for submitted in self.running.values()), ""))

    def _accepted(self, submitted: _Submitted, result: PortionResult) -> list[PerflexError]:
        """Take a result; return the error that it ended with unless other workers may do better."""
        if result.unfit and result.error is not None:
            left = self.pool.leave_out(result.worker, result.error.message) and self.pool.width(1)
            if left:
                self.waiting.appendleft(submitted.group)
            return [] if left else [result.error]
        _record(submitted, result)
        for entry, outcome in zip(submitted.group.entries, result.items, strict=True):
            entry.samples += outcome.samples
            if outcome.failure is not None:
                kind, error = outcome.failure
                entry.give_up(error, kind, submitted.session)
        return [] if result.error is None else [result.error]

    def _lost(self, submitted: _Submitted, error: BaseException, *, blamed: bool) -> None:
        group = submitted.group
        if not blamed:
            # Others were at work as well: only one at a time will it show who is to blame.
            self.one_at_a_time = True
            self.waiting.appendleft(group)
            return
        group.deaths += error.deaths if isinstance(error, WorkersDiedError) else 1
        if group.deaths < _DEATHS:
            self.waiting.appendleft(group)
        elif not group.alone:
            self.waiting.extendleft(_KernelGroup([entry], alone=True) for entry in reversed(group.entries))
        else:
            label = group.entries[0].label
            reason = f"{type(error).__name__}: {error}".strip(": ")
            msg = f"{label}: {group.deaths} workers ended while they timed it alone ({reason})"
            group.entries[0].give_up(MeasurementError(msg, kernel=label, kind="crash"), "crash", submitted.session)

    def _generate(self, entry: Entry) -> bool:
        """Make of the job what a worker builds it from, if that was not done before; return whether that succeeded."""
        try:
            entry.job = request_for(entry.job, self.device)
        except PerflexError as error:
            entry.give_up(error, "prepare", self.session)
            return False
        return True

    def _count(self) -> int:
        """Return the steps done: all code is generated, and some kernels are timed."""
        waiting = sum(len(group.entries) for group in self.waiting)
        waiting += sum(len(submitted.group.entries) for submitted in self.running.values())
        return 2 * len(self.entries) - waiting

    def _report(self, done: int, label: str) -> None:
        if self.progress is not None:
            self.progress(done, 2 * len(self.entries), label)


def _record(submitted: _Submitted, result: PortionResult) -> None:
    """Have the recorder keep all samples of a portion, together if it can."""
    recorder = submitted.session.recorder
    if recorder is None:
        return
    pairs: list[tuple[MeasurementKey, Sample]] = []
    labels = {}
    for entry, outcome in zip(submitted.group.entries, result.items, strict=True):
        if entry.key is not None:
            labels[entry.key] = entry.label
            pairs += [(entry.key, sample) for sample in outcome.samples]
    if isinstance(recorder, _AddsMany):
        recorder.add_many(pairs, labels)
        return
    for key, sample in pairs:
        recorder.add(key, sample, labels[key])
