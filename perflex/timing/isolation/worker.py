"""What the process does in which kernels are built and run, so that a driver's crash or hang costs that process only.

The functions are called there, by `WorkerProcess`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.timing.launch.backend import backend_of

if TYPE_CHECKING:
    from perflex.compiled.program import CompiledProgram
    from perflex.devices.device import Device
    from perflex.machines.residency import Resources
    from perflex.timing.launch.backend import KernelBackend
    from perflex.timing.launch.building import BoundKernel
    from perflex.timing.launch.launch_times import LaunchTimes
    from perflex.timing.launch.request import LaunchRequest

_backends: list[KernelBackend] = []
_kernels: dict[int, BoundKernel] = {}


def open_device(device: Device) -> None:
    """Open the device, once."""
    _backends.append(backend_of(device, drivers_shown=True))


def build(number: int, request: LaunchRequest) -> Resources:
    """Build a kernel, to be called by a number; return what it takes of the device."""
    _kernels[number] = _backends[0].build(request)
    return _kernels[number].resources


def code(request: LaunchRequest) -> tuple[CompiledProgram, ...]:
    """Build a kernel and return its machine code."""
    return _backends[0].code(request)


def run(number: int, launches: int, cold: bool, warmups: int) -> LaunchTimes:
    """Run a kernel; see `BoundKernel`."""
    return _kernels[number].run(launches, cold=cold, warmups=warmups)


def results(number: int) -> dict[str, Any]:
    """Return what a kernel writes; see `BoundKernel`."""
    return _kernels[number].results()


def responds() -> bool:
    """Return whether the device still works."""
    return _backends[0].responds()
