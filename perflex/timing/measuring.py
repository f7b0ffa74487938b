"""Timing many kernels on one device: interleaved rounds, robust statistics, failures kept apart."""

from __future__ import annotations

import uuid
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from perflex.devices.device import Device
from perflex.devices.listing import device_of, find_device
from perflex.errors import DeviceError, MeasurementError, PerflexError, warn
from perflex.features.sized_kernel import SizedKernel, sized_kernels
from perflex.timing.device_lock import device_lock
from perflex.timing.disturbance import disturbed as disturbed_samples
from perflex.timing.disturbance import full_use, used_samples
from perflex.timing.isolation.affinity import affinity_of
from perflex.timing.isolation.backend import IsolatedBackend
from perflex.timing.key import measurement_key
from perflex.timing.launch.backend import RunLimits, backend_of
from perflex.timing.launch.request import LaunchRequest, launch_request
from perflex.timing.launch.source_plan import names_taken
from perflex.timing.options import TimingOptions
from perflex.timing.results import Measured, MeasurementFailure, Timing
from perflex.timing.rounds import Entry, Session, start, time_in_rounds
from perflex.timing.statistics import estimate, level_of_look
from perflex.workers import EXECUTOR_FAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor, Future
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from perflex.progress import Progress
    from perflex.store.records import MeasurementKey, Recorder
    from perflex.timing.launch.backend import Backend, TimedDevice
    from perflex.timing.results import FailureKind

_Generated: TypeAlias = "LaunchRequest | PerflexError"


class GeneratedAhead:
    """Code of kernels, in the making.

    Parameters
    ----------
    entries
        Kernels to be built, in this order.
    device
        Where; only for a `Device` code is generated.
    executor
        Whose workers generate it; with None nothing is done ahead.
    """

    def __init__(self, entries: Sequence[Entry], device: TimedDevice, executor: Executor | None) -> None:
        self._pending: dict[int, tuple[Future[list[_Generated]], int]] = {}
        if executor is None or not isinstance(device, Device):
            return
        # One kernel at all its sizes goes to one worker: its code is the same.
        by_kernel: dict[int, list[tuple[Entry, SizedKernel]]] = {}
        for entry in entries:
            if isinstance(entry.job, SizedKernel):
                by_kernel.setdefault(id(entry.job.kernel), []).append((entry, entry.job))
        try:
            for group in by_kernel.values():
                future = executor.submit(_generate, [job for _, job in group], device)
                self._pending |= {id(entry): (future, place) for place, (entry, _) in enumerate(group)}
        except EXECUTOR_FAULTS:
            return  # what was not handed over is generated here

    def take(self, entry: Entry) -> PerflexError | None:
        """Give an entry its code if that was made; return why it cannot be."""
        if id(entry) not in self._pending:
            return None
        future, place = self._pending.pop(id(entry))
        try:
            found = future.result()[place]
        except EXECUTOR_FAULTS:
            return None  # building generates it here
        if isinstance(found, PerflexError):
            return found
        entry.job = found
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


# Failures that cost a process each time.
_NOT_AGAIN: Mapping[str, FailureKind] = {"hang": "hang", "crash": "crash"}


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
    if isinstance(where, Device):
        taken = names_taken(job, where.api)
        if unknown := [name for name in sizes if name not in taken]:
            warn(f"kernel {job.group!r} takes no {', '.join(unknown)}; it takes {', '.join(taken) or 'no number'}")
    return outcome


def measure(
    jobs: Sequence[SizedKernel],
    device: TimedDevice,
    options: TimingOptions | None = None,
    progress: Progress | None = None,
    recorder: Recorder | None = None,
    executor: Executor | None = None,
) -> Measured:
    """Time kernels on a device.

    All kernels are built and run once; then they are timed in rounds, each round in another random order, until the
    time of each is known to the precision asked for or its trials or budget are spent. One process at a time does so
    on a device; another one waits, and a warning says for whom. On real devices kernels run in a process of their own:
    one that crashes the driver or does not end fails, alone.
    """
    options = options or TimingOptions()
    session = Session(options, uuid.uuid4().hex, recorder)
    of_jobs = entries_of(jobs, device, session)
    entries = list(dict.fromkeys(of_jobs))
    # A run that is resumed may have nothing left to do; then the device need not even be there.
    if any(entry.is_due(options) for entry in entries):
        with alone_on(device), closing(open_backend(device, options)) as backend:
            time_entries(entries, backend, session, progress, executor)
    if progress is not None:
        progress(2 * len(entries), 2 * len(entries), "")
    found = outcomes_of(of_jobs, options, affinity_of(device, isolate=options.isolate).said)
    return found.labelled([job.label for job in jobs])


def time_entries(
    entries: Sequence[Entry],
    backend: Backend,
    session: Session,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> None:
    """Start all kernels, then time them; each half of that counts one step for each kernel; see `measure`."""
    count = len(entries)

    def report(done: int, label: str) -> None:
        if progress is not None:
            progress(done, 2 * count, label)

    wanted = [entry for entry in entries if entry.is_due(session.options)]
    ahead = GeneratedAhead(wanted, backend.device, executor)
    for index, entry in enumerate(entries):
        report(index, entry.label)
        if entry.is_due(session.options):
            failed = ahead.take(entry)
            if failed is None:
                start(entry, backend, session)
            else:
                entry.give_up(failed, "prepare", session)
    time_in_rounds(entries, session, lambda share, label: report(count + round(count * share), label))


def entries_of(jobs: Sequence[SizedKernel | LaunchRequest], device: TimedDevice, session: Session) -> list[Entry]:
    """Return the jobs as entries that know their samples and failures of earlier sessions.

    Jobs that are one kernel under several labels share an entry, as their samples are trials of one measurement.
    """
    entries = [Entry(job) for job in jobs]
    known: dict[MeasurementKey, Entry] = {}
    for entry in entries:
        _recall(entry, device, session)
    return [entry if entry.key is None else known.setdefault(entry.key, entry) for entry in entries]


def alone_on(device: TimedDevice) -> AbstractContextManager[object]:
    """Return what makes other processes wait that would measure on a device; one's own devices see to it themselves."""
    return device_lock(device, tells=True) if isinstance(device, Device) else nullcontext()


def open_backend(device: TimedDevice, options: TimingOptions) -> Backend:
    """Return what runs kernels on a device, those of a `Device` in a process of their own where that is asked for."""
    if not isinstance(device, Device):
        return device.backend()
    if not options.isolate:
        return backend_of(device)
    backend = IsolatedBackend(device, RunLimits(launch_s=options.limit_s, build_s=options.build_limit_s))
    backend.worker()  # its process starts and opens the device while code of the first kernel is generated here
    return backend


def _recall(entry: Entry, device: TimedDevice, session: Session) -> None:
    """Give a kernel what is known of it from earlier sessions."""
    if session.recorder is None or isinstance(entry.job, LaunchRequest):
        return  # samples are kept under what a kernel is, which its code does not tell
    try:
        entry.key = measurement_key(entry.job, device, session.options, session.affinity)
    except MeasurementError as error:
        entry.failure = MeasurementFailure(entry.label, f"{entry.label}: {error.message}", "prepare", error)
        return
    entry.samples = list(session.recorder.earlier(entry.key))
    entry.resumed = len(entry.samples)
    failure = session.recorder.failure(entry.key)
    if failure is None or failure.kind not in _NOT_AGAIN or session.options.retry_failures:
        return
    msg = f"{failure.message} (in an earlier run; TimingOptions(retry_failures=True) tries it again)"
    again = MeasurementError(msg, kernel=entry.label, kind=failure.kind)
    entry.failure = MeasurementFailure(entry.label, msg, _NOT_AGAIN[failure.kind], again)


def outcomes_of(entries: Sequence[Entry], options: TimingOptions, affinity: str = "") -> Measured:
    """Return what is known of the entries, `affinity` as in `Measured`."""
    timed = [entry for entry in dict.fromkeys(entries) if entry.failure is None]
    full = full_use(entry.samples for entry in timed)
    chosen = [used_samples(entry.samples, full) for entry in timed]
    timings = {
        id(entry): _timing(entry, np.array([sample.seconds for sample in used]), options, disturbed=poor)
        for entry, (used, poor) in zip(timed, chosen, strict=True)
    }
    outcomes = [entry.failure or timings[id(entry)] for entry in entries]
    return Measured(outcomes, sum(entry.resumed for entry in dict.fromkeys(entries)), affinity)


def _timing(entry: Entry, values: NDArray[np.float64], options: TimingOptions, *, disturbed: bool) -> Timing:
    """Summarize the samples of a kernel that are used."""
    found = estimate(values, level_of_look(options.trials))
    return Timing(
        label=entry.label,
        seconds=found.seconds,
        spread=found.spread,
        samples=tuple(sample.seconds for sample in entry.samples),
        # Earlier sessions may have averaged over another number of launches.
        launches=entry.samples[-1].launches,
        interval=found.interval,
        outliers=found.outliers,
        # How well a correction for what was lacking is known, no interval tells.
        precise=found.known_to(options.precision) and not disturbed,
        repeatability=found.repeatability,
        disturbed_samples=int(disturbed_samples(entry.samples).sum()),
        disturbed=disturbed,
    )
