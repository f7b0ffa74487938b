"""What happens in the system and to a GPU's clock while kernels run."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import resource
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perflex.devices.cuda import NVML_LIBRARY, find_library
from perflex.machines.host import BUSY_COLUMNS, STEAL_COLUMN, processor_ticks
from perflex.store.records import SystemActivity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Reasons that stand for heat or power, by what nvml.h calls them. Idleness, clocks that somebody set, and what keeps
# several GPUs at one clock are none: they do not change while kernels run.
_SLOWDOWNS = (
    0x04  # SwPowerCap: the power limit
    | 0x08  # HwSlowdown: either of the two below, on devices that do not tell which
    | 0x20  # SwThermalSlowdown
    | 0x40  # HwThermalSlowdown
    | 0x80  # HwPowerBrakeSlowdown: from outside, as by a power supply
)
# What nvml.h calls NVML_CLOCK_SM and NVML_TEMPERATURE_GPU.
_SM_CLOCK, _GPU_SENSOR = 1, 0


class ClockReading(NamedTuple):
    """A GPU at one moment, None for what the driver does not tell.

    Whether the clock is lowered because of heat or power, the clock's rate in Hz, and the temperature in degrees
    Celsius.
    """

    lowered: bool | None
    clock_hz: float | None
    temperature_c: float | None


class ClockWatch:
    """Asks NVML about one device.

    Parameters
    ----------
    nvml
        The package, initialized.
    handle
        The device, as NVML calls it.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def reading(self) -> ClockReading:
        """Return what the driver tells now."""
        nvml, reasons = self._nvml, None
        with suppress(nvml.NVMLError):
            try:
                reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
            except nvml.NVMLError_FunctionNotFound:  # what drivers before version 535 call it
                reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        lowered = None if reasons is None else bool(int(reasons) & _SLOWDOWNS)
        clock = self._asked("nvmlDeviceGetClockInfo", _SM_CLOCK)
        return ClockReading(lowered, clock and 1e6 * clock, self._asked("nvmlDeviceGetTemperature", _GPU_SENSOR))

    def activity_since(self, before: ClockReading) -> SystemActivity | None:
        """Return what is known of the time since a reading; None where nothing is."""
        after = self.reading()
        # One reading that says so is enough; that it was not so takes both.
        slow = before.lowered or after.lowered
        processes = self._asked("nvmlDeviceGetComputeRunningProcesses")
        found = SystemActivity(
            throttled=slow if slow or None not in {before.lowered, after.lowered} else None,
            clock_hz=min(filter(None, (before.clock_hz, after.clock_hz)), default=None),
            temperature_c=max(filter(None, (before.temperature_c, after.temperature_c)), default=None),
            # One of them is this one, by whichever number a container knows it.
            other_processes=None if processes is None else max(0, len({one.pid for one in processes}) - 1),
        )
        return None if found == SystemActivity() else found

    def _asked(self, function: str, *arguments: int) -> Any:
        """Return what the driver answers, None where it does not."""
        with suppress(self._nvml.NVMLError, AttributeError):
            return getattr(self._nvml, function)(self._handle, *arguments)
        return None

    def close(self) -> None:
        """Give NVML back."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:  # a lost device; nothing is left to give back
            return


def clock_watch(bus_ids: Sequence[str]) -> ClockWatch | None:
    """Return what watches the clock of the NVIDIA device at a place, ``"00000000:01:00.0"``; None where none can."""
    nvml = _load_nvml()
    if nvml is None:
        return None
    handles = []
    for bus_id in dict.fromkeys(bus_ids):
        try:
            handles.append(nvml.nvmlDeviceGetHandleByPciBusId(bus_id))
        except nvml.NVMLError:
            continue
    watch = ClockWatch(nvml, handles[0] if len(handles) == 1 else None)
    if len(handles) == 1:
        return watch
    watch.close()
    return None


def opencl_bus_ids(cl_device: Any, failure: type[Exception]) -> tuple[str, ...]:
    """Return what an OpenCL device's place on the PCI bus may be called; nothing for other vendors than NVIDIA."""
    try:
        domain, bus, slot = (int(getattr(cl_device, f"pci_{fact}_id_nv")) for fact in ("domain", "bus", "slot"))
    except (AttributeError, failure):
        return ()
    # The extension does not say whether a slot is a device's number, or that and the number of the function.
    return tuple(dict.fromkeys(f"{domain:08x}:{bus:02x}:{number:02x}.0" for number in (slot >> 3, slot)))


def _load_nvml() -> Any | None:
    """Return nvidia-ml-py, initialized; None where it or the driver's library is missing or too old to ask."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    found = find_library(NVML_LIBRARY)
    try:
        if found is not None and not found.on_path:
            # From where it is, so that it is there under its name when the package asks for it.
            ctypes.CDLL(found.path, mode=ctypes.RTLD_GLOBAL)
        nvml = importlib.import_module("pynvml")
    except (OSError, ImportError):
        return None
    # Earlier versions lack the question; they may be there because other packages brought them along.
    if not hasattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons"):
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


_ENOUGH_BYTES = 512
# /proc/stat begins with a line for all processors and one for each.
_ENOUGH_BYTES_OF_MACHINE = 1 << 16
# A thread's processor clock is numbered so in Linux (include/linux/posix-timers.h): the thread's number, inverted,
# before these bits: of one thread, by the scheduler.
_THREAD_CLOCK_BITS, _OF_ONE_THREAD, _BY_SCHEDULER = 3, 4, 2
_MACHINE = "stat"


@dataclass(frozen=True)
class _Reading:
    """The state of the counters at one moment, times in seconds; None where the system does not report."""

    clock: float
    used: Mapping[str, float] | None
    waits: Mapping[str, float] | None
    switches: int
    busy: float | None
    stolen: Mapping[str, float] | None


@dataclass
class SystemWatch:
    """Reads the operating system's counters of this process and of the machine.

    Files stay open between readings: opening takes longer than reading, and both are time between launches.

    Attributes
    ----------
    proc
        The folder that Linux reports in; elsewhere it is not there, and only little is known.
    """

    proc: Path = Path("/proc")
    _files: dict[str, int] = field(default_factory=dict)
    _own: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._own = _own_processors()

    def reading(self) -> _Reading:
        """Return the state of all counters now."""
        busy, stolen = self._machine()
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        threads = self._threads()
        waits = self._waits(threads)
        used = _processor_times(threads)
        # Last, and first of all at the end: what reading takes is not part of the time between two readings.
        return _Reading(time.perf_counter(), used, waits, switches, busy, stolen)

    def activity_since(self, before: _Reading) -> SystemActivity:
        """Return what went on since a reading."""
        clock = time.perf_counter()
        used_now = _processor_times(self._threads())
        now = self.reading()
        waited = used = None
        # A thread that was not there before has used and waited as much as it says.
        if before.waits is not None and now.waits is not None:
            waited = max((wait - before.waits.get(name, 0.0) for name, wait in now.waits.items()), default=0.0)
        if before.used is not None and used_now is not None:
            used = sum(seconds - before.used.get(name, 0.0) for name, seconds in used_now.items())
        stolen = None
        if now.stolen is not None and before.stolen is not None:
            # Of one processor: summed over many, what a hypervisor takes here and there would look like a lack.
            stolen = max(0.0, *(seconds - before.stolen.get(name, seconds) for name, seconds in now.stolen.items()))
        others = None
        if now.busy is not None and before.busy is not None and used is not None:
            # The machine's counters go on by ticks, this process's do not: the difference may fall below zero.
            others = max(0.0, now.busy - before.busy - used)
        return SystemActivity(
            elapsed_s=clock - before.clock,
            processor_s=used,
            waited_s=waited,
            stolen_s=stolen,
            others_s=others,
            switches=now.switches - before.switches,
        )

    def close(self) -> None:
        """Close all files."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _threads(self) -> list[str]:
        """Return the numbers of this process's threads; none where the system does not list them."""
        try:
            # Not pathlib's iterdir, which takes three times as long.
            return os.listdir(self.proc / "self/task")  # noqa: PTH208
        except OSError:
            return []

    def _waits(self, threads: Sequence[str]) -> dict[str, float] | None:
        """Return by thread how long it has waited for a processor since it began, in seconds."""
        found = {}
        names = {thread: f"self/task/{thread}/schedstat" for thread in threads}
        # Nobody asks for threads that have ended: their files would stay open.
        for name in self._files.keys() - names.values() - {_MACHINE}:
            os.close(self._files.pop(name))
        for thread, name in names.items():
            # Time on a processor and time waiting, in ns, and the number of turns.
            words = self._read(name).split()
            if len(words) == 3:
                found[thread] = int(words[1]) * 1e-9
        # Kernels without the counters have no such files.
        return found or None

    def _machine(self) -> tuple[float | None, dict[str, float] | None]:
        """Return the time that all processors have worked, and that was stolen by processor, in seconds."""
        rows = processor_ticks(self._read(_MACHINE, _ENOUGH_BYTES_OF_MACHINE).decode("ascii", "replace"))
        if "cpu" not in rows:
            return None, None
        tick = os.sysconf("SC_CLK_TCK")
        # A container may number its processors anew.
        own = [name for name in rows if name in self._own] or ["cpu"]
        stolen = {name: int(rows[name][STEAL_COLUMN]) / tick for name in own}
        return sum(int(rows["cpu"][column]) for column in BUSY_COLUMNS) / tick, stolen

    def _read(self, name: str, size: int = _ENOUGH_BYTES) -> bytes:
        """Return the beginning of a file; nothing where it is not there any more."""
        try:
            if name not in self._files:
                self._files[name] = os.open(self.proc / name, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._files[name], size, 0)
        except OSError:
            # The thread has ended.
            if name in self._files:
                os.close(self._files.pop(name))
            return b""


def _own_processors() -> frozenset[str]:
    """Return the names in /proc/stat of the processors that this process may use; none where that is not told."""
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    return frozenset(f"cpu{number}" for number in os.sched_getaffinity(0))


def _processor_times(threads: Sequence[str]) -> dict[str, float] | None:
    """Return by thread how much processor time it has used since it began, in seconds; None where that is not known.

    Thread by thread: the process's own clock leaves out what threads that run just now have used since the scheduler's
    last tick, which is some milliseconds.
    """
    found = {}
    for thread in threads:
        number = (~int(thread) << _THREAD_CLOCK_BITS) | _OF_ONE_THREAD | _BY_SCHEDULER
        # A thread that has ended meanwhile has no clock any more.
        with suppress(OSError):
            found[thread] = time.clock_gettime(number)
    return found or None
