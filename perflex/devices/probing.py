"""Trying all drivers: each is loaded and tried in a child process of its own, all at the same time."""

from __future__ import annotations

import socket
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from perflex.child_process import ChildLostError, RemoteProcess
from perflex.devices import kept_verdicts, probe_cuda, probe_opencl
from perflex.devices.cuda import CUDA_LIBRARY, cuda_absence, cupy_is_installed, cupy_name, find_library
from perflex.devices.device import Device, DeviceInfo
from perflex.devices.drivers import find_drivers, icd_folder, set_icd_folder
from perflex.errors import PerflexError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perflex.devices.drivers import Driver

_Result = TypeVar("_Result")

# CPU drivers compile the probe kernel in seconds on a loaded machine; longer is taken for a hang.
_TIME_LIMIT_S = 20.0


class _Functions(Protocol):
    """What a child process is asked about a driver; `probe_opencl` is such a module."""

    def count(self, library: str) -> tuple[int, str]:
        """Return how many devices there are, and why there are none."""
        ...

    def facts(self, number: int) -> dict[str, Any]:
        """Return the fields of a `Device`."""
        ...

    def verdict(self, number: int) -> dict[str, Any]:
        """Return whether the probe kernel works (`usable`), why it does not (`reason`), and what it tells of facts."""
        ...


@dataclass(frozen=True)
class Probe:
    """How the devices of a driver are listed and tried: what a child process is asked, and where the driver is from.

    The patience is by how much more time than an OpenCL driver's the child process may take.
    """

    functions: _Functions
    name: str
    found_by: str
    library: str
    driver: Driver | None = None
    patience: float = 1.0


@dataclass
class Report:
    """What the child processes of one driver answered."""

    devices: list[dict[str, Any]] = field(default_factory=list)
    verdicts: dict[int, dict[str, Any]] = field(default_factory=dict)
    problem: str = ""


class _Children:
    """The child processes of all drivers, which end when trying is interrupted."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._started: list[RemoteProcess] = []
        self._stopped = False

    def start(self, variables: Mapping[str, str]) -> RemoteProcess:
        """Start one."""
        with self._lock:
            if self._stopped:
                raise CancelledError
            child = RemoteProcess(variables)
            self._started.append(child)
        return child

    def stop(self) -> None:
        """End all, so that nobody waits for them any more."""
        with self._lock:
            self._stopped = True
            for child in self._started:
                child.kill()


def probe_drivers() -> tuple[tuple[DeviceInfo, ...], tuple[str, ...]]:
    """Try every driver, show those that load to this process's OpenCL loader, and return what was found.

    What worked when another process tried it is not tried again (`kept_verdicts`).
    """
    probes = [Probe(probe_opencl, one.library, one.found_by, one.library, one) for one in find_drivers()]
    problems: tuple[str, ...] = ()
    if cupy_is_installed():
        # Loading CuPy and NVRTC takes several seconds where files are not in the system's cache.
        library = find_library(CUDA_LIBRARY)
        probes.append(Probe(probe_cuda, "CUDA", f"CuPy ({cupy_name()})", library.path if library else "", patience=3.0))
    elif find_library(CUDA_LIBRARY) is not None:
        problems = (f"CUDA devices are not looked for: {cuda_absence()}",)
    children = _Children()
    with ThreadPoolExecutor(max_workers=max(1, len(probes))) as pool:
        try:
            reports = list(pool.map(lambda probe: _report(children, probe), probes))
        except BaseException:  # an interrupt, say; the pool waits for its threads, and these for the children
            children.stop()
            raise
    found = list(zip(probes, reports, strict=True))
    # A driver that crashes or hangs while it is listed would do so in this process, too.
    set_icd_folder([probe.driver for probe, report in found if report.devices and probe.driver is not None])
    infos: list[DeviceInfo] = []
    for probe, report in found:
        for number, facts in enumerate(report.devices):
            infos.append(_info(probe, facts, report.verdicts[number], infos))
    problems += tuple(
        f"driver {probe.name} ({probe.found_by}): {report.problem}" for probe, report in found if not report.devices
    )
    return tuple(infos), problems


def _info(probe: Probe, facts: dict[str, Any], verdict: dict[str, Any], earlier: list[DeviceInfo]) -> DeviceInfo:
    lists = {name: tuple(facts.get(name, ())) for name in ("max_work_item_sizes", "max_groups")}
    size = int(verdict.get("sub_group_size", facts.get("sub_group_size", 1)))
    device = Device(**(facts | lists | {"sub_group_size": size}))
    ordinal = sum(info.device.names == device.names for info in earlier)
    return DeviceInfo(
        device=replace(device, ordinal=ordinal, host=socket.gethostname()),
        usable=bool(verdict["usable"]),
        reason=str(verdict["reason"]),
        found_by=probe.found_by,
        embedded=probe.driver is not None and probe.driver.embedded,
    )


def _report(children: _Children, probe: Probe) -> Report:
    found = kept_verdicts.kept(probe.found_by, probe.library)
    if found is not None:
        return Report(found["devices"], dict(enumerate(found["verdicts"])))
    report = tried(children, probe)
    verdicts = [report.verdicts[number] for number in range(len(report.devices))]
    # Of what does not work, somebody may have mended the reason.
    if verdicts and all(verdict["usable"] for verdict in verdicts):
        kept_verdicts.keep(probe.found_by, probe.library, {"devices": report.devices, "verdicts": verdicts})
    return report


def tried(children: _Children, probe: Probe) -> Report:
    """Have child processes try a driver until each device has a verdict: a crash costs one device only."""
    report = Report()
    while True:
        trying: int | None = None
        child = _Asked(children, probe)
        try:
            count, report.problem = child.call(probe.functions.count, probe.name)
            # One by one: the driver may crash at the next.
            for number in range(len(report.devices), count):
                report.devices.append(child.call(probe.functions.facts, number))
            for number in range(count):
                if number not in report.verdicts:
                    trying = number
                    report.verdicts[number] = child.call(probe.functions.verdict, number)
                    trying = None
        except (ChildLostError, PerflexError) as error:
            reason = error.message if isinstance(error, PerflexError) else child.ending(error)
            if trying is not None:
                report.verdicts[trying] = {"usable": False, "reason": f"the probe kernel: {reason}"}
                continue
            # While no device was tried: another child would end in the same way.
            report.problem = reason
            for number in set(range(len(report.devices))) - set(report.verdicts):
                report.verdicts[number] = {"usable": False, "reason": reason}
        finally:
            child.end()
        return report


class _Asked:
    """A child process with the driver of a probe."""

    def __init__(self, children: _Children, probe: Probe) -> None:
        shown = {} if probe.driver is None else {"OCL_ICD_VENDORS": str(icd_folder([probe.driver]))}
        self._limit_s = _TIME_LIMIT_S * probe.patience
        self._child = children.start(shown)

    def call(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        return self._child.call(function, *arguments, limit_s=self._limit_s)

    def ending(self, lost: ChildLostError) -> str:
        if lost.kind == "hang":
            return f"the driver gave no answer within {self._limit_s:g} s"
        return f"the driver {'crashed' if lost.reason.startswith('SIG') else 'failed'} ({lost.reason})"

    def end(self) -> None:
        self._child.end()
