"""A kernel that holds a CUDA stream until the host has enqueued all that is to run back to back.

Without it, an idle device takes the time of an event at once and then waits for a slow host to launch the kernel, and
the wait would count as the kernel's time.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HOLD_NAME", "Hold"]

HOLD_NAME = "perflex_hold"
# Should the host have to wait for the stream while it holds it, it goes on by itself; that run's times are too long.
_LIMIT_NS = 200_000_000
_SOURCE = f"""
extern "C" __global__ void {HOLD_NAME}(volatile int const *go, unsigned long long limit_ns)
{{
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do
  {{
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  }}
  while (*go == 0 && now - start < limit_ns);
}}
"""


class Hold:
    """Holds streams of one device.

    Raises
    ------
    RuntimeError
        The driver fails.
    """

    def __init__(self, cupy: Any) -> None:
        self._kernel = cupy.RawModule(code=_SOURCE, options=("--std=c++17",), backend="nvrtc").get_function(HOLD_NAME)
        # Page-locked memory has the same address on the device.
        self._memory = cupy.cuda.alloc_pinned_memory(np.dtype(np.int32).itemsize)
        self._go = np.frombuffer(self._memory, np.int32, 1)
        self._address = np.uintp(self._memory.ptr)
        with self.held():  # loads the kernel, which may not happen while a stream is held
            pass
        cupy.cuda.runtime.deviceSynchronize()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the current stream: what is enqueued in the block runs after it.

        Raises
        ------
        RuntimeError
            The driver fails.
        """
        self._go[0] = 0
        try:
            self._kernel((1,), (1,), (self._address, np.uint64(_LIMIT_NS)))
            yield
        finally:
            self._go[0] = 1
