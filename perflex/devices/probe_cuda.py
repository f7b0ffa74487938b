"""Child process that lists and tries the devices that CUDA reaches through CuPy.

Speaks as `perflex.devices.probe_opencl` does: first every device, then a verdict on each. Device indices given as
arguments are listed but not tried.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from perflex.devices.cuda import first_line, load_cupy, properties_of
from perflex.errors import PerflexError

_WORK_GROUP = 64
_ITEMS = 256
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
        _say(problem=first_line(error))
        return
    if not devices:
        _say(problem="the driver offers no device; CUDA_VISIBLE_DEVICES may hide them")
    for device in devices:
        _say(device=device)
    for number in range(len(devices)):
        if number not in skipped:
            _say(trying=number)
            _say(verdict=number, **_try(cupy, number))


def _try(cupy: Any, number: int) -> dict[str, object]:
    runtime = cupy.cuda.runtime
    sent = np.arange(_ITEMS, dtype=np.float32)
    received = np.zeros_like(sent)
    try:
        runtime.setDevice(number)
        kernel = cupy.RawModule(code=_PROBE_SOURCE, options=("--std=c++17",), backend="nvrtc").get_function("probe")
        source, target = (runtime.malloc(sent.nbytes) for _ in range(2))
        runtime.memcpy(source, sent.ctypes.data, sent.nbytes, runtime.memcpyHostToDevice)
        kernel((_ITEMS // _WORK_GROUP,), (_WORK_GROUP,), (np.uintp(source), np.uintp(target)))
        runtime.deviceSynchronize()
        runtime.memcpy(received.ctypes.data, target, received.nbytes, runtime.memcpyDeviceToHost)
    except (RuntimeError, OSError, cupy.cuda.compiler.CompileException) as error:
        return {"usable": False, "reason": first_line(error)}
    expected = (2 * sent + 1).reshape(-1, _WORK_GROUP)[:, ::-1].ravel()
    if not np.array_equal(received, expected):
        return {"usable": False, "reason": "the probe kernel gave a wrong answer"}
    return {"usable": True, "reason": ""}


def _say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(frozenset(int(word) for word in sys.argv[1:]))
