"""Buffers on a device, shared between kernels, filled once and the same way every time."""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from perflex.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.timing.launch.plan import ArrayPlan


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
        """Copy data into a buffer, so many bytes from its start; the data must not change before `finish`."""
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


# Allocates and fills buffers on one device, in the order of one queue of commands; `errors` is what is raised where the
# driver refuses.
DeviceMemory: TypeAlias = "OpenCLMemory | CudaMemory"
# Buffers repeat a block of data: random numbers for all of a large one would take longer than its kernel's timing.
_BLOCK_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class BufferSlot:
    """A place in the pool: what it is for, its element type, and a counter within one kernel.

    Roles: ``in`` holds data and is never written; ``out`` is only written; ``both`` is updated by kernels,
    and is restored from the ``in`` slot of the same counter. A role with a digest behind it is of data of a user's.
    """

    role: str
    dtype: str
    index: int


def assign_slots(arrays: Sequence[ArrayPlan]) -> dict[str, tuple[BufferSlot, BufferSlot | None]]:
    """Give every array its own slot, and updated arrays a second one to be restored from.

    Kernels that run one after another use the same slots, so that timing many kernels in turns needs no
    more memory than the largest of them. Within a kernel no two arrays share one.
    """
    used: dict[tuple[str, str], int] = {}

    def take(role: str, dtype: str) -> BufferSlot:
        index = used.get((role, dtype), 0)
        used[role, dtype] = index + 1
        return BufferSlot(role, dtype, index)

    slots: dict[str, tuple[BufferSlot, BufferSlot | None]] = {}
    for array in arrays:
        dtype = np.dtype(array.dtype).str
        if array.read and array.written:
            slots[array.name] = take("both", dtype), take("in", dtype)
        else:
            slots[array.name] = take("out" if array.written else "in", dtype), None
    return slots


def sample_data(dtype: np.dtype[Any], length: int, seed: int = 0) -> NDArray[Any]:
    """Return deterministic data: floats in [0.5, 1.5), ones for integers, shape ``(length,)``.

    Floats near one neither overflow nor become denormal in long sums and products; an integer one is a
    valid divisor, trip count and (in all but degenerate arrays) subscript.
    """
    if dtype.kind in "iub":
        return np.ones(length, dtype)
    random = np.random.default_rng(seed)
    if dtype.kind == "f":
        return (0.5 + random.random(length)).astype(dtype)
    if dtype.kind == "c":
        return (0.5 + random.random(length) + 1j * random.random(length)).astype(dtype)
    return np.zeros(length, dtype)


def named_data(name: str, dtype: np.dtype[Any], length: int) -> NDArray[Any]:
    """Return data that an array has by its name, whatever other arrays a kernel takes, shape ``(length,)``."""
    return np.resize(sample_data(dtype, min(length, _BLOCK_ELEMENTS), zlib.crc32(name.encode())), length)


class BufferPool:
    """Device buffers by slot, within a memory budget; the longest unused go first.

    Parameters
    ----------
    memory
        Of the device.
    budget_bytes
        How much may be held beyond what one kernel needs.
    """

    def __init__(self, memory: DeviceMemory, budget_bytes: int) -> None:
        self.memory = memory
        self._budget = budget_bytes
        self._buffers: dict[BufferSlot, tuple[Any, int]] = {}
        self._blocks: dict[tuple[str, int], NDArray[Any]] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes held on the device at the moment."""
        return sum(size for _, size in self._buffers.values())

    def buffers(
        self, sizes: Mapping[BufferSlot, int], label: str, data: Mapping[BufferSlot, NDArray[Any]] | None = None
    ) -> dict[BufferSlot, Any]:
        """Return a buffer of at least the given bytes for each slot, all present at the same time.

        New ones are filled with `data` where that has some, else with those that are made up.
        """
        refusals: tuple[type[Exception], ...] = (*self.memory.errors, MemoryError)
        for slot in sizes:
            if slot in self._buffers:
                # Moved to the end: the order of the dictionary is the order of last use.
                self._buffers[slot] = self._buffers.pop(slot)
        for slot, size in sizes.items():
            if slot in self._buffers and self._buffers[slot][1] >= size:
                continue
            self._drop(slot)
            self._make_room(size, self._budget, keep=sizes)
            try:
                self._buffers[slot] = self._filled_with_room(slot, size, sizes, data or {}), size
            except refusals as error:
                self.free_all()  # what comes next must not suffer from what was held for this kernel
                msg = f"{label}: the device has no room for a buffer of {size} B ({error}); choose smaller sizes"
                raise MeasurementError(msg, kernel=label, kind="memory") from error
        return {slot: self._buffers[slot][0] for slot in sizes}

    def free_all(self) -> None:
        """Give all buffers back."""
        for slot in list(self._buffers):
            self._drop(slot)

    def _drop(self, slot: BufferSlot) -> None:
        if slot in self._buffers:
            self.memory.free(self._buffers.pop(slot)[0])

    def _filled_with_room(
        self, slot: BufferSlot, size: int, keep: Mapping[BufferSlot, int], data: Mapping[BufferSlot, NDArray[Any]]
    ) -> Any:
        """Fill a buffer; where the device has no room for it, once more without other kernels' buffers."""
        block = data[slot] if slot in data else self._block(slot)
        try:
            return self._filled(block, size)
        except self.memory.errors:
            self._make_room(size, 0, keep)
            return self._filled(block, size)

    def _make_room(self, size: int, budget: int, keep: Mapping[BufferSlot, int]) -> None:
        for slot in [slot for slot in self._buffers if slot not in keep]:
            if self.held_bytes + size <= budget:
                return
            self._drop(slot)

    def _block(self, slot: BufferSlot) -> NDArray[Any]:
        key = slot.dtype, slot.index
        if key not in self._blocks:
            self._blocks[key] = sample_data(np.dtype(slot.dtype), _BLOCK_ELEMENTS, seed=slot.index)
        return self._blocks[key]

    def _filled(self, data: NDArray[Any], size: int) -> Any:
        block = data.view(np.uint8)
        buffer = self.memory.allocate(size)
        try:
            for start in range(0, size, block.nbytes):
                self.memory.write(buffer, block[: min(block.nbytes, size - start)], start)
            self.memory.finish()
        except self.memory.errors:
            self._give_up(buffer)
            raise
        return buffer

    def _give_up(self, buffer: Any) -> None:
        """Free a buffer that could not be filled; the driver may refuse that, too."""
        with suppress(*self.memory.errors):
            self.memory.free(buffer)
