"""Examining a machine and its devices within a given time, and the short look before other commands measure."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import PerflexWarning
from perflex.studies.doctor.finding import verdict
from perflex.studies.doctor.system import Interference, observe_system
from perflex.studies.doctor.system_verdict import system_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from perflex.studies.doctor.device import DeviceTrials
    from perflex.studies.doctor.finding import Finding, Verdict
    from perflex.studies.doctor.system import ReportedSystem
    from perflex.timing.launch.backend import TimedDevice

# With less, a device's process has hardly started before the time is up.
_LEAST_S = 3.0
_WINDOW_S, _SHORT_WINDOW_S = 1.0, 0.5
# What disturbs the times to come and can be told without running a kernel.
_BEFORE = ("processors", "other load", "steal", "quota")


@dataclass(frozen=True)
class DeviceReport:
    """What is to be said of one device.

    Attributes
    ----------
    device
        Its name.
    verdict
        Of its own findings; for a CPU the machine's count, too.
    findings, trials
        What the checks say, and what they rest on.
    """

    device: str
    verdict: Verdict
    findings: tuple[Finding, ...]
    trials: DeviceTrials


@dataclass(frozen=True)
class DoctorReport:
    """What is to be said of a machine and its devices.

    Attributes
    ----------
    verdict
        The worst of the devices' verdicts; the machine's where no device was tried.
    findings, system
        What the checks of the machine say, and what they rest on.
    devices
        Those that were tried.
    left_out
        Names of the devices for which no time was left.
    seconds
        How long it took, in seconds.
    """

    verdict: Verdict
    findings: tuple[Finding, ...]
    system: ReportedSystem
    devices: tuple[DeviceReport, ...]
    left_out: tuple[str, ...]
    seconds: float


def examine(
    devices: Sequence[TimedDevice],
    seconds: float = 25.0,
    *,
    root: Path | str = "/",
    progress: Callable[[str], None] | None = None,
) -> DoctorReport:
    """Watch the machine for a second, then try its devices one after the other.

    Parameters
    ----------
    devices
        Which.
    seconds
        How long it may take in all; devices share it.
    root
        Folder in which ``proc`` and ``sys`` lie.
    progress
        Is told what is looked at.
    """
    from perflex.studies.doctor.device import try_device
    from perflex.studies.doctor.device_verdict import device_findings

    start = time.perf_counter()
    report = progress or (lambda _: None)
    report("the machine")
    system = observe_system(root, window_s=_WINDOW_S)
    tried: list[tuple[TimedDevice, DeviceTrials]] = []
    left_out = []
    for number, device in enumerate(devices):
        share = (seconds - (time.perf_counter() - start)) / (len(devices) - number)
        # The first is tried in any case: without a device there is little to say.
        if tried and share < _LEAST_S:
            left_out.append(str(device))
            continue
        report(str(device))
        tried.append((device, try_device(device, max(share, _LEAST_S), root)))
    findings = system_findings(system, _together([found.load for _, found in tried]))
    reports = []
    for device, found in tried:
        kind = _kind(device)
        own = device_findings(found, kind)
        # A GPU's times hardly depend on who uses the host's processors.
        reports.append(DeviceReport(str(device), verdict((*own, *(findings if kind == "cpu" else ()))), own, found))
    order: tuple[Verdict, ...] = ("fit to measure on", "measure with care", "not fit")
    worst = max((one.verdict for one in reports), key=order.index, default=verdict(findings))
    return DoctorReport(worst, findings, system, tuple(reports), tuple(left_out), time.perf_counter() - start)


def _kind(device: Any) -> str:
    # Devices of a user's own need not say what they are; those that run nothing on this machine are no CPU.
    return str(getattr(device, "kind", "other"))


def _together(loads: Sequence[Interference | None]) -> Interference | None:
    """Return what went on over all trials: the worst share of steal, and the sum of what is counted."""
    known = [load for load in loads if load is not None]
    if not known:
        return None
    stolen = [load.stolen for load in known if load.stolen is not None]
    throttled = [load.throttled for load in known if load.throttled is not None]
    hot = [load.hot for load in known if load.hot is not None]
    return Interference(
        stolen=max(stolen, default=None),
        throttled=sum(throttled) if throttled else None,
        hot=sum(hot) if hot else None,
    )


def system_warnings(device: TimedDevice | None, root: Path | str = "/") -> list[str]:
    """Return what speaks against measuring on a device now, one line each; takes half a second.

    Only the machine is looked at, so there is nothing to say of devices that are no CPU, and of those that run nothing.

    Parameters
    ----------
    device
        What is going to be measured on; None for devices of other machines.
    root
        Folder in which ``proc`` and ``sys`` lie.
    """
    if _kind(device) != "cpu" or getattr(device, "is_simulator", False):
        return []
    findings = system_findings(observe_system(root, window_s=_SHORT_WINDOW_S))
    return [
        f"{finding.found}: {finding.advice} (see 'perflex doctor')"
        for finding in findings
        if finding.check in _BEFORE and finding.state in {"poor", "bad"}
    ]


def warn_before_measuring(device: TimedDevice | None) -> None:
    """Give a `PerflexWarning` for each of the `system_warnings`."""
    for text in system_warnings(device):
        warnings.warn(text, PerflexWarning, stacklevel=2)
