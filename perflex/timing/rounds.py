"""Kernels in the course of being timed: started once, then timed in rounds until their times are known."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from perflex.errors import DeviceError, MeasurementError, PerflexError
from perflex.store.records import Failure, Sample
from perflex.timing.disturbance import disturbed
from perflex.timing.launch.launch_times import LaunchTimes
from perflex.timing.launch.request import LaunchRequest, request_for
from perflex.timing.results import MeasurementFailure
from perflex.timing.statistics import interim_counts, interim_level, is_known_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from perflex.features.sized_kernel import SizedKernel
    from perflex.store.records import MeasurementKey, Recorder
    from perflex.timing.launch.backend import Backend, Runnable, TimedDevice
    from perflex.timing.launch.building import BoundKernel
    from perflex.timing.options import TimingOptions
    from perflex.timing.results import FailureKind

# Is called with the share of the work that is done, from 0 to 1, and the label of the kernel at work.
ShareReport: TypeAlias = "Callable[[float, str], None]"

# A timing shorter than this many ticks of the device's timer is repeated and averaged.
_TICKS = 50
_MOST_LAUNCHES = 1000
# On the host's processors a timing takes as long at least, in so many launches at most: what the system reports of a
# shorter time is the waking of threads, and single launches of short kernels differ by more than those of long ones.
_LEAST_ON_HOST_S = 1e-3
_MOST_ON_HOST = 200
# Timings that were disturbed are taken again: so many times the trials and the budget all together at most.
_RETAKEN = 2


@dataclass(frozen=True)
class Session:
    """One call that measures: its options, its name in records, and what keeps them.

    Attributes
    ----------
    options
        How kernels are timed.
    name
        Tells the samples of this call from others.
    recorder
        What is told every sample and failure.
    affinity
        The setting of a CPU device's processors (`Affinity`) where workers elsewhere time; None for that of a process
        which this one starts.
    """

    options: TimingOptions
    name: str
    recorder: Recorder | None = None
    affinity: str | None = None


@dataclass(eq=False)
class TimingJob:
    """A kernel in the course of being timed.

    Attributes
    ----------
    kernel
        The kernel with its sizes; or the request to build it, where its code was generated before.
    key
        Under what samples are kept; None where they are not.
    samples
        Of this session and, before them, of earlier ones.
    resumed
        How many of the samples are of earlier sessions.
    failure
        Why it was given up.
    runnable
        The kernel, built.
    launches
        Launches in one sample.
    seconds
        Time of one launch, about; nan before it is started.
    """

    kernel: SizedKernel | LaunchRequest
    key: MeasurementKey | None = None
    samples: list[Sample] = field(default_factory=list)
    resumed: int = 0
    failure: MeasurementFailure | None = None
    runnable: Runnable | None = None
    launches: int = 1
    seconds: float = math.nan
    _marks: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    # Every round asks again, of kernels that have no new sample, too.
    _verdict: tuple[int, TimingOptions, bool] | None = None

    @property
    def label(self) -> str:
        """Which kernel and sizes."""
        return self.kernel.label

    @property
    def marks(self) -> NDArray[np.bool_]:
        """Which samples were disturbed, as far as is known now, shape ``(n,)``."""
        if len(self._marks) != len(self.samples):
            self._marks = disturbed(self.samples)
        return self._marks

    def is_known(self, options: TimingOptions) -> bool:
        """Return whether no more samples are wanted; depends on the samples alone."""
        count = len(self.samples)
        if count < options.min_trials:
            return False
        if count >= _RETAKEN * options.trials:
            return True
        if self._verdict is None or self._verdict[:2] != (count, options):
            self._verdict = count, options, self._told_by_samples(options)
        return self._verdict[2]

    def _told_by_samples(self, options: TimingOptions) -> bool:
        """Return whether enough samples are undisturbed, their budget is spent, or the last look saw enough."""
        clean = [sample.seconds for sample, bad in zip(self.samples, self.marks, strict=True) if not bad]
        if len(clean) >= options.trials:
            return True
        # With the next sample, as long as the mean of those before; the sum's rounding must not decide.
        spent = math.fsum(sample.seconds * (sample.launches + options.warmups) for sample in self.samples)
        allowed = options.budget_s * (_RETAKEN if len(clean) < options.min_trials else 1)
        if spent * (1 + 1 / len(self.samples)) > allowed * (1 + 1e-9):
            return True
        # Only as many samples as the last look had: looking at any number would make chance stop it.
        seen = max((look for look in interim_counts(options.trials) if look <= len(clean)), default=0)
        if seen < options.min_trials:
            return False
        return is_known_to(options.precision, np.array(clean[:seen]), interim_level(options.trials))

    def is_due(self, options: TimingOptions) -> bool:
        """Return whether it is to be timed: it did not fail, and more samples are wanted."""
        return self.failure is None and not self.is_known(options)

    def give_up(self, error: PerflexError, kind: str, session: Session) -> None:
        """Keep why the kernel failed; the error may know better than the one who caught it what kind it is."""
        known: FailureKind = error.context.get("kind", kind)  # type: ignore[assignment]
        self.failure = MeasurementFailure(self.label, error.message, known, error)
        if session.recorder is not None and self.key is not None:
            failure = Failure(known, error.message, time.time(), session.name)
            session.recorder.fail(self.key, failure, self.label)


def start(job: TimingJob, backend: Backend, session: Session) -> None:
    """Build a kernel, run it for a first time, and decide how many launches make a sample."""
    stage = "prepare"
    try:
        job.kernel = request_for(job.kernel, backend.device)
        _require_no_data(job.kernel)
        job.runnable = backend.build(job.kernel)
        stage = "run"
        (seconds,) = _run(job, 1, session.options).seconds
        if seconds > session.options.limit_s:
            msg = f"{job.label}: one launch took {seconds:.3g} s, the limit is {session.options.limit_s:g} s"
            raise MeasurementError(msg, kernel=job.label, kind="limit")
        # The first launch pays for page faults and lazy loading, so the second one tells the cost.
        job.seconds = min(seconds, *_run(job, 1, session.options).seconds)
    # First, for it is a PerflexError, too: without the device no other kernel can be timed either.
    except DeviceError:
        raise
    except PerflexError as error:
        job.give_up(error, stage, session)
        return
    job.launches = _launches(job.seconds, backend)


def _run(job: TimingJob, launches: int, options: TimingOptions, warmups: int = 0) -> LaunchTimes:
    """Launch a kernel that was built, after warm-ups, with caches as they are wanted."""
    runnable = job.runnable
    if runnable is None:
        msg = f"{job.label} is to be timed but was not built"
        raise MeasurementError(msg, kernel=job.label)
    cold = options.caches == "cold"
    if isinstance(job.kernel, LaunchRequest):
        return cast("BoundKernel", runnable).run(launches, cold=cold, warmups=warmups)
    if cold:
        msg = f"{job.label}: nothing is known of this device's caches; leave out caches='cold'"
        raise MeasurementError(msg, kernel=job.label)
    for _ in range(warmups):
        runnable.run(1)
    times = runnable.run(launches)
    return times if isinstance(times, LaunchTimes) else LaunchTimes(tuple(times))


def _require_no_data(job: SizedKernel | LaunchRequest) -> None:
    """Refuse a kernel whose time depends on the values in its arrays: those are made up."""
    if isinstance(job, LaunchRequest) and job.by_data:
        msg = (
            f"{job.label}: cannot be timed with made-up data, which decide its time ({job.by_data}); give it data "
            "(time_kernel arrays=, perflex time --array), or times of your own (calibrate --times)"
        )
        raise MeasurementError(msg, kernel=job.label)


def shortest_sample_s(device: TimedDevice) -> float:
    """Return for how long a kernel runs on a device for one sample at least, in seconds; 0 where one launch will do."""
    return _LEAST_ON_HOST_S if getattr(device, "kind", "") == "cpu" else 0.0


def _launches(seconds: float, backend: Backend) -> int:
    resolution = backend.timer_resolution_s
    for_timer = _launches_for(_TICKS * resolution, seconds, resolution, _MOST_LAUNCHES)
    return max(for_timer, _launches_for(shortest_sample_s(backend.device), seconds, resolution, _MOST_ON_HOST))


def _launches_for(wanted_s: float, seconds: float, resolution: float, most: int) -> int:
    """Return how many launches take so long together."""
    # A launch shorter than the timer's resolution can be timed as 0 s.
    return min(most, max(1, math.ceil(wanted_s / max(seconds, resolution, 1e-9))))


def time_in_rounds(jobs: Sequence[TimingJob], session: Session, progress: ShareReport | None = None) -> None:
    """Time kernels in rounds, each in another random order, until all are known.

    Kernels that are known drop out of later rounds.
    """
    options = session.options
    order = random.Random(options.seed)  # noqa: S311  the order of timings is no secret
    number = 0
    while due := [job for job in jobs if job.is_due(options)]:
        known = sum(job not in due for job in jobs)
        # Either kernels become known one by one, or all of them together after the last trial.
        share = max(known / len(jobs), min(number / options.trials, 1.0))
        # In a fixed order the same kernel would always pay for what another leaves behind (caches, clock rate, heat).
        order.shuffle(due)
        for job in due:
            if progress is not None:
                progress(share, job.label)
            _time(job, number, session)
        number += 1


def _time(job: TimingJob, number: int, session: Session) -> None:
    started = time.time()
    try:
        times = _run(job, job.launches, session.options, session.options.warmups)
    except DeviceError:
        raise
    except PerflexError as error:
        job.give_up(error, "run", session)
        return
    sample = Sample(_midmean(times.seconds), len(times.seconds), started, session.name, number, times.activity)
    job.samples.append(sample)
    # The mark is what is known now: the kernel's later samples may tell more, so that it is not relied on afterwards.
    job.samples[-1] = sample = replace(sample, disturbed=bool(job.marks[-1]))
    if session.recorder is not None and job.key is not None:
        session.recorder.add(job.key, sample, job.label)


def _midmean(times: Sequence[float]) -> float:
    """Return the mean of the middle half: one launch among many that was interrupted must not decide."""
    cut = len(times) // 4
    middle = sorted(times)[cut : len(times) - cut]
    return math.fsum(middle) / len(middle)
