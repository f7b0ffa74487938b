"""What timing needs of a device: to build a kernel with sizes, and to run it some times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.devices.device import Device
    from perflex.timing.launch.cuda import CudaBackend
    from perflex.timing.launch.launch_times import LaunchTimes
    from perflex.timing.launch.opencl import OpenCLBackend


class Runnable(Protocol):
    """A kernel with sizes, built and ready to run."""

    def run(self, launches: int) -> LaunchTimes | Sequence[float]:
        """Run back to back; return the device time of each launch in seconds, as `LaunchTimes` where more is known.

        Arrays that the kernel both reads and writes are restored before each launch, outside the times.
        """
        ...


class Backend(Protocol):
    """Builds and runs kernels on one device; that of a `Device` can do more, see `KernelBackend`."""

    @property
    def device(self) -> TimedDevice:
        """Which device."""
        ...

    @property
    def timer_resolution_s(self) -> float:
        """Smallest difference that the device's timer resolves, in seconds."""
        ...

    def build(self, request: Any) -> Runnable:
        """Build what `perflex.timing.launch.request.request_for` makes of a kernel for this device."""
        ...

    def close(self) -> None:
        """Give device memory back."""
        ...


class CustomDevice(Protocol):
    """A device that brings a backend of its own, as `FakeDevice` does."""

    def backend(self) -> Backend:
        """Return what runs and times kernels there."""
        ...


# What a `Device` is reached through, each with `build` to a `BoundKernel`, `code`, `responds` and `close`.
KernelBackend: TypeAlias = "OpenCLBackend | CudaBackend"
# Anything that kernels can be timed on.
TimedDevice: TypeAlias = "Device | CustomDevice"


@dataclass(frozen=True)
class RunLimits:
    """When a kernel in a process of its own is given up.

    Attributes
    ----------
    launch_s
        Most seconds of one launch.
    build_s
        Most seconds of a build.
    """

    launch_s: float
    build_s: float


def backend_of(device: Device, *, drivers_shown: bool = False) -> KernelBackend:
    """Return what runs kernels on a device in this process."""
    if device.api == "cuda":
        from perflex.timing.launch.cuda import CudaBackend

        return CudaBackend(device)
    from perflex.timing.launch.opencl import OpenCLBackend

    return OpenCLBackend(device, drivers_shown=drivers_shown)
