"""Whether a GPU lowers its clock while kernels are timed, as far as its driver tells.

NVIDIA's tells through NVML, its management library, which the package nvidia-ml-py reaches. Source of functions and
reasons: NVML API Reference Guide, "NvmlClocksEventReasons".
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from perflex.devices.nvidia import NVML_LIBRARY, find_library
from perflex.store.records import SystemActivity

if TYPE_CHECKING:
    from collections.abc import Sequence

# Reasons that stand for heat or power, by what nvml.h calls them. Idleness, clocks that somebody set, and what keeps
# several GPUs at one clock are none: they do not change while kernels run.
_SLOWDOWNS = (
    0x04  # SwPowerCap: the power limit
    | 0x08  # HwSlowdown: either of the two below, on devices that do not tell which
    | 0x20  # SwThermalSlowdown
    | 0x40  # HwThermalSlowdown
    | 0x80  # HwPowerBrakeSlowdown: from outside, as by a power supply
)


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

    def reading(self) -> bool | None:
        """Return whether the clock is lowered now because of heat or power; None where the driver does not tell."""
        try:
            try:
                reasons = self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
            except self._nvml.NVMLError_FunctionNotFound:  # what drivers before version 535 call it
                reasons = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        except self._nvml.NVMLError:
            return None
        return bool(int(reasons) & _SLOWDOWNS)

    def activity_since(self, before: bool | None) -> SystemActivity | None:
        """Return what is known of the time since a reading; None where nothing is."""
        after = self.reading()
        # One reading that says so is enough; that it was not so takes both.
        known = before or after or None not in {before, after}
        return SystemActivity(throttled=bool(before or after)) if known else None

    def close(self) -> None:
        """Give NVML back."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:  # a lost device; nothing is left to give back
            return


def clock_watch(bus_ids: Sequence[str]) -> ClockWatch | None:
    """Return what watches the clock of an NVIDIA device.

    Parameters
    ----------
    bus_ids
        What its place on the PCI bus may be called, ``"00000000:01:00.0"``.

    Returns
    -------
    ClockWatch or None
        None where nvidia-ml-py or NVML is not there, or where none or several of the places are those of a device.
    """
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
    """Return what an OpenCL device's place on the PCI bus may be called; nothing for other vendors than NVIDIA.

    Parameters
    ----------
    cl_device
        As pyopencl has it.
    failure
        What pyopencl raises where a driver does not know a question.
    """
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
