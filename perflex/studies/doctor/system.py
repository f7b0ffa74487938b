"""What Linux reports of the processors and of who else uses them; what it does not say stays unknown."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perflex.machines.system_files import read_list, read_number, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# Columns of a processor's line in /proc/stat (proc(5)), in clock ticks. The two after steal, guests' time, are
# contained in the first two.
_BUSY_COLUMNS = (0, 1, 2, 5, 6)
_STEAL_COLUMN = 7
_COLUMNS = 8


@dataclass(frozen=True)
class ProcessorTimes:
    """Time of some processors since the machine started, in clock ticks, all of them together.

    Attributes
    ----------
    total, busy, stolen
        All of it; that in which they worked; that in which a hypervisor gave them to somebody else.
    processors
        How many processors.
    """

    total: int
    busy: int
    stolen: int
    processors: int


@dataclass(frozen=True)
class Counters:
    """The system's counters at one moment; None where it does not report.

    Attributes
    ----------
    times
        Of the processors that this process may use.
    throttled
        Periods in which the cgroup was stopped because its quota was used up.
    waiting_s
        Time in which some process waited for a processor, in seconds.
    hot
        How many times a processor lowered its clock because of heat.
    """

    times: ProcessorTimes | None = None
    throttled: int | None = None
    waiting_s: float | None = None
    hot: int | None = None


@dataclass(frozen=True)
class Interference:
    """What took processors away between two moments; None where the system does not report it.

    Attributes
    ----------
    busy
        Processors that worked, on average: 0.5 where one of them worked half of the time.
    processors
        Processors that `busy` and `stolen` are of.
    stolen
        Share of the processors' time that a hypervisor took.
    throttled
        Periods in which the cgroup was stopped because its quota was used up.
    waiting
        Share of the time in which some process waited for a processor.
    hot
        How many times a processor lowered its clock because of heat.
    """

    busy: float | None = None
    processors: int | None = None
    stolen: float | None = None
    throttled: int | None = None
    waiting: float | None = None
    hot: int | None = None


@dataclass(frozen=True)
class Clock:
    """The processors' clock as the system manages it; empty or None where it is not reported.

    Attributes
    ----------
    governors
        Names of the policies that choose the clock.
    lowest_hz, highest_hz
        Limits of the policy, over all processors.
    now_hz
        Lowest and highest clock of the processors now.
    """

    governors: tuple[str, ...] = ()
    lowest_hz: float | None = None
    highest_hz: float | None = None
    now_hz: tuple[float, float] | None = None


@dataclass(frozen=True)
class ReportedSystem:
    """A machine as its operating system reports it; None where it does not.

    Attributes
    ----------
    online, usable
        Processors (hardware threads) that are online, and those that this process may run on.
    quota
        Processors' worth of time that the cgroup may use; infinite where it may use all.
    threads_per_core
        2 where two processors share a core.
    virtual
        Whether it is a virtual machine.
    clock
        How the clock is managed.
    idle
        What went on while perflex itself did nothing.
    """

    online: int | None = None
    usable: int | None = None
    quota: float | None = None
    threads_per_core: int | None = None
    virtual: bool | None = None
    clock: Clock = Clock()
    idle: Interference = Interference()


def observe_system(
    root: Path | str = "/",
    *,
    window_s: float = 1.0,
    usable: Iterable[int] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> ReportedSystem:
    """Return what Linux reports of the machine, and who else uses its processors while this process sleeps.

    Parameters
    ----------
    root
        Folder in which ``proc`` and ``sys`` lie.
    window_s
        How long to watch, in seconds; the counters go on by 0.01 s.
    usable
        Numbers of the processors that this process may run on; asked for if not given.
    sleep
        Lets time pass.
    """
    root = Path(root)
    own = usable_processors() if usable is None else sorted(usable)
    before = read_counters(root, own)
    sleep(window_s)
    idle = between(before, read_counters(root, own))
    cpus = root / "sys/devices/system/cpu"
    online = read_list(cpus / "online")
    return ReportedSystem(
        online=len(online) or None,
        usable=len(own) or None,
        quota=_quota(root),
        threads_per_core=_threads_per_core(cpus, own or online),
        virtual=_is_virtual(root),
        clock=_clock(cpus, own or online),
        idle=idle,
    )


def usable_processors() -> list[int]:
    """Return the numbers of the processors that this process may run on; none where the system does not tell."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it, macOS and Windows do not
    return [] if affinity is None else sorted(affinity(0))


def read_counters(root: Path | str = "/", usable: Sequence[int] | None = None) -> Counters:
    """Return the system's counters now, of the processors given by number, else of those that this process may use."""
    root = Path(root)
    own = usable_processors() if usable is None else usable
    stats = (_pairs(folder / "cpu.stat").get("nr_throttled") for folder in _cgroups(root))
    return Counters(
        times=_times(root / "proc/stat", own),
        throttled=next((value for value in stats if value is not None), None),
        waiting_s=_waiting(root / "proc/pressure/cpu"),
        hot=_hot(root / "sys/devices/system/cpu", own),
    )


def between(before: Counters, after: Counters) -> Interference:
    """Return what went on between two readings."""
    busy = stolen = waiting = processors = None
    if before.times is not None and after.times is not None:
        total = after.times.total - before.times.total
        # Processors may come and go meanwhile; and a window below a tick tells nothing.
        if total > 0 and before.times.processors == after.times.processors:
            processors = after.times.processors
            busy = max(0, after.times.busy - before.times.busy) * processors / total
            stolen = max(0, after.times.stolen - before.times.stolen) / total
            elapsed = total / processors / _ticks_per_second()
            if before.waiting_s is not None and after.waiting_s is not None:
                waiting = min(1.0, max(0.0, after.waiting_s - before.waiting_s) / elapsed)
    return Interference(
        busy=busy,
        processors=processors,
        stolen=stolen,
        throttled=_more(before.throttled, after.throttled),
        waiting=waiting,
        hot=_more(before.hot, after.hot),
    )


def _more(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _ticks_per_second() -> int:
    return os.sysconf("SC_CLK_TCK")


def _pairs(path: Path) -> Mapping[str, int]:
    """Return the numbers of a file whose lines are a name and a number."""
    lines = (line.split() for line in read_text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}


def _times(stat: Path, usable: Sequence[int]) -> ProcessorTimes | None:
    """Return the times of the processors that may be used; of all where the file does not tell them apart."""
    rows: dict[str, list[int]] = {}
    for line in read_text(stat).splitlines():
        name, *words = line.split()
        if name.startswith("cpu") and len(words) >= _COLUMNS and all(map(str.isdecimal, words)):
            rows[name] = [int(word) for word in words[:_COLUMNS]]
    single = {name: row for name, row in rows.items() if name != "cpu"}
    own = [single[f"cpu{number}"] for number in usable if f"cpu{number}" in single]
    if not own or len(own) < len(usable):
        # A container may number its processors anew.
        own = list(single.values())
    if not own:
        return None
    return ProcessorTimes(
        total=sum(map(sum, own)),
        busy=sum(row[column] for row in own for column in _BUSY_COLUMNS),
        stolen=sum(row[_STEAL_COLUMN] for row in own),
        processors=len(own),
    )


def _waiting(pressure: Path) -> float | None:
    """Return the total of pressure stall information (Linux, Documentation/accounting/psi.rst), in seconds."""
    for line in read_text(pressure).splitlines():
        words = line.split()
        if words[:1] == ["some"]:
            total = next((word.partition("=")[2] for word in words if word.startswith("total=")), "")
            return int(total) * 1e-6 if total.isdecimal() else None
    return None


def _hot(cpus: Path, usable: Sequence[int]) -> int | None:
    counts = [read_number(cpus / f"cpu{number}/thermal_throttle/core_throttle_count") for number in usable]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _cgroups(root: Path) -> list[Path]:
    """Return the folders of this process's cgroup that may hold limits of processor time, the innermost first."""
    found: list[Path] = []
    for line in read_text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            tops = ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        elif "cpu" in controllers.split(","):
            tops = [f"sys/fs/cgroup/{controllers}", "sys/fs/cgroup/cpu"]
        else:
            continue
        inner = Path(path.lstrip("/"))
        # A container may see its own group as the topmost one and still be told its name outside.
        found += [root / top / part for top in dict.fromkeys(tops) for part in (inner, *inner.parents)]
    return list(dict.fromkeys(found))


def _quota(root: Path) -> float | None:
    """Return how many processors' worth of time may be used: the least limit of the group and those around it."""
    limits = []
    for folder in _cgroups(root):
        words = read_text(folder / "cpu.max").split()  # version 2: quota or "max", and period, in microseconds
        if not words:
            quota, period = read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us")
            words = ["max" if quota == "-1" else quota, period] if quota and period else []
        if len(words) != 2 or not words[1].isdecimal() or int(words[1]) == 0:
            continue
        if words[0] == "max":
            limits.append(float("inf"))
        elif words[0].isdecimal():
            limits.append(int(words[0]) / int(words[1]))
    return min(limits) if limits else None


def _threads_per_core(cpus: Path, usable: Sequence[int]) -> int | None:
    counts = [len(read_list(cpus / f"cpu{number}/topology/thread_siblings_list")) for number in usable]
    return max(counts, default=0) or None


def _is_virtual(root: Path) -> bool | None:
    # Xen and ARM machines have these.
    if read_text(root / "sys/hypervisor/type") or (root / "proc/device-tree/hypervisor").exists():
        return True
    flags = next((line for line in read_text(root / "proc/cpuinfo").splitlines() if line.startswith("flags")), "")
    # Only x86 processors have flags, and there every hypervisor sets this one.
    return "hypervisor" in flags.split() if flags else None


def _clock(cpus: Path, usable: Sequence[int]) -> Clock:
    folders = [cpus / f"cpu{number}/cpufreq" for number in usable]

    def values(name: str) -> list[float]:
        found = (read_number(folder / name) for folder in folders)
        return [1e3 * value for value in found if value]  # reported in kHz

    lowest, highest, now = (values(f"scaling_{name}_freq") for name in ("min", "max", "cur"))
    governors = dict.fromkeys(read_text(folder / "scaling_governor") for folder in folders)
    return Clock(
        governors=tuple(name for name in governors if name),
        lowest_hz=min(lowest, default=None),
        highest_hz=max(highest, default=None),
        now_hz=(min(now), max(now)) if now else None,
    )
