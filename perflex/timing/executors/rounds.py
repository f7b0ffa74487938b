"""Timing many kernels in the workers of an executor; what they send back is put together and kept here."""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from perflex.errors import MeasurementError, PerflexError
from perflex.timing.executors.pool import FAULTS, LOSSES, Pool, WorkersDiedError
from perflex.timing.executors.portions import Item, Portion, divide
from perflex.timing.isolation.affinity import affinity_of
from perflex.timing.key import with_affinity
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

    Code is generated here and sent as plain data, in portions of some 24 kernels that are timed in rounds. The device
    is found by its names on the worker's machine and has to have the same driver there. A lock for each device of a
    machine keeps workers there from timing at the same time.

    Samples and failures are written here, when a portion is done; workers never open the recorder's file. When a worker
    dies its portion is timed again, under a new session name; when it does so twice, its kernels are timed one by one,
    and one whose workers die all the same fails, as a crash.
    """
    options = options or TimingOptions()
    session = Session(options, uuid.uuid4().hex, recorder)
    entries = entries_of(jobs, device, session)
    pool = Pool(executor)
    run = _Run(list(dict.fromkeys(entries)), device, session, pool, progress)
    try:
        run.generate_all()
        run.time_all()
    finally:
        run.abandon()
        pool.close()
    own = affinity_of(device, isolate=options.isolate).said
    found = outcomes_of(entries, options, "; ".join(run.affinities) or own)
    return found.labelled([job.label for job in jobs])


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
    # What the workers said, each once, in the order in which it came.
    affinities: dict[str, None] = field(default_factory=dict)

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
            session = Session(self.session.options, uuid.uuid4().hex, self.session.recorder)
            future = self.pool.submit(self._portion(group.entries, session.name))
            self.running[future] = _Submitted(group, session)
            self._report(self._count(), group.entries[0].label)
            if future.done():  # some executors work while they are handed the work
                break

    def _portion(self, entries: Sequence[Entry], session: str) -> Portion:
        from perflex.version import __version__

        items = (Item(entry.job, tuple(entry.samples)) for entry in entries)
        return Portion(__version__, self.device, self.session.options, session, tuple(items))

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
                self._accept(submitted, result)
                faults += [] if result.error is None else [result.error]
        if faults:
            raise faults[0]
        self._report(self._count(), next((submitted.group.entries[0].label for submitted in self.running.values()), ""))

    def _accept(self, submitted: _Submitted, result: PortionResult) -> None:
        _record(submitted, result)
        if result.affinity.said:
            self.affinities[result.affinity.said] = None
        for entry, outcome in zip(submitted.group.entries, result.items, strict=True):
            entry.samples += outcome.samples
            if outcome.failure is not None:
                kind, error = outcome.failure
                entry.give_up(error, kind, submitted.session)

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
            # The worker's machine and environment decide, not those that the key was made for.
            key = with_affinity(entry.key, result.affinity.setting)
            labels[key] = entry.label
            pairs += [(key, sample) for sample in outcome.samples]
    if isinstance(recorder, _AddsMany):
        recorder.add_many(pairs, labels)
        return
    for key, sample in pairs:
        recorder.add(key, sample, labels[key])
