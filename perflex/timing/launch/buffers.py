"""Buffers on a device, shared between kernels, filled once and the same way every time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.timing.launch.memory import DeviceMemory
    from perflex.timing.launch.plan import ArrayPlan

# Buffers repeat a block of data: random numbers for all of a large one would take longer than its kernel's timing.
_BLOCK_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Slot:
    """A place in the pool: what it is for, its element type, and a counter within one kernel.

    Roles: ``in`` holds data and is never written; ``out`` is only written; ``both`` is updated by kernels,
    and is restored from the ``in`` slot of the same counter.
    """

    role: str
    dtype: str
    index: int


def assign_slots(arrays: Sequence[ArrayPlan]) -> dict[str, tuple[Slot, Slot | None]]:
    """Give every array its own slot, and updated arrays a second one to be restored from.

    Kernels that run one after another use the same slots, so that timing many kernels in turns needs no
    more memory than the largest of them. Within a kernel no two arrays share one.
    """
    used: dict[tuple[str, str], int] = {}

    def take(role: str, dtype: str) -> Slot:
        index = used.get((role, dtype), 0)
        used[role, dtype] = index + 1
        return Slot(role, dtype, index)

    slots: dict[str, tuple[Slot, Slot | None]] = {}
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
        self._buffers: dict[Slot, tuple[Any, int]] = {}
        self._blocks: dict[tuple[str, int], NDArray[Any]] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes held on the device at the moment."""
        return sum(size for _, size in self._buffers.values())

    def buffers(self, sizes: Mapping[Slot, int], label: str) -> dict[Slot, Any]:
        """Return a buffer of at least the given bytes for each slot, all present at the same time.

        Raises
        ------
        MeasurementError
            The device has not enough memory left.
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
                self._buffers[slot] = self._filled_with_room(slot, size, sizes), size
            except refusals as error:
                self.free_all()  # what comes next must not suffer from what was held for this kernel
                msg = f"{label}: the device has no room for a buffer of {size} B ({error}); choose smaller sizes"
                raise MeasurementError(msg, kernel=label, kind="memory") from error
        return {slot: self._buffers[slot][0] for slot in sizes}

    def free_all(self) -> None:
        """Give all buffers back."""
        for slot in list(self._buffers):
            self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        if slot in self._buffers:
            self.memory.free(self._buffers.pop(slot)[0])

    def _filled_with_room(self, slot: Slot, size: int, keep: Mapping[Slot, int]) -> Any:
        """Fill a buffer; where the device has no room for it, once more without other kernels' buffers."""
        try:
            return self._filled(slot, size)
        except self.memory.errors:
            self._make_room(size, 0, keep)
            return self._filled(slot, size)

    def _make_room(self, size: int, budget: int, keep: Mapping[Slot, int]) -> None:
        for slot in [slot for slot in self._buffers if slot not in keep]:
            if self.held_bytes + size <= budget:
                return
            self._drop(slot)

    def _filled(self, slot: Slot, size: int) -> Any:
        dtype = np.dtype(slot.dtype)
        key = slot.dtype, slot.index
        if key not in self._blocks:
            self._blocks[key] = sample_data(dtype, _BLOCK_ELEMENTS, seed=slot.index)
        block = self._blocks[key].view(np.uint8)
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
