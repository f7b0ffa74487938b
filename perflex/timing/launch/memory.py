"""Device memory as the buffer pool sees it: what OpenCL and CUDA have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray


class DeviceMemory(Protocol):
    """Allocates and fills buffers on one device."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the other functions raise where the driver refuses."""
        ...

    def allocate(self, size: int) -> Any:
        """Return a buffer of so many bytes."""
        ...

    def free(self, buffer: Any) -> None:
        """Give a buffer back, after all commands that use it."""
        ...

    def write(self, buffer: Any, data: NDArray[Any], offset: int) -> None:
        """Copy data into a buffer, so many bytes from its start; the data must not change before `finish`."""
        ...

    def read(self, buffer: Any, data: NDArray[Any]) -> None:
        """Copy the beginning of a buffer into an array, after all commands before."""
        ...

    def finish(self) -> None:
        """Wait until all commands are done."""
        ...


class OpenCLMemory:
    """Memory of an OpenCL device, used through one queue."""

    def __init__(self, context: Any, queue: Any) -> None:
        self._context = context
        self._queue = queue

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the other functions raise where the driver refuses."""
        import pyopencl as cl

        return (cl.Error,)

    def allocate(self, size: int) -> Any:
        """Return a buffer of so many bytes."""
        import pyopencl as cl

        return cl.Buffer(self._context, cl.mem_flags.READ_WRITE, size)

    def free(self, buffer: Any) -> None:
        """Give a buffer back, after all commands that use it."""
        self._queue.finish()
        buffer.release()

    def write(self, buffer: Any, data: NDArray[Any], offset: int) -> None:
        """Copy data into a buffer, so many bytes from its start."""
        import pyopencl as cl

        cl.enqueue_copy(self._queue, buffer, data, dst_offset=offset)

    def read(self, buffer: Any, data: NDArray[Any]) -> None:
        """Copy the beginning of a buffer into an array, after all commands before."""
        import pyopencl as cl

        cl.enqueue_copy(self._queue, data, buffer)

    def finish(self) -> None:
        """Wait until all commands are done."""
        self._queue.finish()


def out_of_opencl_memory(error: Any) -> bool:
    """Return whether a pyopencl error says that the device's memory, or the driver's, is used up."""
    import pyopencl as cl

    codes = cl.status_code
    return error.code in {codes.MEM_OBJECT_ALLOCATION_FAILURE, codes.OUT_OF_HOST_MEMORY}


_OUT_OF_MEMORY = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY")


class CudaMemory:
    """Buffers are addresses, allocated one by one: CuPy's own pool would keep what is freed."""

    def __init__(self, cupy: Any, stream: Any) -> None:
        self._runtime = cupy.cuda.runtime
        self._stream = stream

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the other functions raise where the driver refuses."""
        return (RuntimeError,)

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes."""
        return int(self._runtime.malloc(size))

    def free(self, buffer: int) -> None:
        """Give a buffer back, after all commands that use it."""
        self._stream.synchronize()
        self._runtime.free(buffer)

    def write(self, buffer: int, data: NDArray[Any], offset: int) -> None:
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


def out_of_cuda_memory(error: BaseException) -> bool:
    """Return whether an error of CuPy's says that the device's memory is used up."""
    return any(word in str(error) for word in _OUT_OF_MEMORY)
