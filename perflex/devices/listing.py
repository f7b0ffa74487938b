"""Devices: which there are, which of them work, and how to name one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.devices.cuda import cuda_absence
from perflex.devices.names import matching, split_spec, telling_names
from perflex.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.devices.device import Api
    from perflex.timing.launch.backend import KernelBackend, RunLimits

__all__ = ["Device", "DeviceInfo", "default_device", "find_device", "list_devices"]

_SIMULATORS = ("oclgrind",)


@dataclass(frozen=True)
class Device:
    """One device: a description that can be hashed, compared and sent to other processes.

    Attributes
    ----------
    platform, vendor, name, driver
        What the driver calls them; `driver` holds driver and platform version, for CUDA the compiler's, too.
    ordinal
        Counts the devices that agree in all of the above, from 0.
    kind
        ``"cpu"``, ``"gpu"`` or ``"other"``.
    sub_group_size
        Work-items that execute together.
    compute_units
        Number of compute units.
    local_memory_bytes, global_memory_bytes, max_allocation_bytes
        Local memory of one work-group, device memory, and the largest single buffer, in bytes.
    max_work_group_size, max_work_item_sizes
        Limits on the number of work-items of a work-group, in all and by axis.
    timer_resolution_ns
        Resolution of the event timer, in ns.
    double_precision
        Whether kernels may compute in double precision.
    api
        What the device is reached through: ``"opencl"`` or ``"cuda"``.
    max_groups
        Limits on the number of work-groups by axis; empty where there are none to speak of.
    compute_capability
        NVIDIA's version of the hardware's abilities, ``"9.0"``; empty for others.
    """

    platform: str
    vendor: str
    name: str
    driver: str
    ordinal: int = 0
    kind: str = "cpu"
    sub_group_size: int = 1
    compute_units: int = 1
    local_memory_bytes: int = 0
    global_memory_bytes: int = 0
    max_allocation_bytes: int = 0
    max_work_group_size: int = 1
    max_work_item_sizes: tuple[int, ...] = ()
    timer_resolution_ns: int = 1
    double_precision: bool = True
    api: Api = "opencl"
    max_groups: tuple[int, ...] = ()
    compute_capability: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.platform})"

    @property
    def is_simulator(self) -> bool:
        """Whether the device executes kernels for inspection, so that its times mean nothing."""
        return any(word in f"{self.platform} {self.name}".lower() for word in _SIMULATORS)

    def backend(self) -> KernelBackend:
        """Return what runs and times kernels on this device.

        Raises
        ------
        DeviceError
            This process cannot reach the device.
        """
        from perflex.timing.launch.backend import backend_of

        return backend_of(self)

    def isolated_backend(self, limits: RunLimits) -> KernelBackend:
        """Return what runs and times kernels on this device in a process of its own, started when needed.

        Parameters
        ----------
        limits
            When a kernel is given up.
        """
        from perflex.timing.isolation.backend import IsolatedBackend

        return IsolatedBackend(self, limits)


@dataclass(frozen=True)
class DeviceInfo:
    """A device with the verdict of the probe kernel.

    Attributes
    ----------
    device
        The device.
    usable
        Whether the probe kernel compiled and gave the right answer.
    reason
        Why the device is not usable, else empty.
    found_by
        How the device's driver was found.
    embedded
        Whether its driver is the CPU runtime installed in the Python environment.
    default
        Whether this device is taken when none is named.
    """

    device: Device
    usable: bool
    reason: str
    found_by: str
    embedded: bool = False
    default: bool = False

    def as_dict(self) -> dict[str, object]:
        """Return the facts that ``perflex devices --json`` prints."""
        device = self.device
        return {
            "api": device.api,
            "platform": device.platform,
            "vendor": device.vendor,
            "name": device.name,
            "driver": device.driver,
            "type": device.kind,
            "usable": self.usable,
            "reason": self.reason,
            "default": self.default,
            "sub_group_size": device.sub_group_size if self.usable else None,
            "compute_units": device.compute_units,
            "local_memory_bytes": device.local_memory_bytes,
            "compute_capability": device.compute_capability,
            "found_by": self.found_by,
        }


def list_devices() -> tuple[DeviceInfo, ...]:
    """Return every device of the machine's drivers and the embedded one, probed once per process.

    OpenCL's devices come first; a GPU that both OpenCL and CUDA reach is listed for each.

    Drivers are tried in child processes, so that one that crashes or hangs is only reported.
    """
    return _listed()[0]


def driver_problems() -> tuple[str, ...]:
    """Return one line for each driver that could not be loaded or offers no device."""
    return _listed()[1]


@lru_cache(maxsize=1)
def _listed() -> tuple[tuple[DeviceInfo, ...], tuple[str, ...]]:
    from perflex.devices.survey import survey

    infos, problems = survey()
    return mark_default(infos), problems


def mark_default(infos: Sequence[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """Mark the first working GPU, else the embedded CPU runtime, else any device but a simulator."""
    working = [info for info in infos if info.usable and not info.device.is_simulator]
    wishes = (
        [info for info in working if info.device.kind == "gpu"],
        [info for info in working if info.embedded],
        working,
    )
    chosen = next((wish[0] for wish in wishes if wish), None)
    return tuple(replace(info, default=info is chosen) for info in infos)


def default_device() -> Device:
    """Return the device that is taken when none is named.

    Raises
    ------
    DeviceError
        No device works.
    """
    for info in list_devices():
        if info.default:
            return info.device
    msg = (
        f"no usable device: {describe(list_devices())}; "
        "install the embedded CPU runtime (pip install 'perflex[cpu]') or a driver, see `perflex devices`"
    )
    raise DeviceError(msg)


def find_device(spec: str | Device | None = None) -> Device:
    """Return the one device that a specification singles out.

    Parameters
    ----------
    spec
        Case-insensitive parts of platform, vendor and device name, separated by spaces, underscores or
        colons, platform first (``"intel_epyc"``, ``"pocl"``); a device; or None for the default device.
        ``"cuda"`` or ``"opencl"`` in front says what it is reached through (``"cuda_h100"``, ``"cuda:0"``); without,
        OpenCL comes first.

    Raises
    ------
    DeviceError
        No device fits, several do, or the one that fits does not work.
    """
    if spec is None:
        return default_device()
    if isinstance(spec, Device):
        return spec
    infos = list_devices()
    matches = matching(spec, [info.device for info in infos], usable=working(infos))
    absence = cuda_absence() if not matches and split_spec(spec)[:1] == ("cuda",) else ""
    return pick(infos, matches, f"{spec!r} ({absence})" if absence else repr(spec))


def working(infos: Sequence[DeviceInfo]) -> frozenset[int]:
    """Return the numbers of the devices that work."""
    return frozenset(index for index, info in enumerate(infos) if info.usable)


def pick(infos: Sequence[DeviceInfo], matches: Sequence[int], asked: str) -> Device:
    """Return the only working device among the matches, or say why there is none."""
    fit = [index for index in matches if infos[index].usable]
    if len(fit) == 1:
        return infos[fit[0]].device
    names = telling_names([info.device for info in infos])
    listing = describe(infos)
    if fit:
        choices = ", ".join(names[index] for index in fit)
        msg = f"{asked} fits {len(fit)} devices, name one of them: {choices}; devices: {listing}"
        raise DeviceError(msg, devices=tuple(infos[index].device for index in fit))
    if matches:
        info = infos[matches[0]]
        msg = f"{info.device} does not work: {info.reason}; devices: {listing}"
        raise DeviceError(msg, device=info.device)
    msg = f"no device fits {asked}; devices: {listing}"
    raise DeviceError(msg)


def describe(infos: Sequence[DeviceInfo]) -> str:
    """Return one line that lists devices with the name that singles each out, and what is wrong with them."""
    names = telling_names([info.device for info in infos])
    items = [
        f"{name} = {info.device}" + ("" if info.usable else f" [not usable: {info.reason}]")
        for name, info in zip(names, infos, strict=True)
    ]
    return "; ".join([*items, *driver_problems()]) or "none"
