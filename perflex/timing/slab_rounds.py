"""A device program's time from rounds of slabs of its grid."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from perflex.store.records import Sample
from perflex.timing.disturbance import disturbed, lacking_seconds
from perflex.timing.launch.launch_times import LaunchTimes
from perflex.timing.launch.slabs import Slab, slab_around, spread_slabs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perflex.timing.launch.backend import SlabRunnable
    from perflex.timing.launch.sizes import Grid

# What has no reason of its own here was chosen by trial on the families of even number of the half `develop` of
# tests/bench/short_launch.py, on two CPU runtimes and two cores.
#
# A slab takes about so long: what starting and ending a launch takes is then a few percent of it.
_SLAB_S = 2e-4
# Slabs of a round: a median needs three; the most is by trial. The round's time: an eighth of the whole launch's, so
# that three rounds and the slab that was grown before take less than one whole launch, within limits by trial.
_SLABS = (3, 8)
_ROUND_SHARE = 1 / 8
_ROUND_S = (8e-4, 3e-3)
# The first, whose data come from afar, and two whose times of one slab show which was disturbed.
_ROUNDS = 3
# A launch for which a round of slabs would be this share of it runs whole: that costs no more and tells more.
_WHOLE_SHARE = 0.5
# Whole launches beside the first, and how long they take together at least: a median needs three; short ones scatter
# more, and more of them still cost less than a round.
_WHOLE_LAUNCHES = (3, 20)
_WHOLE_S = 5e-4
# Work-groups of a slab for each worker of a CPU: fewer leave some idle at its end, by a quarter of its time at worst
# with four. Slabs of long groups have fewer, for they would take longer than a millisecond.
_GROUPS_EACH = 4
_LONG_SLAB_S = 1e-3
# Of two times of one slab, the longer was disturbed when it is longer by more than this: undisturbed
# repetitions differ by 1 to 3 %.
_STRAY = 0.1
# Launches that others disturbed are taken again, in all so many times.
_ATTEMPTS = 3
# What a short launch is off by in any case, and for how much of the difference between the rounds, as logarithms. By
# trial, for 95 % intervals; tests/bench/short_launch.py says how many measured times they hold.
_LEAST_DEVIATION = 0.11
_DEVIATION_OF_ROUNDS = 0.25
# In seconds: what is shorter than a timer resolves takes no time by it, and times are divided by.
_SHORTEST_S = 1e-9
# Of the grid, on each axis.
_MIDDLE = (0.5, 0.5, 0.5)


@dataclass
class Launching:
    """A kernel that is launched in slabs, and what that cost so far.

    Attributes
    ----------
    runnable
        The kernel, built.
    groups
        Work-groups of a whole launch by device program.
    updates
        Whether it updates arrays in place.
    device_s, launches, launched
        Time on the device in seconds, launches, and work-groups.
    """

    runnable: SlabRunnable
    groups: tuple[int, ...]
    updates: bool
    device_s: float = 0.0
    launches: int = 0
    launched: int = 0

    def slabs(self, slabs: Sequence[Slab]) -> Sequence[float]:
        """Launch slabs one after another and return the time of each in seconds."""
        return self._undisturbed(lambda: self.runnable.run_slabs(slabs), sum(slab.count for slab in slabs))

    def rounds(self, slabs: Sequence[Slab]) -> list[Sequence[float]]:
        """Launch slabs in rounds and return the times of each round."""
        if self.updates:
            return [self.slabs(slabs) for _ in range(_ROUNDS)]
        times = self.slabs([*slabs] * _ROUNDS)
        return [times[first : first + len(slabs)] for first in range(0, len(times), len(slabs))]

    def whole(self, slab: Slab, launches: int) -> Sequence[float]:
        """Return the times of launches of a whole device program, as kernels are timed where it is the only one."""
        return self.slabs([slab] * launches) if len(self.groups) > 1 else self.all(launches)

    def all(self, launches: int) -> Sequence[float]:
        """Return the times of launches of the whole kernel."""
        return self._undisturbed(lambda: self.runnable.run(launches), launches * sum(self.groups))

    def _undisturbed(self, launch: Callable[[], tuple[float, ...]], groups: int) -> tuple[float, ...]:
        """Return the times of launches; of several attempts where others use the processors, the least disturbed."""
        found: list[tuple[float, tuple[float, ...]]] = []
        for _ in range(_ATTEMPTS):
            times = launch()
            seconds = tuple(max(each, _SHORTEST_S) for each in times)
            self.device_s += math.fsum(times)
            self.launches += len(times)
            self.launched += groups
            activity = times.activity if isinstance(times, LaunchTimes) else None
            sample = Sample(statistics.fmean(times), len(times), 0.0, "", 0, activity)
            if not disturbed([sample])[0]:
                return seconds
            found.append((float(lacking_seconds([sample])[0]), seconds))
        return min(found)[1]


@dataclass(frozen=True)
class Estimate:
    """Of one device program or all: time of the launch, that by plain scaling, relative variance, how it was found."""

    seconds: float
    scaled_s: float
    variance: float
    whole: bool


def program_time(launching: Launching, number: int, grid: Grid, least: int, far: float) -> Estimate:
    """Return the time of one device program's whole launch."""
    count = prod(grid.groups)
    slab_s, taken = _grown(launching, number, grid, least)
    each = slab_s / taken
    wanted = max(_GROUPS_EACH * least, round(_SLAB_S / each / least) * least)
    if wanted * each > _LONG_SLAB_S:
        wanted = max(least, min(wanted, math.ceil(_LONG_SLAB_S / each / least) * least))
    wanted = slab_around(number, grid, _MIDDLE, min(wanted, count)).count
    round_s = min(max(_ROUND_SHARE * count * each, _ROUND_S[0]), _ROUND_S[1])
    slabs = int(max(_SLABS[0], min(_SLABS[1], round_s / (wanted * each))))
    if slabs * wanted >= _WHOLE_SHARE * count:
        return _whole(launching, number, grid, count * each)
    chosen = spread_slabs(number, grid, slabs, wanted)
    rounds = launching.rounds(chosen)
    later = statistics.fmean(_undisturbed(*pair) for pair in zip(*rounds[1:], strict=True))
    # A first touch may be an accident; its ratio to the later ones is that of most slabs.
    first = later * statistics.median(cold / again for cold, again in zip(rounds[0], rounds[-1], strict=True))
    between = max(0.0, math.log(first / later))
    seconds = later * math.exp(far * between) * count / chosen[0].count
    variance = _LEAST_DEVIATION**2 + (_DEVIATION_OF_ROUNDS * between) ** 2
    return Estimate(seconds, count * each, variance, whole=False)


def _grown(launching: Launching, number: int, grid: Grid, least: int) -> tuple[float, int]:
    """Return the time of a slab in the grid's middle that is long enough to tell the time of a group, and its size."""
    count = prod(grid.groups)
    wanted, before = min(least, count), (0, 0.0)
    while True:
        slab = slab_around(number, grid, _MIDDLE, wanted)
        # The first launch pays for what the later ones find done.
        seconds = launching.slabs([slab] * 2)[-1]
        if seconds >= _SLAB_S / 2 or slab.count >= count:
            return seconds, slab.count
        each = seconds / slab.count
        if before[0] and seconds > before[1] and slab.count > before[0]:
            # What starting a launch takes is in both; but a small difference may be chance.
            each = max((seconds - before[1]) / (slab.count - before[0]), each / 8)
        before = slab.count, seconds
        wanted = min(count, max(2 * slab.count, int(_SLAB_S / each / least) * least))


def kernel_time(launching: Launching) -> Estimate:
    """Return the time of launches of the whole kernel: for those parts of which would do something else."""
    # The first launch pays for what the later ones find done.
    return _repeated(launching.all, launching.all(2)[-1])


def _whole(launching: Launching, number: int, grid: Grid, expected_s: float) -> Estimate:
    """Return the time of launches of a device program's whole grid."""
    slab = slab_around(number, grid, _MIDDLE, prod(grid.groups))
    return _repeated(lambda launches: launching.whole(slab, launches), expected_s)


def _repeated(launch: Callable[[int], Sequence[float]], expected_s: float) -> Estimate:
    least, most = _WHOLE_LAUNCHES
    times = launch(min(most, max(least, math.ceil(_WHOLE_S / expected_s))) + 1)
    return Estimate(statistics.median(times[1:]), expected_s, _LEAST_DEVIATION**2, whole=True)


def _undisturbed(*times: float) -> float:
    """Return the mean of a slab's times, or the shortest where another was disturbed."""
    return min(times) if max(times) > (1 + _STRAY) * min(times) else statistics.fmean(times)
