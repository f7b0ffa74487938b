"""Child process that lists and tries the devices that CUDA reaches through CuPy.

Speaks as `perflex.devices.probe_opencl` does: first every device, then a verdict on each. Device indices given as
arguments are listed but not tried.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from perflex.child_process import end_with_parent
from perflex.devices.cuda import first_line, load_cupy, properties_of
from perflex.devices.probe_opencl import ITEMS, WORK_GROUP, is_probe_result, say, try_each
from perflex.errors import PerflexError

# The counterpart of the kernel in `probe_opencl`: 64 is WORK_GROUP.
_PROBE_SOURCE = """
extern "C" __global__ void probe(float const *a, float *b)
{
  __shared__ float tile[64];
  int const i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = 2.0f * a[i] + 1.0f;
  __syncthreads();
  b[i] = tile[63 - threadIdx.x];
}
"""


def main(skipped: frozenset[int]) -> None:
    """List the devices, then try each that is not in `skipped`."""
    try:
        cupy = load_cupy()
        devices = [properties_of(cupy, number) for number in range(int(cupy.cuda.runtime.getDeviceCount()))]
    except (PerflexError, RuntimeError) as error:
        say(problem=first_line(error))
        return
    if not devices:
        say(problem="the driver offers no device; CUDA_VISIBLE_DEVICES may hide them")
    try_each(devices, lambda number: _try(cupy, number), skipped)


def _try(cupy: Any, number: int) -> dict[str, object]:
    runtime = cupy.cuda.runtime
    sent = np.arange(ITEMS, dtype=np.float32)
    received = np.zeros_like(sent)
    try:
        runtime.setDevice(number)
        kernel = cupy.RawModule(code=_PROBE_SOURCE, options=("--std=c++17",), backend="nvrtc").get_function("probe")
        # Never freed: the process ends soon.
        source, target = (runtime.malloc(sent.nbytes) for _ in range(2))
        runtime.memcpy(source, sent.ctypes.data, sent.nbytes, runtime.memcpyHostToDevice)
        # CuPy takes an address that is not one of its arrays as a number of a pointer's size.
        kernel((ITEMS // WORK_GROUP,), (WORK_GROUP,), (np.uintp(source), np.uintp(target)))
        # Launches are asynchronous: what goes wrong in the kernel shows here.
        runtime.deviceSynchronize()
        runtime.memcpy(received.ctypes.data, target, received.nbytes, runtime.memcpyDeviceToHost)
    except (RuntimeError, OSError, cupy.cuda.compiler.CompileException) as error:
        return {"usable": False, "reason": first_line(error)}
    if not is_probe_result(received, sent):
        return {"usable": False, "reason": "the probe kernel gave a wrong answer"}
    return {"usable": True, "reason": ""}


if __name__ == "__main__":
    end_with_parent()
    main(frozenset(int(word) for word in sys.argv[1:]))
