"""Survey of all drivers: each is loaded and tried in a child process of its own, all at the same time."""

from __future__ import annotations

import json
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from perflex.child_process import ChildProcess, signal_name
from perflex.devices.cuda import cuda_absence, cupy_is_installed, cupy_name
from perflex.devices.device import Device, DeviceInfo
from perflex.devices.nvidia import CUDA_LIBRARY, find_library
from perflex.devices.vendors import Vendor, find_vendors, show_to_loader, vendor_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# CPU drivers compile the probe kernel in seconds on a loaded machine; longer is taken for a hang.
_TIME_LIMIT_S = 20.0


@dataclass(frozen=True)
class _Probe:
    """How the devices of a driver are listed and tried: what a child process runs, and where the driver is from.

    The patience is by how much more time than an OpenCL driver's the child process may take.
    """

    words: tuple[str, ...]
    name: str
    found_by: str
    embedded: bool = False
    vendor: Vendor | None = None
    patience: float = 1.0


@dataclass
class _Report:
    """What the child processes of one driver said."""

    probe: _Probe
    devices: list[dict[str, Any]] = field(default_factory=list)
    verdicts: dict[int, dict[str, Any]] = field(default_factory=dict)
    problem: str = ""


class _Children:
    """The child processes of a survey, which end with it when it is interrupted."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._started: list[ChildProcess] = []
        self._stopped = False

    def start(self, words: Sequence[str], variables: Mapping[str, str]) -> ChildProcess:
        """Start one.

        Raises
        ------
        CancelledError
            The survey was interrupted.
        """
        with self._lock:
            if self._stopped:
                raise CancelledError
            child = ChildProcess(words, variables, keeps_output=True)
            self._started.append(child)
        return child

    def stop(self) -> None:
        """End all, so that nobody waits for them any more."""
        with self._lock:
            self._stopped = True
            for child in self._started:
                child.kill()


def survey() -> tuple[tuple[DeviceInfo, ...], tuple[str, ...]]:
    """Try every driver, show those that load to this process's OpenCL loader, and return what was found.

    Returns
    -------
    tuple
        The devices, and one line for each driver that offers none.
    """
    probes = [_opencl_probe(vendor) for vendor in find_vendors()]
    problems: tuple[str, ...] = ()
    if cupy_is_installed():
        # Loading CuPy and NVRTC takes several seconds where files are not in the system's cache.
        probes.append(_Probe(("perflex.devices.probe_cuda",), "CUDA", f"CuPy ({cupy_name()})", patience=3.0))
    elif find_library(CUDA_LIBRARY) is not None:
        problems = (f"CUDA devices are not looked for: {cuda_absence()}",)
    children = _Children()
    with ThreadPoolExecutor(max_workers=max(1, len(probes))) as pool:
        try:
            reports = list(pool.map(partial(_interrogate, children), probes))
        except BaseException:  # an interrupt, say; the pool waits for its threads, and these for the children
            children.stop()
            raise
    # A driver that crashes or hangs while it is listed would do so in this process, too.
    show_to_loader([report.probe.vendor for report in reports if report.devices and report.probe.vendor is not None])
    infos: list[DeviceInfo] = []
    for report in reports:
        for index, facts in enumerate(report.devices):
            infos.append(_info(report, facts, report.verdicts.get(index, {}), infos))
    problems += tuple(
        f"driver {report.probe.name} ({report.probe.found_by}): {report.problem}"
        for report in reports
        if not report.devices
    )
    return tuple(infos), problems


def _opencl_probe(vendor: Vendor) -> _Probe:
    words = ("perflex.devices.probe_opencl", vendor.library)
    return _Probe(words, vendor.library, vendor.found_by, embedded=vendor.embedded, vendor=vendor)


def _info(report: _Report, facts: dict[str, Any], verdict: dict[str, Any], earlier: list[DeviceInfo]) -> DeviceInfo:
    lists = {name: tuple(facts.get(name, ())) for name in ("max_work_item_sizes", "max_groups")}
    size = int(verdict.get("sub_group_size", facts.get("sub_group_size", 1)))
    device = Device(**(facts | lists | {"sub_group_size": size}))
    ordinal = sum(info.device.names == device.names for info in earlier)
    return DeviceInfo(
        device=replace(device, ordinal=ordinal),
        usable=bool(verdict.get("usable", False)),
        reason=str(verdict.get("reason", "the driver said nothing")),
        found_by=report.probe.found_by,
        embedded=report.probe.embedded,
    )


def _interrogate(children: _Children, probe: _Probe) -> _Report:
    """Run child processes until each device of a driver has a verdict: a crash costs one device only."""
    report = _Report(probe)
    while True:
        ending, lines = _child(children, probe, sorted(report.verdicts))
        # A later child may crash before it lists any; what an earlier one listed holds.
        report.devices = [line["device"] for line in lines if "device" in line] or report.devices
        trying: int | None = None
        for line in lines:
            if "problem" in line:
                report.problem = str(line["problem"])
            if "trying" in line:
                trying = int(line["trying"])
            if "verdict" in line:
                report.verdicts[int(line["verdict"])] = line
                trying = None
        if not ending:
            return report
        # It ended while no device was tried: another child would end in the same way.
        if trying is None or trying in report.verdicts:
            report.problem = ending
            untried = set(range(len(report.devices))) - set(report.verdicts)
            report.verdicts.update({index: {"reason": ending} for index in untried})
            return report
        report.verdicts[trying] = {"reason": f"the probe kernel: {ending}"}


def _child(children: _Children, probe: _Probe, tried: list[int]) -> tuple[str, list[dict[str, Any]]]:
    """Return how a child process ended (empty when well) and the objects it printed."""
    shown = {} if probe.vendor is None else {"OCL_ICD_VENDORS": str(vendor_folder([probe.vendor]))}
    # With -m alone Python looks into the working directory first, where a file could shadow a module; -P prevents it.
    child = children.start(["-P", "-m", *probe.words, *map(str, tried)], shown)
    limit_s = _TIME_LIMIT_S * probe.patience
    ended, code = child.wait(limit_s), child.exit_code or 0
    ending = ""
    if not ended:
        ending = f"the driver gave no answer within {limit_s:g} s"
    elif code < 0:
        ending = f"the driver crashed ({signal_name(-code)})"
    elif code > 0:
        ending = f"the driver failed ({child.last_words() or f'exit code {code}'})"
    return ending, _objects(child.output)


def _objects(output: bytes) -> list[dict[str, Any]]:
    found = []
    for line in output.decode(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue  # drivers print on standard output, too
        if isinstance(value, dict):
            found.append(value)
    return found
