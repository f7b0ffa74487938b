"""Building and launching kernels on an OpenCL device, timed by device events."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from perflex.caches import repair_pytools_cache
from perflex.devices.device import names_of, opencl_devices
from perflex.devices.listing import list_devices
from perflex.errors import DeviceError, MeasurementError
from perflex.machines.host import last_caches_bytes
from perflex.machines.residency import Resources, most_of, resources_in_log
from perflex.timing.launch.buffers import BufferPool, OpenCLMemory, returns_what_was_written
from perflex.timing.launch.building import POOL_SHARE, BoundKernel, build_failure, check_built, memory_failure
from perflex.timing.launch.launch_times import LaunchTimes
from perflex.timing.launch.opencl_code import programs_in
from perflex.timing.launch.watch import SystemWatch, clock_watch, opencl_bus_ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.compiled.program import CompiledProgram
    from perflex.devices.device import Device
    from perflex.timing.launch.buffers import BufferSlot
    from perflex.timing.launch.launch_times import Watch
    from perflex.timing.launch.plan import Code
    from perflex.timing.launch.request import LaunchRequest

repair_pytools_cache()

# The largest that GPUs have today, AMD's Infinity Cache.
_LARGEST_CACHE_BYTES = 256 * 2**20
# Said by pyopencl where a build fails.
_SAVED_SOURCE = re.compile(r"\(source saved as (.+\.cl)\)")


@lru_cache(maxsize=16)
def open_device(device: Device, *, drivers_shown: bool = False) -> tuple[Any, Any]:
    """Return the pyopencl device and a context on it, opened once per process; parameters as for `backend_of`."""
    if not drivers_shown:
        list_devices()  # shows the drivers to the loader
    try:
        candidates = [found for found in opencl_devices(cl) if tuple(names_of(found).values()) == device.names]
        if device.ordinal < len(candidates):
            chosen = candidates[device.ordinal]
            return chosen, cl.Context([chosen])
    except (cl.Error, RuntimeError) as error:
        msg = f"cannot open {device}: {error}"
        raise DeviceError(msg, device=device) from error
    msg = (
        f"{device} is not visible in this process: OpenCL platforms were queried before perflex could show "
        "the loader all drivers; call perflex first, or start again with OCL_ICD_VENDORS naming every driver"
    )
    raise DeviceError(msg, device=device)


def _compiler_message(error: Exception) -> str:
    """Return the message of a failed build, and remove the copy of the source that pyopencl leaves behind."""
    text = str(error)
    if saved := _SAVED_SOURCE.search(text):
        Path(saved[1]).unlink(missing_ok=True)
        text = text.replace(saved[0], "")
    return text


class OpenCLBackend:
    """Builds and runs kernels on one OpenCL device; one source is built once for all sizes."""

    def __init__(self, device: Device, *, drivers_shown: bool = False) -> None:
        self.device = device
        self.timer_resolution_s = device.timer_resolution_ns * 1e-9
        self._cl_device, self._context = open_device(device, drivers_shown=drivers_shown)
        self._queue = cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        memory = OpenCLMemory(self._context, self._queue)
        self._pool = BufferPool(memory, int(POOL_SHARE * device.global_memory_bytes))
        # Of a CPU the host's processors are the device: whoever else uses them makes kernels slower.
        self._watch: Watch | None = SystemWatch() if device.kind == "cpu" else self._clock_watch()
        self._sweep = _Sweep(self._cl_device, self._context, self._queue)
        self._programs: dict[Code, Any] = {}
        # NVIDIA's compiler then writes the registers of each kernel into its log.
        verbose = "cl_nv_compiler_options" in self._cl_device.extensions.split()
        self._options = ("-cl-nv-verbose",) if verbose else ()

    def build(self, request: LaunchRequest) -> OpenCLRunnable:
        """Build what was generated and checked before."""
        program = self._built(request.code, request.label)
        try:
            return self._checked(program, request)
        except cl.Error as error:
            msg = f"{request.label}: {self.device} does not tell what it built ({error})"
            raise MeasurementError(msg, kernel=request.label, device=self.device) from error

    def _checked(self, program: Any, request: LaunchRequest) -> OpenCLRunnable:
        kernels = [cl.Kernel(program, one.name) for one in request.programs]
        logged = self._logged_resources(program)
        used = [self._resources(kernel, logged.get(kernel.function_name, Resources())) for kernel in kernels]
        for kernel, one, resources in zip(kernels, request.programs, used, strict=True):
            check_built(request.label, self.device, one, self._most_items(kernel), resources)
        return OpenCLRunnable(request, kernels, self._queue, self._pool, most_of(used), self._watch, self._sweep)

    def code(self, request: LaunchRequest) -> tuple[CompiledProgram, ...]:
        """Build a kernel and return the machine code of each device program."""
        program = self._built(request.code, request.label)
        try:
            return programs_in(program, self.device, request)
        except cl.Error as error:
            msg = f"{request.label}: {self.device} does not give the code that it built ({error})"
            raise MeasurementError(msg, kernel=request.label, device=self.device) from error

    def responds(self) -> bool:
        """Return whether the device still works."""
        return returns_what_was_written(self._pool.memory)

    def close(self) -> None:
        """Give device memory back."""
        self._pool.free_all()
        if self._watch is not None:
            self._watch.close()

    def _clock_watch(self) -> Watch | None:
        bus_ids = opencl_bus_ids(self._cl_device, cl.Error)
        return clock_watch(bus_ids) if bus_ids else None

    def _built(self, code: Code, label: str) -> Any:
        if code not in self._programs:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # pyopencl turns compilers' remarks into warnings
                    self._programs[code] = cl.Program(self._context, code.source).build(
                        [*self._options, *code.options], cache_dir=False
                    )
            except (cl.Error, RuntimeError) as error:
                raise build_failure(label, self.device, _compiler_message(error), "error:") from error
        return self._programs[code]

    def _most_items(self, kernel: Any) -> int:
        """Return how many work-items of a kernel a work-group may have."""
        # NVIDIA's driver always answers 256, and launches larger work-groups (seen on an H100, driver 580.159).
        if self._options:
            return self.device.max_work_group_size
        query = cl.kernel_work_group_info.WORK_GROUP_SIZE
        return int(kernel.get_work_group_info(query, self._cl_device))

    def _resources(self, kernel: Any, logged: Resources) -> Resources:
        """Return what a kernel takes: what OpenCL asks drivers for, and what NVIDIA's compiler writes."""
        info = cl.kernel_work_group_info
        private_bytes, local_bytes = (
            int(kernel.get_work_group_info(query, self._cl_device))
            for query in (info.PRIVATE_MEM_SIZE, info.LOCAL_MEM_SIZE)
        )
        return replace(logged, private_bytes=private_bytes, local_bytes=local_bytes)

    def _logged_resources(self, program: Any) -> Mapping[str, Resources]:
        """Return what the compiler wrote of each device program, by name; nothing where it writes nothing of it."""
        if not self._options:
            return {}
        return resources_in_log(str(program.get_build_info(self._cl_device, cl.program_build_info.LOG)))


_SWEEP_SOURCE = """
__kernel void perflex_sweep(__global float4 *a) { a[get_global_id(0)] += 1.0f; }
"""


class _Sweep:
    """Drives what was there before out of caches: all work-items update memory of twice the last cache's size."""

    def __init__(self, cl_device: Any, context: Any, queue: Any) -> None:
        self._cl_device = cl_device
        self._context = context
        self._queue = queue
        self._kernel: Any = None
        self._buffer: Any = None
        self._items = 0

    def enqueue(self) -> None:
        """Sweep after all commands before."""
        if self._kernel is None:
            device = self._cl_device
            is_cpu = bool(device.type & cl.device_type.CPU)
            # GPUs' drivers tell of one of their caches, which need not be the last.
            known = last_caches_bytes() if is_cpu else _LARGEST_CACHE_BYTES
            size = min(2 * max(known, int(device.global_mem_cache_size)), int(device.max_mem_alloc_size) // 2)
            self._items = size // 16 // 1024 * 1024
            program = cl.Program(self._context, _SWEEP_SOURCE).build(cache_dir=False)
            self._kernel = cl.Kernel(program, "perflex_sweep")
            self._buffer = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, 16 * self._items)
            self._kernel.set_args(self._buffer)
        cl.enqueue_nd_range_kernel(self._queue, self._kernel, (self._items,), None)


class OpenCLRunnable(BoundKernel):
    """A built kernel with sizes.

    The time of a launch is what the device's events say, from the start to the end of execution, without
    the cost of enqueueing. A kernel of several device programs (global barriers) counts from the start of
    the first to the end of the last, gaps included, since the gaps are part of running it.
    """

    def __init__(
        self,
        request: LaunchRequest,
        kernels: list[Any],
        queue: Any,
        pool: BufferPool,
        resources: Resources,
        watch: Watch | None,
        sweep: _Sweep,
    ) -> None:
        super().__init__(request, pool, resources)
        self._kernels = kernels
        self._queue = queue
        self._sweep = sweep
        self._watch = watch

    def run(self, launches: int, *, cold: bool = False, warmups: int = 0) -> LaunchTimes:
        """Run back to back and return the device time of each launch in seconds; see `BoundKernel`."""
        if cold and launches > 1:
            # What empties caches is no part of what is watched either.
            return LaunchTimes.joined([self.run(1, cold=True, warmups=warmups * (n == 0)) for n in range(launches)])
        try:
            buffers = self._bound()
            for _ in range(warmups):
                self._launch(buffers, restored=False)
            # What restores the arrays is no part of what is watched, as far as that can be.
            self._restore(buffers)
            if cold:
                self._sweep.enqueue()
            self._queue.finish()
            before = None if self._watch is None else self._watch.reading()
            events = [self._launch(buffers, restored=n == 0) for n in range(launches)]
            self._queue.finish()
            activity = None if self._watch is None or before is None else self._watch.activity_since(before)
            return LaunchTimes(self._seconds(events), activity)
        except cl.Error as error:
            label = self._request.label
            if self._pool.memory.is_used_up(error):
                raise memory_failure(label, self._pool, error) from error
            msg = f"{label}: the launch failed ({error})"
            raise MeasurementError(msg, kernel=label, kind="run") from error

    def _seconds(self, events: list[tuple[Any, Any]]) -> tuple[float, ...]:
        """Return the time of each launch by its first and its last event."""
        times = tuple((last.profile.end - first.profile.start) * 1e-9 for first, last in events)
        if min(times) < 0:
            label = self._request.label
            msg = f"{label}: the driver's event times run backwards; use another driver"
            raise MeasurementError(msg, kernel=label, kind="run")
        return times

    def _bound(self) -> dict[BufferSlot, Any]:
        """Return this kernel's buffers and set them as its arguments."""
        buffers, request = self._buffers(), self._request
        local = {name: cl.LocalMemory(size) for name, size in request.local_arguments.items()}
        given = {name: buffers[slot] for name, (slot, _) in request.slots.items()} | local | dict(request.scalars)
        for kernel, program in zip(self._kernels, request.programs, strict=True):
            for index, name in enumerate(program.argument_names):
                kernel.set_arg(index, given[name])
        return buffers

    def _launch(self, buffers: dict[BufferSlot, Any], *, restored: bool) -> tuple[Any, Any]:
        """Enqueue all device programs in order, after what restores arrays; return the first and the last event."""
        # Commands of this queue run in order: restoring ends before the first program begins.
        if not restored:
            self._restore(buffers)
        events = [
            cl.enqueue_nd_range_kernel(self._queue, kernel, program.items, program.work_group)
            for kernel, program in zip(self._kernels, self._request.programs, strict=True)
        ]
        return events[0], events[-1]
