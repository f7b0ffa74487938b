"""What a child process is asked about the devices of the driver that OCL_ICD_VENDORS names.

Drivers crash and hang, so the parent never loads one it has not seen work.
"""

from __future__ import annotations

import ctypes
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perflex.devices.device import names_of, opencl_devices

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORK_GROUP = 64
ITEMS = 256
# Work-items exchange values through local memory, so that a barrier that does not work shows; 64 is WORK_GROUP.
_PROBE_SOURCE = """
__kernel void probe(__global const float *a, __global float *b)
{
    __local float tile[64];
    tile[get_local_id(0)] = 2.0f * a[get_global_id(0)] + 1.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    b[get_global_id(0)] = tile[63 - get_local_id(0)];
}
"""
_REASON_LENGTH = 300
# CL_DEVICE_UUID_KHR, which pyopencl does not know.
_DEVICE_UUID = 0x106A


def count(library: str) -> tuple[int, str]:
    """Return how many devices a driver library offers; and why none, where that is so."""
    import pyopencl as cl

    try:
        devices = _devices()
    except (cl.Error, RuntimeError) as error:
        # OpenCL loaders pass over a library that does not load without a word; the dynamic linker says why.
        return 0, _load_problem(library) or _first_line(error)
    return len(devices), "" if devices else _load_problem(library) or "the driver offers no device"


def facts(number: int) -> dict[str, Any]:
    """Return a device as fields of a `Device`; all that the probe kernel does not tell."""
    import pyopencl as cl

    return _properties(cl, _devices()[number])


def verdict(number: int) -> dict[str, Any]:
    """Return whether the probe kernel works on a device; and the size of sub-groups, which it tells."""
    import pyopencl as cl

    return _try(cl, _devices()[number])


@cache
def _devices() -> list[Any]:
    import pyopencl as cl

    return list(opencl_devices(cl))


def _properties(cl: Any, device: Any) -> dict[str, Any]:
    kind = "gpu" if device.type & cl.device_type.GPU else "cpu" if device.type & cl.device_type.CPU else "other"
    return {
        **names_of(device),
        "kind": kind,
        "compute_units": int(device.max_compute_units),
        "local_memory_bytes": int(device.local_mem_size),
        "global_memory_bytes": int(device.global_mem_size),
        "max_allocation_bytes": int(device.max_mem_alloc_size),
        "max_work_group_size": int(device.max_work_group_size),
        "max_work_item_sizes": [int(size) for size in device.max_work_item_sizes],
        "timer_resolution_ns": int(device.profiling_timer_resolution),
        "double_precision": "cl_khr_fp64" in device.extensions.split(),
        "compute_capability": _compute_capability(cl, device),
        "pci_address": _pci_address(cl, device),
        "uuid": "" if kind == "cpu" else _uuid(cl, device),
    }


def _uuid(cl: Any, device: Any) -> str:
    """Return the UUID that a driver with cl_khr_device_uuid gives a device, nothing for others."""
    uuid = (ctypes.c_ubyte * 16)()
    if "cl_khr_device_uuid" not in device.extensions.split():
        return ""
    try:
        # The extension module is linked with the loader, whose functions are found through it.
        ask = ctypes.CDLL(cl._cl.__file__).clGetDeviceInfo  # noqa: SLF001
    except (OSError, AttributeError):
        return ""
    size = ctypes.c_size_t(ctypes.sizeof(uuid))
    failed = ask(ctypes.c_void_p(device.int_ptr), ctypes.c_uint(_DEVICE_UUID), size, uuid, None)
    return "" if failed else str(UUID(bytes=bytes(uuid)))


def _pci_address(cl: Any, device: Any) -> str:
    """Return where NVIDIA's and AMD's GPUs are on the PCI bus, nothing for others."""
    try:
        domain, bus, slot = (int(getattr(device, f"pci_{fact}_id_nv")) for fact in ("domain", "bus", "slot"))
    except (cl.Error, AttributeError):
        pass
    else:
        # A slot is the numbers of the device and of its function in one.
        return f"{domain:04x}:{bus:02x}:{slot >> 3:02x}.{slot & 7:x}"
    try:
        place = device.topology_amd
        return f"0000:{int(place.bus) & 255:02x}:{int(place.device):02x}.{int(place.function):x}"
    except (cl.Error, AttributeError):
        return ""


def _compute_capability(cl: Any, device: Any) -> str:
    """Return NVIDIA's version of the hardware's abilities, nothing for others."""
    try:
        return f"{int(device.compute_capability_major_nv)}.{int(device.compute_capability_minor_nv)}"
    except (cl.Error, AttributeError):
        return ""


def _try(cl: Any, device: Any) -> dict[str, object]:
    import numpy as np

    try:
        context = cl.Context([device])
        queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers' remarks are no verdict
            # A binary out of pyopencl's cache would not show whether the compiler works.
            kernel = cl.Kernel(cl.Program(context, _PROBE_SOURCE).build(cache_dir=False), "probe")
        a = np.arange(ITEMS, dtype=np.float32)
        b = np.zeros_like(a)
        flags = cl.mem_flags
        source = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=a)
        # Zeros at first: memory of an earlier run could hold the right answer.
        target = cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=b)
        kernel.set_args(source, target)
        event = cl.enqueue_nd_range_kernel(queue, kernel, (ITEMS,), (WORK_GROUP,))
        # Waits for the data, and so for the kernel: its event has all times then.
        cl.enqueue_copy(queue, b, target)
        if not is_probe_result(b, a):
            return {"usable": False, "reason": "the probe kernel gave a wrong answer"}
        if event.profile.end < event.profile.start:
            return {"usable": False, "reason": "event times run backwards"}
        return {"usable": True, "reason": "", "sub_group_size": _sub_group_size(cl, device, kernel)}
    except (cl.Error, RuntimeError) as error:
        return {"usable": False, "reason": _first_line(error)}


def is_probe_result(received: NDArray[np.float32], sent: NDArray[np.float32]) -> bool:
    """Return whether the probe kernel, which reverses each work-group's values, gave the right answer."""
    return bool((received == (2 * sent + 1).reshape(-1, WORK_GROUP)[:, ::-1].ravel()).all())


def _sub_group_size(cl: Any, device: Any, kernel: Any) -> int:
    """Return the number of work-items that execute together.

    The vendor's own number first (NVIDIA's warp, AMD's wavefront), since it holds for every kernel; then
    what the compiler chose for the probe (Intel's CPU runtime: its vector width, 16 with AVX-512, 8 with
    AVX2); then, for CPUs whose driver has no sub-groups (PoCL), the native vector width in floats; else the
    preferred multiple of the work-group size. That last one is 128 on Intel's CPU runtime and 8 on PoCL,
    which says something about scheduling and nothing about joint execution. Oclgrind ends at 1: it
    executes work-items one by one.
    """
    for name in ("warp_size_nv", "wavefront_width_amd"):
        try:
            size = int(getattr(device, name))
        except (cl.Error, AttributeError):
            continue
        if size > 0:
            return size
    try:
        query = cl.kernel_sub_group_info.MAX_SUB_GROUP_SIZE_FOR_NDRANGE
        size = int(kernel.get_sub_group_info(device, query, (ITEMS,)))
        if size > 0:
            return size
    except (cl.Error, AttributeError):
        pass
    if device.type & cl.device_type.CPU:
        return max(1, int(device.native_vector_width_float))
    info = cl.kernel_work_group_info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE
    return max(1, int(kernel.get_work_group_info(info, device)))


def _load_problem(library: str) -> str:
    """Return why the dynamic linker refuses a driver library, or the empty string."""
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return _first_line(error)
    return ""


def _first_line(error: BaseException) -> str:
    """Return the line of a driver's or compiler's message that says most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The compiler's line, not pyopencl's own that the build failed.
    informative = [line for line in lines if "error" in line.lower() and not line.startswith("clBuildProgram")]
    chosen = (informative or lines or [type(error).__name__])[0]
    return chosen[:_REASON_LENGTH]
