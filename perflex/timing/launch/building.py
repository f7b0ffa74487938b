"""What OpenCL and CUDA have in common when kernels are built: limits, errors, and the buffers of what was built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import MeasurementError

if TYPE_CHECKING:
    from perflex.devices.device import Device
    from perflex.machines.residency import Resources
    from perflex.timing.launch.buffers import BufferPool, BufferSlot
    from perflex.timing.launch.launch_times import LaunchTimes
    from perflex.timing.launch.plan import DeviceProgram
    from perflex.timing.launch.request import LaunchRequest

# Compilers repeat themselves: the first errors say what is wrong.
_MESSAGE_LINES = 4
# Of device memory, for buffers of kernels that ran before: they are filled once, and most kernels share them.
POOL_SHARE = 0.25


class BoundKernel(ABC):
    """A built kernel with sizes and its buffers, taken from the pool anew for each call: others may have used them.

    Parameters
    ----------
    request
        What it was built from.
    pool
        The buffers on its device.
    resources
        What it takes of the device.
    """

    def __init__(self, request: LaunchRequest, pool: BufferPool, resources: Resources) -> None:
        self.resources = resources
        self._request = request
        self._pool = pool
        self._slot_bytes, sizes = request.slot_bytes, request.buffer_bytes
        self._data = {request.slots[name][1] or request.slots[name][0]: data for name, data in request.data.items()}
        self._restored = [
            (slot, origin, sizes[name]) for name, (slot, origin) in request.slots.items() if origin is not None
        ]

    def read(self, name: str) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Return an array's buffer as the last launch left it, shape ``(length,)``."""
        data = np.empty(self._request.lengths[name], self._request.dtypes[name])
        self._pool.memory.read(self._buffers()[self._request.slots[name][0]], data)
        return data

    @abstractmethod
    def run(self, launches: int, *, cold: bool = False, warmups: int = 0) -> LaunchTimes:
        """Run back to back and return the device time of each launch in seconds; see `Runnable`.

        Before them it is launched `warmups` times. With `cold`, data of before are driven out of caches before each
        launch, outside the times.
        """

    def results(self) -> dict[str, np.ndarray[tuple[int], np.dtype[Any]]]:
        """Launch it with the data of `LaunchRequest.given`, and return what it writes, shape ``(length,)`` each.

        Elements that it leaves as they were have bytes of 255: nan, or -1 as integers.
        """
        memory, request = self._pool.memory, self._request
        unwritten = {name: np.full(size, 255, np.uint8) for name, size in request.buffer_bytes.items()}
        data = unwritten | request.given()
        try:
            buffers = self._buffers()
            for name, (slot, origin) in request.slots.items():
                memory.write(buffers[origin or slot], data[name])
            memory.finish()
            self.run(1)
            return {name: self.read(name) for name in request.results}
        except memory.errors as error:
            msg = f"{request.label}: its results cannot be read ({error})"
            raise MeasurementError(msg, kernel=request.label, kind="run") from error

    def _buffers(self) -> dict[BufferSlot, Any]:
        return self._pool.buffers(self._slot_bytes, self._request.label, self._data)

    def _restore(self, buffers: dict[BufferSlot, Any]) -> None:
        """Give arrays that the kernel both reads and writes their first content again."""
        for slot, origin, size in self._restored:
            self._pool.memory.copy(buffers[slot], buffers[origin], size)


def memory_failure(label: str, pool: BufferPool, reason: object) -> MeasurementError:
    """Return the error for a kernel that the device's memory does not suffice for; the next one gets all of it."""
    pool.free_all()
    msg = f"{label}: the device ran out of memory ({reason}); choose smaller sizes"
    return MeasurementError(msg, kernel=label, kind="memory")


def build_failure(label: str, device: Device, log: str, error_mark: str) -> MeasurementError:
    """Return the error for a kernel that does not build, with the compiler's first lines that hold the mark."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    marked = [line for line in lines if error_mark in line] or lines
    msg = f"{label}: does not build on {device}: {' | '.join(marked[:_MESSAGE_LINES])}"
    return MeasurementError(msg, kernel=label, device=device, log=log)


def check_built(label: str, device: Device, program: DeviceProgram, most_items: int, resources: Resources) -> None:
    """Compare a device program with the limits that are known only after the build, registers included.

    `most_items` are the work-items of a work-group that the driver allows for this program.
    """
    items = prod(program.work_group)
    if items > most_items:
        msg = f"{label}: a work-group of {items} work-items, {device} allows {most_items} for this kernel"
        if resources.registers is not None:
            msg += f", which takes {resources.registers} registers per work-item"
        raise MeasurementError(msg, kernel=label, device=device)
    # The compiler may use local memory of its own beside the kernel's arrays, which were compared before the build.
    local_bytes = resources.local_bytes or 0
    if local_bytes > device.local_memory_bytes:
        msg = f"{label}: needs {local_bytes} B of local memory, {device} has {device.local_memory_bytes} B"
        raise MeasurementError(msg, kernel=label, device=device)
