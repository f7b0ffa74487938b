"""Building and launching kernels on a CUDA device through CuPy, timed by CUDA events."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from perflex.errors import MeasurementError
from perflex.machines.residency import Resources, most_of, resources_in_log
from perflex.timing.launch.building import BoundKernel, build_failure, check_built
from perflex.timing.launch.cuda_code import programs_in
from perflex.timing.launch.cuda_context import CudaContext
from perflex.timing.launch.launch_times import LaunchTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from perflex.compiled.nvidia.cubin import Compiled
    from perflex.compiled.program import CompiledProgram
    from perflex.devices.device import Device
    from perflex.timing.launch.buffers import BufferSlot
    from perflex.timing.launch.plan import Code
    from perflex.timing.launch.request import LaunchRequest

# Enqueues what empties caches.
_Sweep: TypeAlias = "Callable[[], None]"
# A stream takes about a thousand commands before the host has to wait, which it must not while the stream is held.
_MOST_COMMANDS = 400
# How often launches are enqueued that the host was too slow for.
_TRIES = 5


class CudaBackend:
    """Builds and runs kernels on one CUDA device; one source is built once for all sizes."""

    def __init__(self, device: Device) -> None:
        self.device = device
        # That of CUDA events.
        self.timer_resolution_s = device.timer_resolution_ns * 1e-9
        self._context = CudaContext(device)
        self._compiled: dict[Code, Compiled] = {}
        self._functions: dict[Code, list[Any]] = {}

    def build(self, request: LaunchRequest) -> CudaRunnable:
        """Build what was generated and checked before."""
        self._context.require()
        try:
            with self._context.current():
                return self._loaded(request)
        except RuntimeError as error:
            raise self._context.failure(request.label, "cannot load what was built", error, "prepare") from error

    def _loaded(self, request: LaunchRequest) -> CudaRunnable:
        code, compiled = request.code, self._compiled_for(request)
        if code not in self._functions:
            self._functions[code] = self._context.functions(compiled, [program.name for program in request.programs])
        functions = self._functions[code]
        # What a launch may add to a kernel's own shared memory; without it, drivers stop at 48 KiB. It belongs to the
        # function, which launches of other sizes share.
        for function in functions if request.local_arguments else ():
            wanted = max(_dynamic_bytes(request), function.max_dynamic_shared_size_bytes)
            function.max_dynamic_shared_size_bytes = wanted
        facts = [dict(function.attributes) for function in functions]
        for program, known in zip(request.programs, facts, strict=True):
            most_items = int(known["max_threads_per_block"])
            check_built(request.label, self.device, program, most_items, _resources(None, known))
        told = resources_in_log(compiled.log)
        resources = most_of(
            _resources(told.get(compiled.names.get(program.name, program.name)), known)
            for program, known in zip(request.programs, facts, strict=True)
        )
        return CudaRunnable(request, functions, self._context, resources)

    def code(self, request: LaunchRequest) -> tuple[CompiledProgram, ...]:
        """Compile what was generated and return the machine code of each device program, without loading it."""
        self._context.require()
        return programs_in(self._compiled_for(request), request, self._context.architecture)

    def responds(self) -> bool:
        """Return whether the device still works: an illegal access loses it for the process."""
        return self._context.responds()

    def close(self) -> None:
        """Give device memory back."""
        self._context.close()

    def _compiled_for(self, request: LaunchRequest) -> Compiled:
        code = request.code
        if code not in self._compiled:
            compiled = self._context.compiled(code.source, code.options, code.kernels)
            if not compiled.cubin:
                raise build_failure(request.label, self.device, compiled.log, "error")
            self._compiled[code] = compiled
        return self._compiled[code]


def _resources(logged: Resources | None, facts: Mapping[str, int]) -> Resources:
    """Return what a device program takes: what the driver knows, and spills, which only the compiler tells."""
    private_bytes = int(facts["local_size_bytes"])
    spill_bytes = logged.spill_bytes if logged is not None else None if private_bytes else 0
    return Resources(int(facts["num_regs"]), private_bytes, spill_bytes, int(facts["shared_size_bytes"]))


def _dynamic_bytes(request: LaunchRequest) -> int:
    """Return the shared memory that a launch adds: all arrays of that kind begin at one place."""
    return max(request.local_arguments.values(), default=0)


class CudaRunnable(BoundKernel):
    """A built kernel with sizes.

    All launches of a call are enqueued while the stream is held, so that they run back to back however slow the host
    is. A kernel that updates arrays has an event before and after each launch, between the copies that restore them;
    others have one before the first and one after the last launch, and each launch takes the mean. Several device
    programs (global barriers) count from the start of the first to the end of the last, gaps included.
    """

    def __init__(
        self, request: LaunchRequest, functions: Sequence[Any], context: CudaContext, resources: Resources
    ) -> None:
        super().__init__(request, context.pool, resources)
        self._functions = functions
        self._context = context
        self._ran = False

    def run(self, launches: int, *, cold: bool = False, warmups: int = 0) -> LaunchTimes:
        """Run back to back and return the device time of each launch in seconds; see `BoundKernel`."""
        self._context.require()
        watch = self._context.watch
        try:
            with self._context.current():
                buffers = self._buffers()
                for count in self._portions(warmups, cold=False):
                    self._run(count, buffers, None)
                before = None if watch is None else watch.reading()
                sweep = self._context.sweep() if cold else None
                portions = self._portions(launches, cold=cold)
                times = tuple(seconds for count in portions for seconds in self._run(count, buffers, sweep))
        except RuntimeError as error:
            raise self._context.failure(self._request.label, "the launch failed", error, "run") from error
        return LaunchTimes(times, None if watch is None or before is None else watch.activity_since(before))

    def results(self) -> dict[str, np.ndarray[tuple[int], np.dtype[Any]]]:
        """Return what a launch writes; see `BoundKernel`."""
        self._context.require()
        with self._context.current():
            return super().results()

    def _portions(self, launches: int, *, cold: bool) -> Iterator[int]:
        """Divide launches so that a stream takes the commands of each portion without making the host wait."""
        each = len(self._functions) + (len(self._restored) + 3 if self._restored or cold else 0)
        most = max(1, _MOST_COMMANDS // each)
        for first in range(0, launches, most):
            yield min(most, launches - first)

    def _run(self, launches: int, buffers: dict[BufferSlot, Any], sweep: _Sweep | None) -> list[float]:
        """Run launches that a stream takes; once more where the host was too slow, for then they did not wait."""
        for _ in range(_TRIES):
            held, times = self._ran, self._run_once(launches, buffers, sweep)
            if not (held and self._context.gate.gave_up):
                return times
        label = self._request.label
        msg = (
            f"{label}: the host took too long to enqueue {launches} launches, {_TRIES} times one after another; "
            "time it while the host does nothing else"
        )
        raise MeasurementError(msg, kernel=label, kind="run")

    def _run_once(self, launches: int, buffers: dict[BufferSlot, Any], sweep: _Sweep | None) -> list[float]:
        # The first launch may have to load code, which waits for a device that is held.
        hold = self._context.gate.held() if self._ran else nullcontext()
        each = 1 if self._restored or sweep else launches
        with self._context.stream:
            with hold:
                pairs = [self._timed(each, buffers, sweep) for _ in range(launches // each)]
            self._context.stream.synchronize()
        self._ran = True
        # CUDA gives milliseconds.
        elapsed = self._context.cupy.cuda.get_elapsed_time
        return [elapsed(first, last) * 1e-3 / each for first, last in pairs for _ in range(each)]

    def _timed(self, launches: int, buffers: dict[BufferSlot, Any], sweep: _Sweep | None) -> tuple[Any, Any]:
        """Enqueue what restores arrays and empties caches, and launches between two events."""
        self._restore(buffers)
        if sweep is not None:
            sweep()
        event = self._context.cupy.cuda.Event
        first, last = event(), event()
        first.record(self._context.stream)
        for _ in range(launches):
            for function, program in zip(self._functions, self._request.programs, strict=True):
                arguments = self._arguments(program.argument_names, buffers)
                function(program.groups, program.work_group, arguments, shared_mem=_dynamic_bytes(self._request))
        last.record(self._context.stream)
        return first, last

    def _arguments(self, names: Sequence[str], buffers: dict[BufferSlot, Any]) -> tuple[Any, ...]:
        scalars, slots = self._request.scalars, self._request.slots
        return tuple(scalars[name] if name in scalars else np.uintp(buffers[slots[name][0]]) for name in names)
