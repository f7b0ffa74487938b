"""Whether measurements of a machine agree: on a busy one, what is measured is what others leave."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perflex.errors import MachineError
from perflex.studies.machine_detect.measure import Bandwidths, MeasuredRates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Two runs agree in a number that differs by no more.
AGREEMENT = 0.1
# What keeps a machine busy comes and goes: two runs, and more while they do not agree.
_RUNS = 5
_NAMED = 4


@dataclass(frozen=True)
class Repeated:
    """What several runs found.

    Attributes
    ----------
    rates
        Of each number, the largest of all runs: others only make a machine slower.
    runs
        How many runs gave numbers.
    apart
        By how much the two largest values of a number differ, relative to the largest, for numbers that do not agree.
    disturbed
        Measurements of the last run that others disturbed, and how many there were.
    """

    rates: Bandwidths
    runs: int
    apart: Mapping[str, float]
    disturbed: tuple[int, int]

    def remarks(self) -> list[str]:
        """Return what makes the numbers doubtful, in words."""
        found = []
        advice = (
            "other processes used the machine meanwhile, and bandwidths may be too low; "
            "run the command again on an idle machine"
        )
        if self.runs < 2:
            found.append(f"only one run succeeded, and there is no second run to compare it with: {advice}")
        if self.apart:
            worst = sorted(self.apart, key=lambda name: -self.apart[name])
            named = ", ".join(f"{name} by {100 * self.apart[name]:.0f} %" for name in worst[:_NAMED])
            more = f" and {len(worst) - _NAMED} more" if len(worst) > _NAMED else ""
            found.append(f"{self.runs} runs do not agree within {100 * AGREEMENT:.0f} % in {named}{more}: {advice}")
        part, whole = self.disturbed
        if part:
            found.append(f"{part} of {whole} measurements were disturbed every time: {advice}")
        return found

    def note(self) -> str:
        """Return what the file says of it, beside where and when it was measured."""
        doubts = self.remarks()
        agreed = f"two runs agree within {100 * AGREEMENT:.0f} %"
        return agreed if not doubts else "DOUBTFUL: " + "; ".join(doubts)


def repeated_rates(
    run: Callable[[], Bandwidths], limit_s: float, clock: Callable[[], float] = time.monotonic
) -> Repeated:
    """Return what a machine's numbers are by runs that agree, or by several that do not.

    Parameters
    ----------
    run
        Measures once.
    limit_s
        Seconds after which no further run is begun.
    clock
        Tells seconds.

    Raises
    ------
    MachineError
        No run gave numbers.
    """
    found: list[Bandwidths] = []
    begin = clock()
    failures: list[MachineError] = []
    for number in range(_RUNS):
        if number and clock() - begin > limit_s:
            break
        try:
            found.append(run())
        except MachineError as error:
            # A run that is disturbed in the wrong place makes no sense: the next one may.
            failures.append(error)
            continue
        if len(found) > 1 and not _apart(found):
            break
    if not found:
        raise failures[-1]
    return Repeated(_largest(found), len(found), _apart(found), found[-1].disturbed)


def _numbers(rates: Bandwidths) -> dict[str, float]:
    numbers = {"clock": rates.clock_hz, **{f"operations {name}": value for name, value in rates.operations.items()}}
    for group, what in ((rates.one_core, "one core"), (rates.all_cores, "all cores")):
        for level, one in group.items():
            numbers |= {f"{level} load ({what})": one.load, f"{level} load+store ({what})": one.update}
    return numbers | {f"memory {name}": value for name, value in rates.streams.items()}


def _apart(runs: Sequence[Bandwidths]) -> dict[str, float]:
    """Return the numbers whose two largest values do not agree, and by how much they differ."""
    if len(runs) < 2:
        return {}
    found = {}
    for name in _numbers(runs[0]):
        largest, second = sorted((_numbers(run)[name] for run in runs), reverse=True)[:2]
        if largest - second > AGREEMENT * largest:
            found[name] = 1 - second / largest
    return found


def _largest(runs: Sequence[Bandwidths]) -> Bandwidths:
    def rates(groups: Sequence[Mapping[str, MeasuredRates]]) -> dict[str, MeasuredRates]:
        return {
            level: MeasuredRates(max(one[level].load for one in groups), max(one[level].update for one in groups))
            for level in groups[0]
        }

    def largest(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
        return {name: max(one[name] for one in each) for name in each[0]}

    return replace(
        runs[-1],
        clock_hz=max(run.clock_hz for run in runs),
        operations=largest([run.operations for run in runs]),
        one_core=rates([run.one_core for run in runs]),
        all_cores=rates([run.all_cores for run in runs]),
        streams=largest([run.streams for run in runs]),
    )
