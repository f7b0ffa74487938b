"""Detecting the machine that perflex runs on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from perflex.errors import DeviceError
from perflex.machines.reported import reported_cpu
from perflex.studies.machine_detect.agreement import repeated_rates
from perflex.studies.machine_detect.document import machine_document
from perflex.studies.machine_detect.measure import measure_rates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.devices.device import Device
    from perflex.machines.reported import ReportedCpu
    from perflex.progress import Progress
    from perflex.studies.machine_detect.measure import Bandwidths
    from perflex.timing.launch.backend import TimedDevice

# How much faster than memory a level has to be to be believed.
_SHOWS = 1.2
# After so many seconds no further run is begun that might agree with an earlier one.
_LIMIT_S, _QUICK_LIMIT_S = 120.0, 60.0
# Bytes per cycle that loads of single values can reach: two of 4 bytes.
_SCALAR = 8


@dataclass(frozen=True)
class Detected:
    """A machine that was detected.

    Attributes
    ----------
    document
        Content of its file.
    cpu, rates
        What was reported, and what was measured.
    remarks
        What is missing or looks wrong, in words.
    """

    document: Mapping[str, Any]
    cpu: ReportedCpu
    rates: Bandwidths
    remarks: tuple[str, ...]


def cpu_device(spec: str = "") -> Device:
    """Return the OpenCL device that is this CPU.

    Raises
    ------
    DeviceError
        There is none, or the one that is named is no CPU.
    """
    from perflex.devices.listing import find_device, list_devices

    advice = "install the CPU runtime with pip install 'perflex[cpu]', or PoCL, and see 'perflex devices'"
    if spec:
        device = find_device(spec)
        if device.kind != "cpu" or device.is_simulator:
            msg = f"{device} is no CPU that could be measured; {advice}"
            raise DeviceError(msg, device=device)
        return device
    usable = [info for info in list_devices() if info.usable and not info.device.is_simulator]
    # The embedded runtime comes first, as it does where a device is chosen by default.
    cpus = sorted((info for info in usable if info.device.kind == "cpu"), key=lambda info: not info.embedded)
    if not cpus:
        found = ", ".join(str(info.device) for info in usable) or "none"
        msg = f"no OpenCL device is a CPU (usable devices: {found}); {advice}"
        raise DeviceError(msg)
    return cpus[0].device


def detect_machine(
    device: TimedDevice,
    cpu: ReportedCpu | None = None,
    *,
    name: str = "",
    overlap: str | None = None,
    quick: bool = False,
    progress: Progress | None = None,
) -> Detected:
    """Detect the machine: what the operating system reports, and what kernels measure on one core and on all.

    It measures until two runs agree within 10 % in each number, five times at most, and begins none after two minutes
    (one if quick). It takes the largest value of each. Where they do not agree, or others disturbed what was measured,
    a remark says so, and the file's sources do.

    Parameters
    ----------
    device
        The OpenCL device that is this CPU; see `cpu_device`.
    cpu
        What the operating system reports; asked for if not given.
    name
        Name of the machine; by default the CPU's model with blanks as hyphens.
    overlap
        ``"sum"`` or ``"max"``; by default the hypothesis that YaskSite found for CPUs of this vendor.
    quick
        Whether to take less time for it, and less precision.
    progress
        As `measure` takes it.

    Raises
    ------
    MachineError
        The operating system reports no caches, a kernel cannot be timed, or the times make no sense.
    """
    from perflex.timing.options import TimingOptions

    cpu = reported_cpu() if cpu is None else cpu
    # The fastest of several timings: what else the machine does only makes it slower.
    options = TimingOptions(
        trials=8 if quick else 25, min_trials=3 if quick else 7, budget_s=0.1 if quick else 0.3, statistic="minimum"
    )
    repeated = repeated_rates(
        lambda: measure_rates(cpu.caches, cpu.cores, device, options, quick=quick, progress=progress),
        limit_s=_QUICK_LIMIT_S if quick else _LIMIT_S,
    )
    rates = repeated.rates
    today = datetime.now(UTC).date().isoformat()
    title = name or "-".join(cpu.model.split()) or "detected"
    document = machine_document(title, cpu, rates, f"{device}, {today}; {repeated.note()}", today, overlap)
    missing = [f"not reported: {what}" for what in cpu.missing]
    return Detected(document, cpu, rates, (*missing, *repeated.remarks(), *_doubts(cpu, rates)))


def _doubts(cpu: ReportedCpu, rates: Bandwidths) -> list[str]:
    remarks = []
    if rates.one_core["L1"].load < _SCALAR * rates.clock_hz:
        remarks.append(
            f"L1: {rates.one_core['L1'].load / rates.clock_hz:.1f} B/cycle are loaded: this OpenCL runtime makes no "
            "vectors of work-items, so bandwidths of caches are those of its instructions; name another with --device"
        )
    last = cpu.caches[-1]
    name = f"L{last.level}"
    found, memory = rates.one_core[name], rates.one_core["memory"]
    if found.load < _SHOWS * memory.load:
        remarks.append(
            f"{name}: a working set of half its {last.size_bytes // 2**20} MiB is loaded no faster than from memory; "
            "a virtual machine may report a cache that it shares; set size_bytes to its own part"
        )
    return remarks
