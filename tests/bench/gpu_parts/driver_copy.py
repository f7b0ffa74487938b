"""Copying between buffers by the driver itself: a bandwidth that owes nothing to perflex's kernels or timing."""

from __future__ import annotations

import statistics
from typing import Any

__all__ = ["driver_copy_s"]

_TRIALS = 9


def driver_copy_s(device: Any, nbytes: int) -> float:
    """Return the median time of copying a buffer of `nbytes` to another one on the device, in seconds."""
    times = (_cuda_copies if getattr(device, "api", "opencl") == "cuda" else _opencl_copies)(device, nbytes)
    return statistics.median(times)


def _opencl_copies(device: Any, nbytes: int) -> list[float]:
    import numpy as np
    import pyopencl as cl

    from perflex.timing.launch.opencl import open_device

    _, context = open_device(device)
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    source, target = (cl.Buffer(context, cl.mem_flags.READ_WRITE, nbytes) for _ in range(2))
    try:
        for buffer in (source, target):  # touched once, or the first copy pays for pages
            cl.enqueue_fill_buffer(queue, buffer, np.uint32(1), 0, nbytes)
        times = []
        for _ in range(_TRIALS + 1):
            event = cl.enqueue_copy(queue, target, source, byte_count=nbytes)
            event.wait()
            times.append(1e-9 * (event.profile.end - event.profile.start))
        return times[1:]
    finally:
        source.release()
        target.release()


def _cuda_copies(device: Any, nbytes: int) -> list[float]:
    from perflex.timing.launch.cuda_context import CudaContext

    context = CudaContext(device)
    cuda, memory = context.cupy.cuda, context.memory
    source, target = (memory.allocate(nbytes) for _ in range(2))
    try:
        begin, end = cuda.Event(), cuda.Event()
        times = []
        for _ in range(_TRIALS + 1):
            begin.record(context.stream)
            memory.copy(target, source, nbytes)
            end.record(context.stream)
            memory.finish()
            times.append(1e-3 * cuda.get_elapsed_time(begin, end))
        return times[1:]
    finally:
        memory.free(source)
        memory.free(target)
