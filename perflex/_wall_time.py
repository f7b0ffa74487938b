"""The output feature: wall time of a kernel on an OpenCL device, ``f_cl_wall_time_<platform>_<device>``."""

from __future__ import annotations

from perflex._devices import Device, default_device, list_devices, pick
from perflex._devices_match import matching, telling_names
from perflex.errors import DeviceError

__all__ = ["device_of", "is_wall_time", "wall_time_identifier"]

_PREFIX = "f_cl_wall_time"


def is_wall_time(identifier: str) -> bool:
    """Return whether a feature identifier means a measured time."""
    return identifier == _PREFIX or identifier.startswith(f"{_PREFIX}_")


def device_of(identifier: str) -> Device:
    """Return the device that a wall-time feature is about.

    Parameters
    ----------
    identifier
        ``f_cl_wall_time_<platform>_<device>`` with case-insensitive parts of the OpenCL names, or
        ``f_cl_wall_time`` alone for the default device.

    Raises
    ------
    DeviceError
        The identifier is no wall-time feature, or no working device or several fit it; lists the devices.
    """
    if not is_wall_time(identifier):
        msg = f"{identifier!r} is no wall-time feature; those start with {_PREFIX}"
        raise DeviceError(msg, feature=identifier)
    spec = identifier[len(_PREFIX) :].strip("_")
    if not spec:
        return default_device()
    infos = list_devices()
    return pick(infos, matching(spec, [info.device for info in infos]), f"feature {identifier!r}")


def wall_time_identifier(device: Device) -> str:
    """Return a short wall-time feature that means this device and no other of the machine."""
    devices = [info.device for info in list_devices()]
    known = devices if device in devices else [*devices, device]
    return f"{_PREFIX}_{telling_names(known)[known.index(device)]}"
