"""Timing many kernels within a part's time: in batches, so that what is timed is known when time is up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure

from .budget import TimeUpError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perflex import TimingOptions
    from perflex.features import SizedKernel
    from perflex.timing.results import Timing

    from .budget import Allotted

__all__ = ["Timed", "in_batches"]


@dataclass(frozen=True)
class Timed:
    """A kernel's outcome.

    Attributes
    ----------
    index
        Its place among the jobs.
    timing
        None if it failed.
    failure
        Why, in one line; empty if it did not.
    kind
        Of the failure, as `MeasurementFailure` has it.
    """

    index: int
    timing: Timing | None
    failure: str = ""
    kind: str = ""


def in_batches(
    jobs: Sequence[SizedKernel],
    device: Any,
    options: TimingOptions,
    time: Allotted,
    size: int,
) -> Iterator[Timed]:
    """Time kernels, a batch of them in rounds at a time, until all are timed or time is up.

    Parameters
    ----------
    jobs
        The kernels with their sizes.
    size
        Kernels of a batch.

    Raises
    ------
    TimeUpError
        Not all are timed; what was timed in complete batches was yielded before.
    """
    done = 0
    for first in range(0, len(jobs), size):
        batch = jobs[first : first + size]
        try:
            outcomes = measure(batch, device, options, time.progress)
        except TimeUpError as error:
            msg = f"{done} of {len(jobs)} kernels are timed: {error}"
            raise TimeUpError(msg) from None
        for index, outcome in enumerate(outcomes, start=first):
            if isinstance(outcome, MeasurementFailure):
                yield Timed(index, None, outcome.reason.replace("\n", " "), outcome.kind)
            else:
                yield Timed(index, outcome)
        done += len(batch)
