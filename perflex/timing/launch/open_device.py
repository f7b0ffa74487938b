"""What runs kernels on a device, by the interface that it is reached through."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex.devices.listing import Device
    from perflex.timing.launch.backend import KernelBackend

__all__ = ["backend_of"]


def backend_of(device: Device, *, drivers_shown: bool = False) -> KernelBackend:
    """Return what runs kernels on a device in this process.

    Parameters
    ----------
    device
        Which device.
    drivers_shown
        Whether OCL_ICD_VENDORS names all drivers already, so that none has to be tried first.

    Raises
    ------
    DeviceError
        This process cannot reach the device.
    MissingExtraError
        It is reached through a package that is not installed.
    """
    if device.api == "cuda":
        from perflex.timing.launch.cuda import CudaBackend

        return CudaBackend(device)
    from perflex.timing.launch.opencl import OpenCLBackend

    return OpenCLBackend(device, drivers_shown=drivers_shown)
