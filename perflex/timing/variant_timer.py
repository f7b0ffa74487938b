"""Variants that are built and timed a few at a time, on a device that stays open.

Minutes lie between the first and the last. A few of the first variants are timed with all that come later, and tell
how much slower or faster the device has become.
"""

from __future__ import annotations

import math
import uuid
from typing import TYPE_CHECKING

import numpy as np

from perflex.timing.executors.on_workers import measure_on
from perflex.timing.executors.worker_device import WorkerDevice
from perflex.timing.results import Measured, Timing
from perflex.timing.rounds import Session, TimingJob
from perflex.timing.timer import Timer, jobs_of, outcomes_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.options import TimingOptions
    from perflex.timing.result_check import ResultCheck

# Several, because one may have been lucky in the beginning.
_REFERENCES = 3
# Reference kernels are long enough for the timer and the host's disturbances, and short enough for every round.
_REFERENCE_S = (5e-4, 5e-3)


class VariantTimer:
    """Builds and times variants on a device, which stays open until the end of the ``with`` block.

    `slowdown` says how many times as long as at first the reference variants took at last; on workers' devices, of
    which each may have its own, it stays 1. With a `check`, variants whose results are wrong fail before they are
    timed.
    """

    def __init__(self, device: TimedDevice, options: TimingOptions, check: ResultCheck | None = None) -> None:
        self._device = device
        self._options = options
        self._check = check
        self._timer = Timer(device, tells=True, check=check)
        self._built: dict[str, TimingJob] = {}
        self._references: dict[str, float] = {}
        self.slowdown = 1.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.__exit__()

    def timed(self, variants: Sequence[SizedKernel | LaunchRequest]) -> Measured:
        """Build variants, from code where that was generated before, and time them side by side."""
        if isinstance(self._device, WorkerDevice):
            self._built |= {variant.label: TimingJob(variant) for variant in variants}
            return measure_on(self._device, variants, self._options, check=self._check, fewest=1)
        session = Session(self._options, uuid.uuid4().hex)
        jobs = jobs_of(variants, self._device, session)
        # In the same rounds as the new variants: what slows the device down slows both.
        references = [_anew(self._built[label]) for label in self._references]
        self._timer.time([*jobs, *references], session)
        self._built |= {job.label: job for job in jobs if job.failure is None}
        found = outcomes_of([*jobs, *references], self._options)
        if not references:
            self._choose_references(jobs, found)
        times = {timing.label: timing.seconds for timing in found if isinstance(timing, Timing)}
        ratios = [times[label] / first for label, first in self._references.items() if label in times]
        self.slowdown = float(np.median(ratios)) if ratios else self.slowdown
        return Measured(found[: len(jobs)])

    def _choose_references(self, jobs: Sequence[TimingJob], found: Measured) -> None:
        timed = {timing.label: timing.seconds for timing in found if isinstance(timing, Timing)}
        fit = sorted((job for job in jobs if job.label in timed), key=_suitability, reverse=True)
        # Slow ones would cost more than what they are timed with.
        suitable = [job for job in fit if _suitability(job)[0]]
        self._references = {job.label: timed[job.label] for job in suitable[:_REFERENCES] or fit[:1]}

    def again(self, labels: Sequence[str], options: TimingOptions) -> Measured:
        """Time variants anew that were timed before, side by side and, on this machine, without building them."""
        if isinstance(self._device, WorkerDevice):
            # All by one worker, whose device is as fast for each of them.
            variants = [self._built[label].kernel for label in labels]
            return measure_on(self._device, variants, options, fewest=max(1, len(variants)))
        session = Session(options, uuid.uuid4().hex)
        jobs = [_anew(self._built[label]) for label in labels]
        self._timer.time(jobs, session)
        return outcomes_of(jobs, options)


def _anew(job: TimingJob) -> TimingJob:
    return TimingJob(job.kernel, runnable=job.runnable, launches=job.launches, seconds=job.seconds)


def _suitability(job: TimingJob) -> tuple[bool, int, float]:
    """Return how well a kernel suits as a reference; the greatest suits best."""
    shortest, longest = _REFERENCE_S
    # Keeps the logarithm finite; only a fake device is faster.
    seconds = max(job.seconds, 1e-12)
    rounds = len({(sample.session, sample.round) for sample in job.samples})
    # The range's geometric mean is its middle on a scale of ratios.
    return shortest <= seconds <= longest, rounds, -abs(math.log(seconds / math.sqrt(shortest * longest)))
