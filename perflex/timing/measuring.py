"""Timing many kernels on one device: interleaved rounds, robust statistics, failures kept apart."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from perflex.errors import MeasurementError
from perflex.timing.drift import assess_drift
from perflex.timing.key import measurement_key
from perflex.timing.launch.backend import IsolatingDevice, RunLimits
from perflex.timing.options import TimingOptions
from perflex.timing.results import Drift, Measured, MeasurementFailure, Timing
from perflex.timing.rounds import Entry, Session, start, time_in_rounds
from perflex.timing.statistics import estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import loopy as lp
    from numpy.typing import NDArray

    from perflex.devices.listing import Device
    from perflex.progress import Progress
    from perflex.store.records import Recorder
    from perflex.timing.launch.backend import Backend, KernelBackend, TimedDevice
    from perflex.timing.results import FailureKind

__all__ = [
    "Drift",
    "Job",
    "Measured",
    "MeasurementFailure",
    "Timing",
    "TimingOptions",
    "entries_of",
    "measure",
    "open_backend",
    "open_kernel_backend",
    "outcomes_of",
]

Job: TypeAlias = "tuple[lp.TranslationUnit, Mapping[str, int], str]"

# Failures that cost a process each time.
_NOT_AGAIN: Mapping[str, FailureKind] = {"hang": "hang", "crash": "crash"}


def measure(
    jobs: Sequence[Job],
    device: TimedDevice,
    options: TimingOptions | None = None,
    progress: Progress | None = None,
    recorder: Recorder | None = None,
) -> Measured:
    """Time kernels on a device.

    All kernels are built and run once; then they are timed in rounds, each round in another random order, until the
    time of each is known to the precision asked for or its trials or budget are spent. Reference kernels take part in
    every round, and drift of the device's speed is reported, and corrected where that helps (see `Drift`). On real
    devices kernels run in a process of their own: one that crashes the driver or does not end fails, alone.

    Parameters
    ----------
    jobs
        Kernel, sizes and label of each measurement.
    device
        Where to run: a `Device`, or a `FakeDevice`.
    options
        How; the defaults of `TimingOptions` if not given.
    progress
        Called with steps done, steps in all, and the label of the kernel at work.
    recorder
        Is told each sample and failure at once. Samples it has from before count, kernels with enough of them are not
        run (but for references), and kernels that crashed or hung before are not tried again.

    Returns
    -------
    Measured
        A `Timing` or a `MeasurementFailure` per job, in the order of the jobs; and the drift.

    Raises
    ------
    DeviceError
        The device cannot be opened, or no more.
    """
    options = options or TimingOptions()
    session = Session(options, uuid.uuid4().hex, recorder)
    entries = entries_of(jobs, device, session)
    backend = open_backend(device, options)
    try:
        for index, entry in enumerate(entries):
            _tell(progress, index, 2 * len(jobs), entry.label)
            if entry.failure is None and not entry.is_known(options):
                start(entry, backend, session)
        told = 0

        def tell(share: float, label: str) -> None:
            nonlocal told
            told = max(told, round(len(jobs) * share))
            _tell(progress, len(jobs) + told, 2 * len(jobs), label)

        time_in_rounds(entries, backend, session, tell)
    finally:
        backend.close()
    _tell(progress, 2 * len(jobs), 2 * len(jobs), "")
    return outcomes_of(entries, options)


def entries_of(jobs: Sequence[Job], device: TimedDevice, session: Session) -> list[Entry]:
    """Return the jobs as entries that know their samples and failures of earlier sessions."""
    # What a user states about a kernel changes how it is counted, not how it runs.
    entries = [Entry(label, (getattr(unit, "translation_unit", unit), sizes)) for unit, sizes, label in jobs]
    for entry in entries:
        _recall(entry, device, session)
    return entries


def open_backend(device: TimedDevice, options: TimingOptions) -> Backend:
    """Return what runs kernels on a device, in a process of their own where that is asked for and possible."""
    if options.isolate and isinstance(device, IsolatingDevice):
        return device.isolated_backend(_limits(options))
    return device.backend()


def open_kernel_backend(device: Device, options: TimingOptions) -> KernelBackend:
    """Return what runs kernels on a real device, in a process of their own where that is asked for."""
    return device.isolated_backend(_limits(options)) if options.isolate else device.backend()


def _limits(options: TimingOptions) -> RunLimits:
    return RunLimits(launch_s=options.limit_s, build_s=options.build_limit_s)


def _recall(entry: Entry, device: TimedDevice, session: Session) -> None:
    """Give a kernel what is known of it from earlier sessions."""
    if session.recorder is None:
        return
    kernel, sizes = entry.job
    try:
        entry.key = measurement_key(kernel, sizes, device, session.options)
    except MeasurementError as error:
        entry.failure = MeasurementFailure(entry.label, f"{entry.label}: {error.message}", "prepare", error)
        return
    entry.samples = list(session.recorder.earlier(entry.key))
    if entry.samples:
        entry.seconds = float(np.median([sample.seconds for sample in entry.samples]))
    failure = session.recorder.failure(entry.key)
    if failure is None or failure.kind not in _NOT_AGAIN or session.options.retry_failures:
        return
    msg = f"{failure.message} (in an earlier run; TimingOptions(retry_failures=True) tries it again)"
    again = MeasurementError(msg, kernel=entry.label, kind=failure.kind)
    entry.failure = MeasurementFailure(entry.label, msg, _NOT_AGAIN[failure.kind], again)


def outcomes_of(entries: Sequence[Entry], options: TimingOptions) -> Measured:
    """Return what is known of the entries, after correction of drift if there is one."""
    timed = [entry for entry in entries if entry.failure is None]
    corrected = assess_drift([entry.label for entry in timed], [entry.samples for entry in timed])
    values = dict(zip(map(id, timed), corrected.samples, strict=True))
    return Measured([entry.failure or _timing(entry, values[id(entry)], options) for entry in entries], corrected.drift)


def _timing(entry: Entry, values: NDArray[np.float64], options: TimingOptions) -> Timing:
    """Summarize a kernel's samples, drift corrected if at all."""
    found = estimate(values, options.statistic)
    return Timing(
        label=entry.label,
        seconds=found.seconds,
        spread=found.spread,
        samples=tuple(sample.seconds for sample in entry.samples),
        statistic=options.statistic,
        launches=entry.samples[-1].launches,
        interval=found.interval,
        outliers=found.outliers,
        second_mode=found.second_mode,
        precise=found.known_to(options.precision),
    )


def _tell(progress: Progress | None, done: int, total: int, label: str) -> None:
    if progress is not None:
        progress(done, total, label)
