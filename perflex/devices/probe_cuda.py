"""What a child process is asked about the devices that CUDA reaches through CuPy, as `probe_opencl`."""

from __future__ import annotations

from typing import Any

from perflex.devices.cuda import first_line, load_cupy, properties_of
from perflex.devices.probe_opencl import ITEMS, WORK_GROUP, is_probe_result
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


def count(_: str) -> tuple[int, str]:
    """Return how many devices there are; and why none, where that is so."""
    try:
        devices = int(load_cupy().cuda.runtime.getDeviceCount())
    except (PerflexError, RuntimeError) as error:
        return 0, first_line(error)
    return devices, "" if devices else "the driver offers no device; CUDA_VISIBLE_DEVICES may hide them"


def facts(number: int) -> dict[str, Any]:
    """Return a device as fields of a `Device`."""
    return properties_of(load_cupy(), number)


def verdict(number: int) -> dict[str, Any]:
    """Return whether the probe kernel works on a device."""
    return _try(load_cupy(), number)


def _try(cupy: Any, number: int) -> dict[str, object]:
    import numpy as np

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
