"""The output feature: wall time of a kernel on a device, ``f_cl_wall_time_...`` or ``f_cuda_wall_time_...``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.devices.cuda import cuda_absence
from perflex.devices.listing import list_devices, mark_default, pick, working
from perflex.devices.names import matching, short_names
from perflex.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.devices.device import Api, Device

# OpenCL's is the paper's name (Section 2.2).
_PREFIXES: Mapping[Api, str] = {"opencl": "f_cl_wall_time", "cuda": "f_cuda_wall_time"}


def is_wall_time(identifier: str) -> bool:
    """Return whether a feature identifier means a measured time."""
    return _api_of(identifier) is not None


def is_device_specific(identifier: str) -> bool:
    """Return whether a feature says where it is measured, as all do but ``f_cl_wall_time``: that on any device."""
    return identifier != _PREFIXES["opencl"]


def _api_of(identifier: str) -> Api | None:
    for api, prefix in _PREFIXES.items():
        if identifier == prefix or identifier.startswith(f"{prefix}_"):
            return api
    return None


def device_of(identifier: str) -> Device:
    """Return the device that a wall-time feature is about.

    Parameters
    ----------
    identifier
        ``f_cl_wall_time_<platform>_<device>`` with case-insensitive parts of the OpenCL names, or
        ``f_cuda_wall_time_<device>`` with parts of the name that CUDA gives; without them, the default one of the
        devices that are reached that way.

    Raises
    ------
    DeviceError
        The identifier is no wall-time feature, or no working device or several fit it; lists the devices.
    """
    api = _api_of(identifier)
    if api is None:
        msg = f"{identifier!r} is no wall-time feature; those start with {' or '.join(_PREFIXES.values())}"
        raise DeviceError(msg, feature=identifier)
    infos = list_devices()
    own = [info for info in infos if info.device.api == api]
    spec = identifier[len(_PREFIXES[api]) :].strip("_")
    if not spec:
        found = next((info.device for info in mark_default(own) if info.default), None)
        if found is not None:
            return found
    spec = f"cuda {spec}" if api == "cuda" else spec or "opencl"
    matches = matching(spec, [info.device for info in own], usable=working(own))
    numbers = [infos.index(own[match]) for match in matches]  # messages list all devices, whatever they are reached by
    asked = f"feature {identifier!r}"
    absence = cuda_absence() if api == "cuda" and not own else ""
    return pick(infos, numbers, f"{asked} ({absence})" if absence else asked)


def wall_time_identifier(device: Device) -> str:
    """Return a short wall-time feature that means this device and no other of the machine."""
    api: Api = getattr(device, "api", "opencl")
    devices = [info.device for info in list_devices() if info.device.api == api]
    known = devices if device in devices else [*devices, device]
    return f"{_PREFIXES[api]}_{short_names(known)[known.index(device)].removeprefix('cuda_')}"
