"""Timing many kernels on one device: interleaved rounds, robust statistics, failures kept apart."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from perflex.errors import MeasurementError, PerflexError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import loopy as lp

    from perflex._timing_backend import Backend, Runnable, TimedDevice

__all__ = ["Job", "MeasurementFailure", "Progress", "Timing", "TimingOptions", "measure"]

Job: TypeAlias = "tuple[lp.TranslationUnit, Mapping[str, int], str]"
Progress: TypeAlias = "Callable[[int, int, str], None]"

# A timing shorter than this many ticks of the device's timer is repeated and averaged.
_TICKS = 50
_MOST_LAUNCHES = 1000


@dataclass(frozen=True)
class TimingOptions:
    """How kernels are timed.

    Attributes
    ----------
    trials
        Most timings of one kernel.
    min_trials
        Fewest timings of one kernel, whatever they cost.
    warmups
        Untimed launches before each timing: caches and worker threads are then in the state that repeated
        launches leave, whichever kernel ran before.
    statistic
        What a kernel's time is of its timings: ``"median"`` or ``"minimum"``.
    budget_s
        Device time for one kernel in seconds, warm-ups included; long kernels get fewer trials.
    limit_s
        A kernel whose first launch takes longer is given up.
    seed
        Of the random order within rounds.
    """

    trials: int = 25
    min_trials: int = 5
    warmups: int = 1
    statistic: Literal["median", "minimum"] = "median"
    budget_s: float = 1.0
    limit_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.statistic not in {"median", "minimum"}:
            msg = f"statistic must be 'median' or 'minimum', not {self.statistic!r}"
            raise MeasurementError(msg)
        if not 1 <= self.min_trials <= self.trials or self.warmups < 0:
            msg = (
                f"timing needs 1 <= min_trials <= trials and warmups >= 0, "
                f"got {self.min_trials}, {self.trials}, {self.warmups}"
            )
            raise MeasurementError(msg)
        if not (self.budget_s > 0 and self.limit_s > 0):
            msg = f"budget_s and limit_s must be positive, got {self.budget_s} and {self.limit_s}"
            raise MeasurementError(msg)


@dataclass(frozen=True)
class Timing:
    """The measured time of one kernel.

    Attributes
    ----------
    label
        Which kernel and sizes.
    seconds
        Time of one launch: the chosen statistic of the samples, in seconds.
    spread
        Interquartile range of the samples divided by their median.
    samples
        Every timing in seconds per launch, in the order taken.
    statistic
        ``"median"`` or ``"minimum"``.
    launches
        Launches averaged in one sample: 1 unless the kernel is too short for the device's timer.
    """

    label: str
    seconds: float
    spread: float
    samples: tuple[float, ...]
    statistic: str
    launches: int = 1


@dataclass(frozen=True)
class MeasurementFailure:
    """A kernel that could not be timed.

    Attributes
    ----------
    label
        Which kernel and sizes.
    reason
        Cause in one line, the compiler's or driver's message included.
    kind
        ``"prepare"`` (code generation, build, limits, missing sizes), ``"run"`` or ``"limit"`` (too slow).
    error
        The error itself.
    """

    label: str
    reason: str
    kind: Literal["prepare", "run", "limit"]
    error: PerflexError


@dataclass
class _Entry:
    """A kernel in the course of being timed."""

    index: int
    label: str
    runnable: Runnable
    trials: int
    launches: int
    samples: list[float]


def measure(
    jobs: Sequence[Job],
    device: TimedDevice,
    options: TimingOptions | None = None,
    progress: Progress | None = None,
) -> list[Timing | MeasurementFailure]:
    """Time kernels on a device.

    All kernels are built and run once; then they are timed in rounds, each round in another random order, so
    that a drift of the machine meets all kernels alike and not those that happen to come last. Kernels with
    fewer trials are spread over all rounds.

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

    Returns
    -------
    list
        A `Timing` or a `MeasurementFailure` per job, in the order of the jobs.

    Raises
    ------
    DeviceError
        The device cannot be opened.
    """
    options = options or TimingOptions()
    backend = device.backend()
    outcomes: dict[int, Timing | MeasurementFailure] = {}
    try:
        entries = []
        for index, job in enumerate(jobs):
            _tell(progress, index, 2 * len(jobs), job[2])
            entry = _started(index, job, backend, options)
            if isinstance(entry, MeasurementFailure):
                outcomes[index] = entry
            else:
                entries.append(entry)
        outcomes.update(_rounds(entries, options, progress, len(jobs)))
    finally:
        backend.close()
    return [outcomes[index] for index in range(len(jobs))]


def _started(index: int, job: Job, backend: Backend, options: TimingOptions) -> _Entry | MeasurementFailure:
    """Build a kernel, run it for a first time, and decide how often it will be timed."""
    kernel, sizes, label = job
    try:
        # What a user states about a kernel changes how it is counted, not how it runs.
        runnable = backend.prepare(getattr(kernel, "translation_unit", kernel), sizes, label)
    except PerflexError as error:
        return MeasurementFailure(label, error.message, "prepare", error)
    try:
        seconds = runnable.run(1)[0]
        if seconds > options.limit_s:
            msg = f"{label}: one launch took {seconds:.3g} s, the limit is {options.limit_s:g} s"
            return MeasurementFailure(label, msg, "limit", MeasurementError(msg, kernel=label))
        # The first launch pays for page faults and lazy loading, so the second one tells the cost.
        seconds = min(seconds, runnable.run(1)[0])
    except PerflexError as error:
        return MeasurementFailure(label, error.message, "run", error)
    launches = _launches(seconds, backend.timer_resolution_s)
    cost = max(seconds, 1e-9) * (launches + options.warmups)
    trials = min(options.trials, max(options.min_trials, int(options.budget_s / cost)))
    return _Entry(index, label, runnable, trials, launches, [])


def _launches(seconds: float, resolution: float) -> int:
    wanted = _TICKS * resolution
    if seconds >= wanted:
        return 1
    return min(_MOST_LAUNCHES, math.ceil(wanted / max(seconds, resolution)))


def _rounds(
    entries: Sequence[_Entry], options: TimingOptions, progress: Progress | None, jobs: int
) -> dict[int, Timing | MeasurementFailure]:
    outcomes: dict[int, Timing | MeasurementFailure] = {}
    order = random.Random(options.seed)  # noqa: S311  the order of timings is no secret
    rounds = max((entry.trials for entry in entries), default=0)
    for number in range(rounds):
        due = [entry for entry in entries if entry.index not in outcomes]
        due = [entry for entry in due if _is_due(entry.trials, number, rounds)]
        order.shuffle(due)
        for entry in due:
            _tell(progress, jobs + round(jobs * number / rounds), 2 * jobs, entry.label)
            try:
                for _ in range(options.warmups):
                    entry.runnable.run(1)
                times = entry.runnable.run(entry.launches)
            except PerflexError as error:
                outcomes[entry.index] = MeasurementFailure(entry.label, error.message, "run", error)
                continue
            entry.samples.append(math.fsum(times) / len(times))
    _tell(progress, 2 * jobs, 2 * jobs, "")
    for entry in entries:
        if entry.index not in outcomes:
            outcomes[entry.index] = _summary(entry, options)
    return outcomes


def _is_due(trials: int, number: int, rounds: int) -> bool:
    """Return whether a kernel with so many trials takes part in a round; true in `trials` of the rounds."""
    return (number + 1) * trials // rounds > number * trials // rounds


def _summary(entry: _Entry, options: TimingOptions) -> Timing:
    samples = np.array(entry.samples)
    low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
    seconds = float(middle if options.statistic == "median" else samples.min())
    return Timing(
        label=entry.label,
        seconds=seconds,
        spread=float((high - low) / middle) if middle > 0 else math.nan,
        samples=tuple(entry.samples),
        statistic=options.statistic,
        launches=entry.launches,
    )


def _tell(progress: Progress | None, done: int, total: int, label: str) -> None:
    if progress is not None:
        progress(done, total, label)
