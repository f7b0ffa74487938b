"""Timing variants a few at a time, in one process that stays: starting one takes longer than timing a variant.

Minutes lie between the first and the last. A few of the first variants are timed with all that come later, and tell
how much slower or faster the device has become. (`assess_drift` looks for a trend within one timing, which takes more
rounds than a variant that is to be told apart from much slower ones.)
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np

from perflex.timing.measuring import entries_of, open_backend, outcomes_of
from perflex.timing.results import Measured, Timing
from perflex.timing.rounds import Entry, Session, reference_suitability, start, time_in_rounds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.options import TimingOptions

# Several, because one may have been lucky in the beginning.
_REFERENCES = 3


class VariantTimer:
    """Builds and times variants on a device, which stays open until the end of the ``with`` block.

    Parameters
    ----------
    device
        Where to run.
    options
        How variants are timed.

    Attributes
    ----------
    slowdown
        How many times as long as at first the reference variants took at last.
    """

    def __init__(self, device: TimedDevice, options: TimingOptions) -> None:
        self._device = device
        self._options = options
        self._backend = open_backend(device, options)
        self._built: dict[str, Entry] = {}
        self._references: dict[str, float] = {}
        self.slowdown = 1.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._backend.close()

    def timed(self, jobs: Sequence[SizedKernel | LaunchRequest]) -> Measured:
        """Build variants, from code where that was generated before, and time them side by side.

        Raises
        ------
        DeviceError
            The device cannot be opened, or no more.
        """
        session = Session(self._options, uuid.uuid4().hex, None)
        entries = entries_of(jobs, self._device, session)
        for entry in entries:
            start(entry, self._backend, session)
        # In the same rounds as the new variants: what slows the device down slows both.
        references = [_anew(self._built[label]) for label in self._references]
        time_in_rounds([*entries, *references], self._backend, session)
        self._built |= {entry.label: entry for entry in entries if entry.failure is None}
        found = outcomes_of([*entries, *references], self._options)
        if not references:
            self._choose_references(entries, found)
        times = {timing.label: timing.seconds for timing in found if isinstance(timing, Timing)}
        ratios = [times[label] / first for label, first in self._references.items() if label in times]
        self.slowdown = float(np.median(ratios)) if ratios else self.slowdown
        return Measured(found[: len(entries)], found.drift)

    def _choose_references(self, entries: Sequence[Entry], found: Measured) -> None:
        timed = {timing.label: timing.seconds for timing in found if isinstance(timing, Timing)}
        fit = sorted((entry for entry in entries if entry.label in timed), key=reference_suitability, reverse=True)
        # Slow ones would cost more than what they are timed with.
        suitable = [entry for entry in fit if reference_suitability(entry)[0]]
        self._references = {entry.label: timed[entry.label] for entry in suitable[:_REFERENCES] or fit[:1]}

    def again(self, labels: Sequence[str], options: TimingOptions) -> Measured:
        """Time variants anew that were timed before, side by side and without building them.

        Raises
        ------
        DeviceError
            The device cannot be opened any more.
        """
        session = Session(options, uuid.uuid4().hex, None)
        entries = [_anew(self._built[label]) for label in labels]
        time_in_rounds(entries, self._backend, session)
        return outcomes_of(entries, options)


def _anew(entry: Entry) -> Entry:
    return Entry(entry.job, runnable=entry.runnable, launches=entry.launches, seconds=entry.seconds)
