"""Variants that are built and timed a few at a time, on a device that stays open.

Minutes lie between the first and the last. A few of the first variants are timed with all that come later, and tell
how much slower or faster the device has become.
"""

from __future__ import annotations

import math
import uuid
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import MeasurementError
from perflex.timing.measuring import alone_on, entries_of, open_backend, outcomes_of
from perflex.timing.results import Measured, Timing
from perflex.timing.rounds import Entry, Session, start, time_in_rounds

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

    `slowdown` says how many times as long as at first the reference variants took at last. With a `check`, variants
    whose results are wrong fail before they are timed.
    """

    def __init__(self, device: TimedDevice, options: TimingOptions, check: ResultCheck | None = None) -> None:
        self._device = device
        self._options = options
        self._check = check
        with ExitStack() as stack:
            stack.enter_context(alone_on(device))
            self._backend = stack.enter_context(closing(open_backend(device, options)))
            self._open = stack.pop_all()
        self._built: dict[str, Entry] = {}
        self._references: dict[str, float] = {}
        self.slowdown = 1.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def timed(self, jobs: Sequence[SizedKernel | LaunchRequest]) -> Measured:
        """Build variants, from code where that was generated before, and time them side by side."""
        session = Session(self._options, uuid.uuid4().hex, None)
        entries = entries_of(jobs, self._device, session)
        for entry in entries:
            start(entry, self._backend, session)
            if self._check is not None and entry.failure is None:
                self._refuse_wrong(entry, self._check, session)
        # In the same rounds as the new variants: what slows the device down slows both.
        references = [_anew(self._built[label]) for label in self._references]
        time_in_rounds([*entries, *references], session)
        self._built |= {entry.label: entry for entry in entries if entry.failure is None}
        found = outcomes_of([*entries, *references], self._options)
        if not references:
            self._choose_references(entries, found)
        times = {timing.label: timing.seconds for timing in found if isinstance(timing, Timing)}
        ratios = [times[label] / first for label, first in self._references.items() if label in times]
        self.slowdown = float(np.median(ratios)) if ratios else self.slowdown
        return Measured(found[: len(entries)])

    @staticmethod
    def _refuse_wrong(entry: Entry, check: ResultCheck, session: Session) -> None:
        try:
            check.require_right(entry.job, entry.runnable)
        except MeasurementError as error:
            entry.give_up(error, "run", session)

    def _choose_references(self, entries: Sequence[Entry], found: Measured) -> None:
        timed = {timing.label: timing.seconds for timing in found if isinstance(timing, Timing)}
        fit = sorted((entry for entry in entries if entry.label in timed), key=_suitability, reverse=True)
        # Slow ones would cost more than what they are timed with.
        suitable = [entry for entry in fit if _suitability(entry)[0]]
        self._references = {entry.label: timed[entry.label] for entry in suitable[:_REFERENCES] or fit[:1]}

    def again(self, labels: Sequence[str], options: TimingOptions) -> Measured:
        """Time variants anew that were timed before, side by side and without building them."""
        session = Session(options, uuid.uuid4().hex, None)
        entries = [_anew(self._built[label]) for label in labels]
        time_in_rounds(entries, session)
        return outcomes_of(entries, options)


def _anew(entry: Entry) -> Entry:
    return Entry(entry.job, runnable=entry.runnable, launches=entry.launches, seconds=entry.seconds)


def _suitability(entry: Entry) -> tuple[bool, int, float]:
    """Return how well a kernel suits as a reference; the greatest suits best."""
    shortest, longest = _REFERENCE_S
    # Keeps the logarithm finite; only a fake device is faster.
    seconds = max(entry.seconds, 1e-12)
    rounds = len({(sample.session, sample.round) for sample in entry.samples})
    # The range's geometric mean is its middle on a scale of ratios.
    return shortest <= seconds <= longest, rounds, -abs(math.log(seconds / math.sqrt(shortest * longest)))
