"""What a device is: its names and limits, and the interface that it is reached through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Api: TypeAlias = Literal["opencl", "cuda"]

API_NAMES: Mapping[Api, str] = {"opencl": "OpenCL", "cuda": "CUDA"}

# They run kernels step by step to inspect them; words of their names.
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
    def names(self) -> tuple[str, str, str, str]:
        """Platform, vendor, name and driver: devices that agree in them are told apart by their ordinal."""
        return self.platform, self.vendor, self.name, self.driver

    @property
    def is_simulator(self) -> bool:
        """Whether the device executes kernels for inspection, so that its times mean nothing."""
        return any(word in f"{self.platform} {self.name}".lower() for word in _SIMULATORS)


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
            # OpenCL's probe kernel finds it out; without its verdict there is only the default.
            "sub_group_size": device.sub_group_size if self.usable else None,
            "compute_units": device.compute_units,
            "local_memory_bytes": device.local_memory_bytes,
            "compute_capability": device.compute_capability,
            "found_by": self.found_by,
        }
