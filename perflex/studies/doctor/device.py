"""What short trials of a device say: launch cost, repeatability, heaps of times, drift, disturbed samples."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import PerflexError
from perflex.features.sized_kernel import SizedKernel
from perflex.studies.doctor.system import between, read_counters
from perflex.timing.disturbance import disturbed
from perflex.timing.measuring import measure
from perflex.timing.options import TimingOptions
from perflex.timing.results import Timing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity
    from perflex.studies.doctor.system import Interference
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.results import Measured

LAUNCH = "launch"
"""Name of the trial kernel that does next to nothing."""
# By name: tags of the catalog. Next to nothing; some 0.5 and 2 ms of multiply-adds and 5 ms of memory traffic on a CPU.
_MADD = ("flops_madd_pattern", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "m:64")
_TRIALS: Mapping[str, tuple[str, ...]] = {
    LAUNCH: ("empty", "lsize_0:16", "lsize_1:16", "ngroups:16"),
    "arithmetic, short": (*_MADD, "nelements:32768"),
    "arithmetic, long": (*_MADD, "nelements:131072"),
    "memory": ("gmem_copy", "dtype:float32", "width:1", "lsize_0:256", "groups_fit:True", "nelements:4194304"),
}
_SAMPLES = 20
_FEWEST_BLOCKS, _MOST_BLOCKS = 2, 4
# Of the time for a block, what its launches may take; the rest is for the process, builds, and the host's own work.
_LAUNCHING = 0.4


@dataclass(frozen=True)
class Trial:
    """One kernel, timed in blocks one after the other.

    Attributes
    ----------
    name
        What the kernel does.
    seconds
        Reported time of each block, in seconds.
    samples
        Samples of each block, in the order taken.
    """

    name: str
    seconds: tuple[float, ...]
    samples: tuple[tuple[Sample, ...], ...]

    @property
    def values(self) -> NDArray[np.float64]:
        """All samples in seconds, shape ``(samples,)``."""
        return np.array([sample.seconds for block in self.samples for sample in block])


@dataclass(frozen=True)
class DeviceTrials:
    """What was measured of a device.

    Attributes
    ----------
    trials
        By kernel, those that could be timed in every block.
    drift
        The largest drift that the reference kernels showed within a block: longest time over shortest; 1 where
        there was none.
    load
        What went on in the system meanwhile, the device's own work included.
    failures
        Why kernels could not be timed.
    seconds
        How long it took, in seconds.
    """

    trials: tuple[Trial, ...] = ()
    drift: float = 1.0
    load: Interference | None = None
    failures: tuple[str, ...] = ()
    seconds: float = 0.0


class _Kept:
    """A recorder that holds samples by label for one block, and knows none from before."""

    def __init__(self) -> None:
        self.samples: dict[str, list[Sample]] = {}

    def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:  # noqa: ARG002 - protocol
        return ()

    def failure(self, key: MeasurementKey) -> Failure | None:  # noqa: ARG002 - protocol
        return None

    def add(self, key: MeasurementKey, sample: Sample, label: str = "") -> None:  # noqa: ARG002 - protocol
        self.samples.setdefault(label, []).append(sample)

    def fail(self, key: MeasurementKey, failure: Failure, label: str = "") -> None:
        """Do nothing: the outcome says it, too."""


def try_device(device: TimedDevice, seconds: float = 10.0, root: Path | str = "/") -> DeviceTrials:
    """Time some kernels on a device in two or more blocks, each in a process of its own.

    Parameters
    ----------
    device
        Where to run.
    seconds
        About how long it may take. A kernel that does not run, or not within its share of the time, is not tried again.
    root
        Folder in which ``proc`` and ``sys`` lie.
    """
    start = time.perf_counter()
    before = read_counters(root)
    jobs = list(_jobs())
    blocks: list[tuple[Measured, Mapping[str, list[Sample]]]] = []
    failures: list[str] = []
    share = seconds / _FEWEST_BLOCKS
    while len(blocks) < _MOST_BLOCKS:
        left = seconds - (time.perf_counter() - start)
        # The second block runs whatever is left, for one alone tells nothing of repeatability.
        if len(blocks) >= _FEWEST_BLOCKS and left < (seconds - left) / len(blocks):
            break
        kept = _Kept()
        try:
            outcomes = measure(jobs, device, _options(max(1.0, min(share, left)), len(blocks)), recorder=kept)
        except PerflexError as error:
            # The device is lost, so that no other kernel can be timed either.
            failures.append(error.message)
            break
        blocks.append((outcomes, kept.samples))
        failures += [outcome.reason for outcome in outcomes if not isinstance(outcome, Timing)]
        timed = {timing.label for timing in outcomes.timings}
        jobs = [job for job in jobs if job.label in timed]
        if not jobs:
            break
    return DeviceTrials(
        trials=_trials(blocks),
        drift=max((outcomes.drift.size for outcomes, _ in blocks if outcomes.drift.found), default=1.0),
        load=between(before, read_counters(root)),
        failures=tuple(dict.fromkeys(failures)),
        seconds=time.perf_counter() - start,
    )


def _options(share: float, block: int) -> TimingOptions:
    """Return how a block of so many seconds is timed: as many samples of each kernel as there is time for."""
    return TimingOptions(
        trials=_SAMPLES,
        min_trials=4,
        precision=0.0,
        budget_s=_LAUNCHING * share / len(_TRIALS),
        # They end hangs. Compilers take seconds beside other work, also at a first launch, and that is no failure.
        limit_s=max(4.0, share),
        build_limit_s=max(8.0, share),
        seed=block,
    )


# Generating them takes longer than timing them does.
@lru_cache(maxsize=1)
def _jobs() -> tuple[SizedKernel, ...]:
    from uipick import ALL_GENERATORS, KernelCollection

    collection = KernelCollection(ALL_GENERATORS)
    made = {name: collection.generate_kernels(tags)[0] for name, tags in _TRIALS.items()}
    return tuple(SizedKernel(kernel.kernel, kernel.sizes, name) for name, kernel in made.items())


def _trials(blocks: Sequence[tuple[Measured, Mapping[str, list[Sample]]]]) -> tuple[Trial, ...]:
    found = []
    for name in _TRIALS:
        seconds = [timing.seconds for outcomes, _ in blocks for timing in outcomes.timings if timing.label == name]
        if seconds and len(seconds) == len(blocks):
            found.append(Trial(name, tuple(seconds), tuple(tuple(samples[name]) for _, samples in blocks)))
    return tuple(found)


@dataclass(frozen=True)
class Heaps:
    """Samples of one kernel that lie in two heaps.

    Attributes
    ----------
    share
        Share of the samples in the slow heap.
    ratio
        Median of the slow heap over that of the fast one.
    """

    share: float
    ratio: float


def two_heaps(values: NDArray[np.float64]) -> Heaps | None:
    """Return the two heaps that timings of one kernel lie in, if they do: many slow ones, and little in between.

    Slow is more than 1.5 times the fast ones; for these the first decile stands, so that it is found as well where most
    samples are slow.

    Parameters
    ----------
    values
        Times in seconds, shape ``(n,)``.
    """
    if len(values) < 8:
        return None
    fast = float(np.quantile(values, 0.1))
    # A timer too coarse for the kernel gives 0 s, and then no ratio.
    if fast <= 0:
        return None
    slow, near = values > 1.5 * fast, values <= 1.25 * fast
    between_them = ~slow & ~near
    if slow.mean() < 0.1 or 3 * between_them.sum() > min(slow.sum(), near.sum()):
        return None
    return Heaps(float(slow.mean()), float(np.median(values[slow]) / np.median(values[near])))


def repeatability(trials: Sequence[Trial]) -> dict[str, float]:
    """Return for each kernel by which fraction its reported time differs from one block to another.

    It is the median over all pairs of blocks, relative to the shorter time; steps from each block to the next would
    pass over a change that stays. Kernels that were timed in one block only are left out, and those with a time of 0 s.
    """
    found = {}
    for trial in trials:
        pairs = list(combinations(trial.seconds, 2))
        if pairs and min(trial.seconds) > 0:
            found[trial.name] = float(np.median([max(pair) / min(pair) for pair in pairs])) - 1
    return found


def common_change(trials: Sequence[Trial]) -> float:
    """Return by which factor all kernels took longer in the last block than in the first: the median over kernels.

    Kernels with a time of 0 s are left out; 1 where there are no others.
    """
    ratios = [trial.seconds[-1] / trial.seconds[0] for trial in trials if min(trial.seconds) > 0]
    return float(np.median(ratios)) if ratios else 1.0


def disturbed_share(trials: Sequence[Trial]) -> float | None:
    """Return the share of samples during which the device's threads lacked processors; None if not known."""
    known = [verdict for trial in trials for block in trial.samples for verdict in _disturbed(block)]
    return float(np.mean(known)) if known else None


def _disturbed(samples: Sequence[Sample]) -> list[bool]:
    """Return which samples were disturbed, of those of which the system reports waiting or processor time."""
    known = [sample for sample in samples if _tells(sample.activity)]
    return disturbed(known).tolist() if known else []


def _tells(activity: SystemActivity | None) -> bool:
    # Any system tells how much time passed; that alone does not say that nothing was lacking.
    return activity is not None and (activity.waited_s is not None or activity.processor_s is not None)


def throttled_share(trials: Sequence[Trial]) -> float | None:
    """Return the share of samples during which the device had lowered its clock; None if no driver tells."""
    activities = [sample.activity for trial in trials for block in trial.samples for sample in block]
    known = [one.throttled for one in activities if one is not None and one.throttled is not None]
    return float(np.mean(known)) if known else None
