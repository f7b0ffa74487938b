"""What timing needs of a device: to build a kernel with sizes, and to run it some times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.compiled.program import CompiledProgram
    from perflex.devices.device import Device
    from perflex.machines.resources import Resources
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.launch.slabs import Slab


class Runnable(Protocol):
    """A kernel with sizes, built and ready to run."""

    def run(self, launches: int) -> tuple[float, ...]:
        """Run back to back; return the device time of each launch in seconds, as `LaunchTimes` where more is known.

        Arrays that the kernel both reads and writes are restored before each launch, outside the times.

        Raises
        ------
        MeasurementError
            The device reports an error; its ``kind``, where it has one, is the failure's.
        DeviceError
            An earlier kernel lost the device.
        """
        ...


class SlabRunnable(Runnable, Protocol):
    """A kernel parts of whose grid can be launched."""

    def run_slabs(self, slabs: Sequence[Slab]) -> tuple[float, ...]:
        """Launch parts of the grid one after another; return the device time of each in seconds, as `Runnable.run`.

        Arrays that the kernel both reads and writes are restored before the first of them. The kernel was built for it
        (`LaunchRequest.in_slabs`).

        Raises
        ------
        MeasurementError, DeviceError
            As for `Runnable.run`.
        """
        ...


class BuiltKernel(SlabRunnable, Protocol):
    """A kernel that was built for a real device."""

    @property
    def resources(self) -> Resources:
        """What it takes of the device, as far as the driver tells."""
        ...


class Backend(Protocol):
    """Builds and runs kernels on one device."""

    @property
    def device(self) -> TimedDevice:
        """Which device."""
        ...

    @property
    def timer_resolution_s(self) -> float:
        """Smallest difference that the device's timer resolves, in seconds."""
        ...

    def build(self, request: Any) -> Runnable:
        """Build a kernel.

        Parameters
        ----------
        request
            What `perflex.timing.launch.request.request_for` makes of a kernel for this device: a `LaunchRequest` for
            a `Device`, the `SizedKernel` itself for others. Both have ``label`` and ``sizes``.

        Raises
        ------
        MeasurementError
            It does not build or does not fit the device.
        """
        ...

    def close(self) -> None:
        """Give device memory back."""
        ...


class KernelBackend(Backend, Protocol):
    """Builds and runs kernels on a real device, whatever it is reached through."""

    def build(self, request: LaunchRequest) -> BuiltKernel:
        """Build what was generated and checked before.

        Raises
        ------
        MeasurementError
            It does not build, or needs more than the device has for this kernel.
        DeviceError
            An earlier kernel lost the device.
        """
        ...

    def code(self, request: LaunchRequest) -> tuple[CompiledProgram, ...]:
        """Build a kernel and return its machine code, each device program's.

        Raises
        ------
        MeasurementError
            It does not build, or the code of this device cannot be read.
        """
        ...

    def responds(self) -> bool:
        """Return whether the device still works: some drivers lose everything after one failed launch."""
        ...


class CustomDevice(Protocol):
    """A device that brings a backend of its own, as `FakeDevice` does."""

    def backend(self) -> Backend:
        """Return what runs and times kernels there."""
        ...


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
