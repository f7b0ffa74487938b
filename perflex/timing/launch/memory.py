"""Device memory as the buffer pool sees it: what OpenCL and CUDA have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class DeviceMemory(Protocol):
    """Allocates and fills buffers on one device, in the order of one queue of commands."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the other functions raise where the driver refuses."""
        ...

    def is_used_up(self, error: Any) -> bool:
        """Return whether one of these errors says that there is no memory left."""
        ...

    def allocate(self, size: int) -> Any:
        """Return a buffer of so many bytes."""
        ...

    def free(self, buffer: Any) -> None:
        """Give a buffer back, after all commands that use it."""
        ...

    def write(self, buffer: Any, data: NDArray[Any], offset: int = 0) -> None:
        """Copy data into a buffer, so many bytes from its start; the data must not change before `finish`."""
        ...

    def read(self, buffer: Any, data: NDArray[Any]) -> None:
        """Copy the beginning of a buffer into an array, after all commands before."""
        ...

    def copy(self, target: Any, origin: Any, size: int) -> None:
        """Copy from buffer to buffer, after all commands before; does not wait."""
        ...

    def finish(self) -> None:
        """Wait until all commands are done."""
        ...


def returns_what_was_written(memory: DeviceMemory) -> bool:
    """Return whether a device still works: some drivers lose everything after one failed launch."""
    sent, received = np.arange(4), np.zeros(4, np.int64)
    try:
        buffer = memory.allocate(sent.nbytes)
        memory.write(buffer, sent)
        memory.read(buffer, received)
        memory.free(buffer)
    except memory.errors:
        return False
    return bool((sent == received).all())


class OpenCLMemory:
    """Memory of an OpenCL device, used through one queue."""

    def __init__(self, context: Any, queue: Any) -> None:
        import pyopencl as cl

        self._cl = cl
        self._context = context
        self._queue = queue
        self.errors: tuple[type[Exception], ...] = (cl.Error,)

    def is_used_up(self, error: Any) -> bool:
        """Return whether the device's memory, or the driver's, is used up."""
        codes = self._cl.status_code
        return error.code in {codes.MEM_OBJECT_ALLOCATION_FAILURE, codes.OUT_OF_HOST_MEMORY}

    def allocate(self, size: int) -> Any:
        """Return a buffer of so many bytes."""
        return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, size)

    def free(self, buffer: Any) -> None:
        """Give a buffer back, after all commands that use it."""
        self._queue.finish()
        buffer.release()

    def write(self, buffer: Any, data: NDArray[Any], offset: int = 0) -> None:
        """Copy data into a buffer, so many bytes from its start."""
        self._cl.enqueue_copy(self._queue, buffer, data, dst_offset=offset)

    def read(self, buffer: Any, data: NDArray[Any]) -> None:
        """Copy the beginning of a buffer into an array, after all commands before."""
        self._cl.enqueue_copy(self._queue, data, buffer)

    def copy(self, target: Any, origin: Any, size: int) -> None:
        """Copy from buffer to buffer, after all commands before; does not wait."""
        self._cl.enqueue_copy(self._queue, target, origin, byte_count=size)

    def finish(self) -> None:
        """Wait until all commands are done."""
        self._queue.finish()


# The names that the runtime and the driver give the same error.
_OUT_OF_MEMORY = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY")


class CudaMemory:
    """Buffers are addresses, allocated one by one: CuPy's own pool would keep what is freed."""

    errors: tuple[type[Exception], ...] = (RuntimeError,)

    def __init__(self, cupy: Any, stream: Any) -> None:
        self._runtime = cupy.cuda.runtime
        self._stream = stream

    def is_used_up(self, error: Any) -> bool:
        """Return whether the device's memory is used up."""
        return any(word in str(error) for word in _OUT_OF_MEMORY)

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes."""
        return int(self._runtime.malloc(size))

    def free(self, buffer: int) -> None:
        """Give a buffer back, after all commands that use it."""
        self.finish()
        self._runtime.free(buffer)

    def write(self, buffer: int, data: NDArray[Any], offset: int = 0) -> None:
        """Copy data into a buffer, so many bytes from its start; the data must not change before `finish`."""
        self._copy(buffer + offset, data.ctypes.data, data.nbytes, self._runtime.memcpyHostToDevice)

    def read(self, buffer: int, data: NDArray[Any]) -> None:
        """Copy the beginning of a buffer into an array, after all commands before."""
        self._copy(data.ctypes.data, buffer, data.nbytes, self._runtime.memcpyDeviceToHost)
        self.finish()

    def copy(self, target: int, origin: int, size: int) -> None:
        """Copy from buffer to buffer, after all commands before; does not wait."""
        self._copy(target, origin, size, self._runtime.memcpyDeviceToDevice)

    def finish(self) -> None:
        """Wait until all commands are done."""
        self._stream.synchronize()

    def _copy(self, target: int, origin: int, size: int, kind: int) -> None:
        self._runtime.memcpyAsync(target, origin, size, kind, self._stream.ptr)
