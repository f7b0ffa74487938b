"""From what the system reports to findings: processors, others' load, steal, quota, clock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perflex.studies.doctor.finding import Finding, graded, percent

if TYPE_CHECKING:
    from perflex.studies.doctor.system import Clock, Interference, ReportedSystem

# In processors: one that is taken for a tenth of the time slows every kernel that waits for its slowest work-group.
_OTHERS_POOR = 0.1
# Of the processors: with half of them taken, a kernel's time says more of the others than of the kernel.
_OTHERS_BAD = 0.5
_STOLEN_POOR, _STOLEN_BAD = 0.01, 0.1
_WAITING_POOR = 0.1
_STEADY_GOVERNOR = "performance"


def system_findings(system: ReportedSystem, load: Interference | None = None) -> tuple[Finding, ...]:
    """Return what is to be said of a machine.

    Parameters
    ----------
    system
        What was reported while perflex did nothing.
    load
        What went on while kernels ran: hypervisors, quotas and heat may show only then.
    """
    return (
        _processors(system),
        _others(system.idle),
        _waiting(system.idle),
        _stolen(system, load),
        _quota(system, load),
        _clock(system.clock, system.idle if load is None else load),
    )


def _processors(system: ReportedSystem) -> Finding:
    check = "processors"
    count = system.usable or system.online
    if count is None:
        return Finding(check, "unknown", "the system does not report its processors")
    words = [f"{count} usable"]
    if system.online is not None and system.online != count:
        words.append(f"{system.online} online")
    if system.threads_per_core is not None and system.threads_per_core > 1:
        words.append(f"{system.threads_per_core} share a core")
    if system.virtual:
        words.append("virtual machine")
    if count == 1:
        advice = "perflex, the system and the kernels share one processor; allow two or more"
        return Finding(check, "poor", ", ".join(words), advice)
    return Finding(check, "good", ", ".join(words))


def _others(idle: Interference) -> Finding:
    check = "other load"
    if idle.busy is None or idle.processors is None:
        return Finding(check, "unknown", "the system does not report who uses its processors")
    # Next to nothing is not to look like a tenth, which is said to be too much.
    digits = 1 if idle.busy >= _OTHERS_POOR else 2
    found = f"other processes use {idle.busy:.{digits}f} of {idle.processors} processors"
    state = graded(idle.busy, _OTHERS_POOR, max(_OTHERS_POOR, _OTHERS_BAD * idle.processors))
    return Finding(check, state, found, "" if state == "good" else "end them or wait")


def _waiting(idle: Interference) -> Finding:
    check = "waiting"
    if idle.waiting is None:
        return Finding(check, "unknown", "the system does not report how long processes wait for a processor")
    found = f"some process waits for a processor {percent(idle.waiting)} of the time"
    state = graded(idle.waiting, _WAITING_POOR)
    return Finding(check, state, found, "" if state == "good" else "stop other processes, or wait")


def _stolen(system: ReportedSystem, load: Interference | None) -> Finding:
    check = "steal"
    shares = [one.stolen for one in (system.idle, load) if one is not None and one.stolen is not None]
    if not shares:
        return Finding(check, "unknown", "the system does not report what a hypervisor takes")
    worst = max(shares)
    if system.virtual is False and worst < _STOLEN_POOR:
        return Finding(check, "good", "no hypervisor takes processors")
    state = graded(worst, _STOLEN_POOR, _STOLEN_BAD)
    found = f"the hypervisor takes {percent(worst)} of the processors' time"
    advice = "wait until other guests are idle, or use a machine with dedicated processors"
    return Finding(check, state, found, "" if state == "good" else advice)


def _quota(system: ReportedSystem, load: Interference | None) -> Finding:
    check = "quota"
    if system.quota is None:
        return Finding(check, "unknown", "the system does not report a limit of processor time")
    if not math.isfinite(system.quota):
        return Finding(check, "good", "no limit of processor time")
    count = system.usable or system.online
    throttled = sum(one.throttled or 0 for one in (system.idle, load) if one is not None)
    found = f"the cgroup may use {system.quota:.3g} processors" + (f" of {count} usable" if count else "")
    if throttled:
        found += f", and was stopped {throttled} times meanwhile"
    if count is not None and system.quota >= count and not throttled:
        return Finding(check, "good", found)
    whole = math.floor(system.quota)
    if whole < 1:
        return Finding(check, "bad", found, "allow at least one processor (docker run --cpus, cpu.max)")
    numbers = f"0-{whole - 1}" if whole > 1 else "0"
    advice = f"raise it, or use no more processors than it allows, such as with taskset -c {numbers}"
    return Finding(check, "poor", found, advice)


def _clock(clock: Clock, load: Interference) -> Finding:
    check = "clock"
    if load.hot:
        found = f"processors lowered their clock {load.hot} times because of heat"
        return Finding(check, "poor", found, "let the machine cool down, and improve its cooling")
    if not clock.governors:
        return Finding(check, "unknown", "the system does not report how the clock is managed")
    found = f"governor {' and '.join(clock.governors)}"
    if clock.now_hz is not None:
        found += f", now {_gigahertz(*clock.now_hz)} GHz"
    if clock.lowest_hz is not None and clock.highest_hz is not None:
        found += f", limits {_gigahertz(clock.lowest_hz, clock.highest_hz)} GHz"
    fixed = clock.lowest_hz is not None and clock.lowest_hz == clock.highest_hz
    if fixed or clock.governors == (_STEADY_GOVERNOR,):
        return Finding(check, "good", found)
    return Finding(check, "poor", found, "set the performance governor: sudo cpupower frequency-set -g performance")


def _gigahertz(low: float, high: float) -> str:
    first, last = f"{low / 1e9:.3g}", f"{high / 1e9:.3g}"
    return first if first == last else f"{first} to {last}"
