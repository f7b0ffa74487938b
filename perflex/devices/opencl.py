"""OpenCL devices as pyopencl shows them in this process, and what they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def opencl_devices(cl: Any) -> Iterator[Any]:
    """Yield the devices of all platforms; platforms without any are left out.

    Raises
    ------
    pyopencl.Error, RuntimeError
        A driver fails, or there is no platform.
    """
    for platform in cl.get_platforms():
        try:
            yield from platform.get_devices()
        except cl.LogicError:  # some drivers report "no device" as an error
            continue


def names_of(device: Any) -> dict[str, str]:
    """Return what the driver calls a device, as the fields of a `Device`."""
    platform = device.platform
    return {
        "platform": platform.name.strip(),
        "vendor": platform.vendor.strip(),
        # Some CPUs' brand strings, which drivers pass on, are padded with blanks.
        "name": device.name.strip(),
        "driver": f"{device.driver_version.strip()} ({platform.version.strip()})",
    }
