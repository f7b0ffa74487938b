"""Portions of measuring work and their results, as plain data that goes to other processes and machines."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from perflex.timing.isolation.affinity import Affinity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.errors import PerflexError
    from perflex.features.sized_kernel import SizedKernel
    from perflex.store.records import Sample
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.options import TimingOptions

_Entry = TypeVar("_Entry")

# A portion is what is lost at most when a worker dies, and has to be large enough for rounds to interleave kernels.
_MOST_KERNELS = 24
_FEWEST_KERNELS = 8


@dataclass(frozen=True)
class Item:
    """A kernel to be timed.

    Attributes
    ----------
    request
        What the device's backend builds it from, see `request_for`.
    samples
        What is known of it; enough of it and the kernel is a reference only.
    """

    request: SizedKernel | LaunchRequest
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class Portion:
    """Kernels that are timed together in rounds by one worker.

    Attributes
    ----------
    version
        Version of perflex that sends it.
    device
        As the sender knows it.
    options
        How kernels are timed.
    session
        Name that the portion's samples get: a new one each time it is sent.
    items
        The kernels.
    """

    version: str
    device: TimedDevice
    options: TimingOptions
    session: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class ItemResult:
    """The new samples of a kernel, and the kind of failure and the error if it failed."""

    samples: tuple[Sample, ...] = ()
    failure: tuple[str, PerflexError] | None = None


@dataclass(frozen=True)
class PortionResult:
    """The result of a portion.

    Attributes
    ----------
    items
        One result per item.
    error
        Why the portion ended early, as where the device was lost.
    affinity
        What decided on the processors of the device's workers on that machine.
    """

    items: tuple[ItemResult, ...]
    error: PerflexError | None = None
    affinity: Affinity = field(default_factory=Affinity)


def divide(entries: Sequence[_Entry], workers: int) -> list[list[_Entry]]:
    """Divide kernels into portions of about equal numbers.

    Neighbours stay together: they are often one kernel with several sizes, which is then built once, and not tried
    again with larger sizes once it hung.

    Parameters
    ----------
    entries
        What to divide.
    workers
        How many may measure at the same time.
    """
    if not entries:
        return []
    # As many as workers, so that none is idle, unless portions became too small for rounds.
    for_all = min(workers, len(entries) // _FEWEST_KERNELS)
    number = max(1, math.ceil(len(entries) / _MOST_KERNELS), for_all)
    bounds = [round(index * len(entries) / number) for index in range(number + 1)]
    return [list(entries[first:last]) for first, last in pairwise(bounds)]
