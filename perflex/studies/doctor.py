"""Whether a machine is fit to measure on: what the system and short trials of its devices say, and what to do.

Linux reports who else uses the machine; short trials of a device say its launch cost, repeatability, disturbed samples.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from perflex.calibration.acceptance import DISTURBED_LIMIT, MANY_DISTURBED, REPEATABILITY_LIMIT
from perflex.errors import PerflexError, warn
from perflex.features.sized_kernel import SizedKernel
from perflex.machines.host import BUSY_COLUMNS, STEAL_COLUMN, processor_ticks, read_list, read_number, read_text
from perflex.timing.executors.worker_device import WorkerDevice
from perflex.timing.measuring import measure
from perflex.timing.options import TimingOptions
from perflex.timing.results import Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from perflex.timing.launch.backend import TimedDevice

State: TypeAlias = Literal["good", "poor", "bad", "unknown"]
Verdict: TypeAlias = Literal["fit to measure on", "measure with care", "not fit"]


@dataclass(frozen=True)
class Finding:
    """What one check found, with numbers and units, and what to do about it, if anything."""

    check: str
    # Poor: times are disturbed, measure with care. Bad: times mean nothing. Unknown: the system does not tell.
    state: State
    found: str
    advice: str = ""


def verdict(findings: Iterable[Finding]) -> Verdict:
    """Return what the worst finding says; what is unknown counts neither way."""
    states = {finding.state for finding in findings}
    if "bad" in states:
        return "not fit"
    return "measure with care" if "poor" in states else "fit to measure on"


def graded(value: float, poor: float, bad: float = float("inf")) -> State:
    """Return the state of something that is the worse the larger it is: poor and bad from a limit each on."""
    return "bad" if value >= bad else "poor" if value >= poor else "good"


def percent(fraction: float) -> str:
    """Return a fraction in percent, small ones with a digit more."""
    return f"{100 * fraction:.0f} %" if fraction >= 0.0995 or fraction == 0 else f"{100 * fraction:.1f} %"


class Counters(NamedTuple):
    """The system's counters at one moment: in clock ticks, of the processors that this process may use together."""

    total: int = 0
    busy: int = 0
    # A hypervisor gave them to somebody else.
    stolen: int = 0
    # 0 where the system does not report.
    processors: int = 0


@dataclass(frozen=True)
class Interference:
    """What took processors away between two moments; None where the system does not report it."""

    # Processors that worked, on average: 0.5 where one of them worked half of the time; and of how many.
    busy: float | None = None
    processors: int | None = None
    # Share of the processors' time that a hypervisor took.
    stolen: float | None = None


@dataclass(frozen=True)
class ReportedSystem:
    """A machine as its operating system reports it; None or empty where it does not."""

    # Processors (hardware threads) that this process may run on.
    usable: int | None = None
    # Processors' worth of time that the cgroup may use; infinite where it may use all.
    quota: float | None = None
    # Names of the policies that choose the clock, and its limits in Hz over all processors.
    governors: tuple[str, ...] = ()
    clock_limits: tuple[float, float] | None = None
    # While perflex itself did nothing.
    idle: Interference = Interference()


def observe_system(
    root: Path | str = "/",
    *,
    window_s: float = 1.0,
    usable: Iterable[int] | None = None,
    sleep: Callable[[float], None] = sleep,
) -> ReportedSystem:
    """Return what Linux reports of the machine, and who else uses its processors while this process sleeps."""
    root = Path(root)
    # Linux tells which processors this process may run on, macOS and Windows do not.
    affinity = getattr(os, "sched_getaffinity", lambda _: ())
    own = sorted(affinity(0) if usable is None else usable)
    before = _counters(root, own)
    sleep(window_s)
    idle = _between(before, _counters(root, own))
    cpus = root / "sys/devices/system/cpu"
    numbers = own or read_list(cpus / "online")
    folders = [cpus / f"cpu{number}/cpufreq" for number in numbers]
    limits = [read_number(folder / f"scaling_{name}_freq") for folder in folders for name in ("min", "max")]
    known = [1e3 * limit for limit in limits if limit]  # reported in kHz
    governors = dict.fromkeys(filter(None, (read_text(folder / "scaling_governor") for folder in folders)))
    clock_limits = (min(known), max(known)) if known else None
    return ReportedSystem(len(numbers) or None, _quota(root), tuple(governors), clock_limits, idle)


def _counters(root: Path, usable: Sequence[int]) -> Counters:
    rows = processor_ticks(read_text(root / "proc/stat"))
    rows.pop("cpu", None)
    own = [rows[f"cpu{number}"] for number in usable if f"cpu{number}" in rows]
    if not own or len(own) < len(usable):
        # A container may number its processors anew.
        own = list(rows.values())
    ticks = [list(map(int, row)) for row in own]
    busy = sum(row[column] for row in ticks for column in BUSY_COLUMNS)
    return Counters(sum(map(sum, ticks)), busy, sum(row[STEAL_COLUMN] for row in ticks), len(ticks))


def _between(before: Counters, after: Counters) -> Interference:
    total = after.total - before.total
    # Processors may come and go meanwhile; and a window below a tick tells nothing.
    if total <= 0 or before.processors != after.processors:
        return Interference()
    busy = max(0, after.busy - before.busy) * after.processors / total
    return Interference(busy, after.processors, max(0, after.stolen - before.stolen) / total)


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


# In processors: one that is taken for a tenth of the time slows every kernel that waits for its slowest work-group.
_OTHERS_POOR = 0.1
# Of the processors: with half of them taken, a kernel's time says more of the others than of the kernel.
_OTHERS_BAD = 0.5
_STOLEN_POOR, _STOLEN_BAD = 0.01, 0.1


def system_findings(system: ReportedSystem) -> tuple[Finding, ...]:
    """Return what is to be said of a machine."""
    checks = (_processors, _others, _steal, _quota_finding, _clock)
    return tuple(check(system) for check in checks)


def _processors(system: ReportedSystem) -> Finding:
    if system.usable is None:
        return Finding("processors", "unknown", "the system does not report its processors")
    alone = system.usable == 1
    advice = "perflex, the system and the kernels share one processor; allow two or more" if alone else ""
    return Finding("processors", "poor" if alone else "good", f"{system.usable} usable", advice)


def _others(system: ReportedSystem) -> Finding:
    check, idle = "other load", system.idle
    if idle.busy is None or idle.processors is None:
        return Finding(check, "unknown", "the system does not report who uses its processors")
    # Next to nothing is not to look like a tenth, which is said to be too much.
    digits = 1 if idle.busy >= _OTHERS_POOR else 2
    found = f"other processes use {idle.busy:.{digits}f} of {idle.processors} processors"
    state = graded(idle.busy, _OTHERS_POOR, max(_OTHERS_POOR, _OTHERS_BAD * idle.processors))
    return Finding(check, state, found, "" if state == "good" else "end them or wait")


def _steal(system: ReportedSystem) -> Finding:
    check, stolen = "steal", system.idle.stolen
    if stolen is None:
        return Finding(check, "unknown", "the system does not report what a hypervisor takes")
    state = graded(stolen, _STOLEN_POOR, _STOLEN_BAD)
    found = f"the hypervisor takes {percent(stolen)} of the processors' time"
    advice = "wait until other guests are idle, or use a machine with dedicated processors"
    return Finding(check, state, found, "" if state == "good" else advice)


def _quota_finding(system: ReportedSystem) -> Finding:
    check = "quota"
    if system.quota is None:
        return Finding(check, "unknown", "the system does not report a limit of processor time")
    if not math.isfinite(system.quota):
        return Finding(check, "good", "no limit of processor time")
    found = f"the cgroup may use {system.quota:.3g} processors" + (f" of {system.usable}" if system.usable else "")
    if system.usable is not None and system.quota >= system.usable:
        return Finding(check, "good", found)
    whole = math.floor(system.quota)
    if whole < 1:
        return Finding(check, "bad", found, "allow at least one processor (docker run --cpus, cpu.max)")
    numbers = f"0-{whole - 1}" if whole > 1 else "0"
    advice = f"raise it, or use no more processors than it allows, such as with taskset -c {numbers}"
    return Finding(check, "poor", found, advice)


def _clock(system: ReportedSystem) -> Finding:
    check, limits = "clock", system.clock_limits
    if not system.governors:
        return Finding(check, "unknown", "the system does not report how the clock is managed")
    found = f"governor {' and '.join(system.governors)}"
    if limits is not None:
        found += f", {limits[0] / 1e9:.3g} to {limits[1] / 1e9:.3g} GHz"
    if system.governors == ("performance",) or (limits is not None and limits[0] == limits[1]):
        return Finding(check, "good", found)
    return Finding(check, "poor", found, "set the performance governor: sudo cpupower frequency-set -g performance")


LAUNCH = "launch"
"""Name of the trial kernel that does next to nothing."""
# By name: tags of the catalog. Next to nothing; some 0.5 and 2 ms of multiply-adds and 5 ms of memory traffic on a CPU.
_MADD = ("flops_madd_pattern", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "m:64")
_TRIALS: dict[str, tuple[str, ...]] = {
    LAUNCH: ("empty", "lsize_0:16", "lsize_1:16", "ngroups:16"),
    "arithmetic, short": (*_MADD, "nelements:32768"),
    "arithmetic, long": (*_MADD, "nelements:131072"),
    "memory": ("gmem_copy", "dtype:float32", "width:1", "lsize_0:256", "groups_fit:True", "nelements:4194304"),
}
_SAMPLES = 20
_FEWEST_BLOCKS, _MOST_BLOCKS = 2, 3
# Of the time for a block, what its launches may take; the rest is for the process, builds, and the host's own work.
_LAUNCHING = 0.4


@dataclass(frozen=True)
class Trial:
    """One kernel, timed in blocks one after the other: the time of each, and the samples of all."""

    name: str
    seconds: tuple[float, ...]
    samples: int
    disturbed_samples: int

    @property
    def repeatability(self) -> float | None:
        """By which fraction the time differs from one block to another; None for a single block, or a time of 0 s.

        It is the median over all pairs of blocks, relative to the shorter time; steps from each block to the next would
        pass over a change that stays.
        """
        pairs = list(combinations(self.seconds, 2))
        if not pairs or min(self.seconds) <= 0:
            return None
        return float(np.median([max(pair) / min(pair) for pair in pairs])) - 1


@dataclass(frozen=True)
class DeviceTrials:
    """What was measured of a device."""

    # Of the kernels that could be timed in every block.
    trials: tuple[Trial, ...] = ()
    # Why kernels could not be timed.
    failures: tuple[str, ...] = ()


def try_device(device: TimedDevice, seconds: float = 10.0) -> DeviceTrials:
    """Time some kernels on a device for about `seconds`, in two or three blocks, each in a process of its own."""
    start = perf_counter()
    jobs = list(_jobs())
    found: dict[str, list[Timing]] = {job.label: [] for job in jobs}
    failures: list[str] = []
    share = seconds / _FEWEST_BLOCKS
    for block in range(_MOST_BLOCKS):
        left = seconds - (perf_counter() - start)
        # The second block runs whatever is left, for one alone tells nothing of repeatability.
        if not jobs or (block >= _FEWEST_BLOCKS and left < (seconds - left) / block):
            break
        try:
            outcomes = measure(jobs, device, _options(max(1.0, min(share, left)), block))
        except PerflexError as error:
            # The device is lost, so that no other kernel can be timed either.
            failures.append(error.message)
            break
        for outcome in outcomes:
            if isinstance(outcome, Timing):
                found[outcome.label].append(outcome)
            else:
                failures.append(outcome.reason)
                del found[outcome.label]
        jobs = [job for job in jobs if job.label in found]
    trials = [
        Trial(
            name,
            tuple(timing.seconds for timing in timings),
            sum(len(timing.samples) for timing in timings),
            sum(timing.disturbed_samples for timing in timings),
        )
        for name, timings in found.items()
        if timings
    ]
    return DeviceTrials(tuple(trials), tuple(dict.fromkeys(failures)))


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


# Kernels of the shipped models take some 0.1 ms and more; where a launch costs as much, they measure launches.
_LAUNCH_POOR_S = 2e-4
_REPEATABILITY_POOR = 0.03
_TAKEN = "stop other processes, and see the checks of the machine"
_TAKEN_GPU = "stop other processes on the GPU (nvidia-smi lists them), or wait"


def device_findings(found: DeviceTrials, kind: str = "cpu") -> tuple[Finding, ...]:
    """Return what is to be said of a device."""
    findings = []
    if found.failures:
        more = f" (and {len(found.failures) - 1} more)" if len(found.failures) > 1 else ""
        # Without any timing nothing is known of the device; with some, models lack the kernels that failed.
        state: State = "poor" if found.trials else "bad"
        findings.append(Finding("kernels", state, f"{found.failures[0]}{more}", "see 'perflex devices'"))
    if not found.trials:
        return tuple(findings) or (Finding("kernels", "bad", "no kernel could be timed", "give more --seconds"),)
    taken = _TAKEN_GPU if kind == "gpu" else _TAKEN
    kernels = [trial for trial in found.trials if trial.name != LAUNCH]
    findings += [_launch(found.trials), _repeatability(kernels, taken)]
    return (*findings, _disturbed(kernels or found.trials))


def _launch(trials: Sequence[Trial]) -> Finding:
    check = "launch cost"
    launches = [trial for trial in trials if trial.name == LAUNCH]
    if not launches:
        return Finding(check, "unknown", "the kernel that does nothing could not be timed")
    lowest, highest = min(launches[0].seconds), max(launches[0].seconds)
    middle = float(np.median(launches[0].seconds))
    found = f"{1e6 * middle:.3g} us ({1e6 * lowest:.3g} to {1e6 * highest:.3g} us)"
    state = graded(middle, _LAUNCH_POOR_S)
    advice = "" if state == "good" else "calibrate with kernels that take many times as long as a launch"
    return Finding(check, state, found, advice)


def _repeatability(kernels: Sequence[Trial], taken: str) -> Finding:
    check = "repeatability"
    known = {trial.name: value for trial in kernels if (value := trial.repeatability) is not None}
    if not known:
        return Finding(check, "unknown", "no kernel was timed twice", "give more --seconds")
    middle, worst = float(np.median(list(known.values()))), max(known, key=lambda name: known[name])
    beside = f"median of {len(known)} kernels; worst: {worst} {percent(known[worst])}"
    found = f"times repeat to {percent(middle)} ({beside})"
    # The median alone decides on what cannot be used, as it does for calibrations.
    state = graded(middle, _REPEATABILITY_POOR)
    if middle > REPEATABILITY_LIMIT:
        state = "bad"
    elif known[worst] > REPEATABILITY_LIMIT:
        state = "poor"
    return Finding(check, state, found, "" if state == "good" else taken)


def _disturbed(trials: Sequence[Trial]) -> Finding:
    share = sum(trial.disturbed_samples for trial in trials) / sum(trial.samples for trial in trials)
    found = f"{percent(share)} of the samples: a thread of the device lacked a processor, or the clock was lowered"
    state = graded(share, MANY_DISTURBED, DISTURBED_LIMIT)
    return Finding("disturbed", state, found, "" if state == "good" else "stop other processes, or wait")


# With less, a device's process has hardly started before the time is up.
_LEAST_S = 3.0


@dataclass(frozen=True)
class DeviceReport:
    """What is to be said of one device, and the trials that it rests on."""

    device: str
    # Of its own findings; for a CPU the machine's count, too.
    verdict: Verdict
    findings: tuple[Finding, ...]
    trials: DeviceTrials


@dataclass(frozen=True)
class DoctorReport:
    """What is to be said of a machine and its devices, and how long that took."""

    # The worst of the devices' verdicts; the machine's where no device was tried.
    verdict: Verdict
    # Of the machine alone.
    findings: tuple[Finding, ...]
    system: ReportedSystem
    devices: tuple[DeviceReport, ...]
    seconds: float


def examine(
    devices: Sequence[TimedDevice], seconds: float = 25.0, progress: Callable[[str], None] = lambda _: None
) -> DoctorReport:
    """Watch the machine for a second, then try its devices one after the other."""
    start = perf_counter()
    progress("the machine")
    system = observe_system()
    findings = system_findings(system)
    reports = []
    for number, device in enumerate(devices):
        progress(str(device))
        left = seconds - (perf_counter() - start)
        found = try_device(device, max(left / (len(devices) - number), _LEAST_S))
        own = device_findings(found, _kind(device))
        # A GPU's times hardly depend on who uses the host's processors.
        counted = (*own, *findings) if _kind(device) == "cpu" else own
        reports.append(DeviceReport(str(device), verdict(counted), own, found))
    order: tuple[Verdict, ...] = ("fit to measure on", "measure with care", "not fit")
    worst = max((one.verdict for one in reports), key=order.index, default=verdict(findings))
    return DoctorReport(worst, findings, system, tuple(reports), perf_counter() - start)


def _kind(device: Any) -> str:
    # Devices of a user's own need not say what they are; those that run nothing on this machine are no CPU.
    return str(getattr(device, "kind", "other"))


def warn_before_measuring(device: TimedDevice | None) -> None:
    """Give a `PerflexWarning` for each thing that speaks against measuring on a device now; takes half a second.

    Only this machine is looked at: there is nothing to say of workers' devices, of other than CPUs, and of simulators.
    """
    if isinstance(device, WorkerDevice) or _kind(device) != "cpu" or getattr(device, "is_simulator", False):
        return
    for finding in system_findings(observe_system(window_s=0.5)):
        # A governor does not disturb more at one time than at another.
        if finding.check != "clock" and finding.state in {"poor", "bad"}:
            text = f"{finding.found}: {finding.advice} (see 'perflex doctor')"
            warn(text)
