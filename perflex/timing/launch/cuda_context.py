"""A CUDA device in this process: its stream and memory, and what its errors mean."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.compiled.nvidia.cubin import compile_with
from perflex.devices.cuda import first_line, load_cupy, properties_of
from perflex.devices.device import Device
from perflex.errors import DeviceError, MeasurementError
from perflex.timing.launch.buffers import BufferPool, CudaMemory, returns_what_was_written
from perflex.timing.launch.building import POOL_SHARE, memory_failure
from perflex.timing.launch.cuda_code import OPTIONS
from perflex.timing.launch.watch import clock_watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perflex.compiled.nvidia.cubin import Compiled

_OUT_OF_RESOURCES = ("cudaErrorLaunchOutOfResources", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")


class CudaContext:
    """What builds and launches share.

    An illegal access or a trap loses the device for the whole process. That shows in `responds`, and whatever needs
    the device afterwards is refused.

    Attributes
    ----------
    device
        Which device.
    cupy
        The package that reaches it.
    architecture
        What code is compiled for, as ``"sm_90"``.
    stream
        Where all commands go.
    gate
        Holds the stream while commands are enqueued.
    memory, pool
        Its memory, and the buffers there.
    watch
        Tells whether its clock is lowered; None where the driver does not.

    Raises
    ------
    DeviceError
        CuPy does not load, or the device is not there.
    MissingExtraError
        CuPy is not installed.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.cupy = load_cupy()
        self._lost = ""
        self._swept: tuple[int, int] | tuple[()] = ()
        try:
            self._number = _number_of(self.cupy, device)
            self.architecture = _architecture_of(self.cupy, device)
            with self.current():
                self.stream = self.cupy.cuda.Stream(non_blocking=True)
                [hold] = self.functions(self.compiled(_SOURCE), [_HOLD_NAME])
                self.gate = StreamGate(self.cupy, hold)
        except (RuntimeError, OSError) as error:
            msg = f"cannot open {device}: {first_line(error)}"
            raise DeviceError(msg, device=device) from error
        self.memory = CudaMemory(self.cupy, self.stream)
        self.pool = BufferPool(self.memory, int(POOL_SHARE * device.global_memory_bytes))
        self.watch = clock_watch(_bus_ids(self.cupy, self._number))

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it the thread's current device in the block, which elsewhere may be another; RuntimeError if lost."""
        runtime = self.cupy.cuda.runtime
        before = runtime.getDevice()
        runtime.setDevice(self._number)
        try:
            yield
        finally:
            with suppress(RuntimeError):  # of a lost device; what is said of that counts
                runtime.setDevice(before)

    def compiled(self, source: str, options: tuple[str, ...] = (), kernels: tuple[str, ...] = ()) -> Compiled:
        """Compile CUDA C++ for the device, as `compile_cuda`, with headers of CuPy and CUDA."""
        options = (*OPTIONS, *options)
        # CuPy may find no folder of CUDA, or name this otherwise one day; most kernels need no headers.
        with suppress(RuntimeError, AttributeError):
            options = self.cupy._core.core.assemble_cupy_compiler_options(options)  # noqa: SLF001 - there is no other
        return compile_with(self.cupy.cuda.nvrtc, source, self.architecture, options, kernels)

    def functions(self, compiled: Compiled, names: Sequence[str]) -> list[Any]:
        """Load what was compiled on the current device and return kernels, CuPy's ``RawKernel``, by their names."""
        if not compiled.cubin:
            raise RuntimeError(compiled.log)
        with TemporaryDirectory(prefix="perflex-") as folder:
            # Named by its content: CuPy remembers what it loaded by path.
            file = Path(folder, hashlib.sha256(compiled.cubin).hexdigest())
            file.write_bytes(compiled.cubin)
            module = self.cupy.RawModule(path=str(file))
            return [module.get_function(compiled.names.get(name, name)) for name in names]

    def sweep(self) -> Callable[[], None]:
        """Return what enqueues writing memory of twice the L2 cache's size, so that no data of before are in caches."""
        runtime = self.cupy.cuda.runtime
        if not self._swept:
            size = 2 * int(runtime.getDeviceProperties(self._number)["l2CacheSize"])
            self._swept = self.memory.allocate(size), size
        address, size = self._swept
        return lambda: runtime.memsetAsync(address, 0, size, self.stream.ptr)

    def close(self) -> None:
        """Give device memory back, which a lost device has no more, and what watches the clock."""
        if not self._lost:
            with self.current():
                self.pool.free_all()
                if self._swept:
                    self.memory.free(self._swept[0])
                    self._swept = ()
        if self.watch is not None:
            self.watch.close()
            self.watch = None

    def require(self) -> None:
        """Refuse to go on where an earlier kernel lost the device."""
        if self._lost:
            msg = (
                f"{self.device} is lost to this process since {self._lost}; start again, and leave "
                "TimingOptions(isolate=True) on, so that such a kernel loses only its own process"
            )
            raise DeviceError(msg, device=self.device)

    def responds(self) -> bool:
        """Return whether the device still works."""
        with suppress(RuntimeError), self.current():
            return returns_what_was_written(self.memory)
        return False

    def failure(self, label: str, what: str, error: Exception, kind: str) -> MeasurementError:
        """Return what happened to a kernel as an error; remember it where it lost the device."""
        text = first_line(error)
        if self.memory.is_used_up(error):
            return memory_failure(label, self.pool, text)
        if any(word in text for word in _OUT_OF_RESOURCES):
            msg = f"{label}: needs more registers than {self.device} has for a work-group ({text}); make it smaller"
            return MeasurementError(msg, kernel=label, device=self.device, kind="prepare")
        if not self.responds():
            self._lost = f"{label} ({text})"
        return MeasurementError(f"{label}: {what} ({text})", kernel=label, device=self.device, kind=kind)


def _number_of(cupy: Any, device: Device) -> int:
    """Return CUDA's number of a device in this process."""
    # By names: CUDA_VISIBLE_DEVICES gives devices other numbers in other processes.
    count = int(cupy.cuda.runtime.getDeviceCount())
    same = [number for number in range(count) if Device(**properties_of(cupy, number)).names == device.names]
    if device.ordinal >= len(same):
        msg = f"{device} is not visible in this process; CUDA_VISIBLE_DEVICES may hide it"
        raise DeviceError(msg, device=device)
    return same[device.ordinal]


def _architecture_of(cupy: Any, device: Device) -> str:
    """Return what code is compiled for: newer GPUs than NVRTC knows run that of older ones of their generation."""
    own = int(device.compute_capability.replace(".", ""))
    known = [number for number in cupy.cuda.nvrtc.getSupportedArchs() if own // 10 * 10 <= number <= own]
    return f"sm_{max(known, default=own)}"


def _bus_ids(cupy: Any, number: int) -> tuple[str, ...]:
    """Return CUDA's name of a device's place on the PCI bus; nothing where the driver does not tell."""
    try:
        return (str(cupy.cuda.runtime.deviceGetPCIBusId(number)),)
    except RuntimeError:
        return ()


# Should the host have to wait for the stream while it holds it, the stream goes on by itself and says so.
_LIMIT_NS = 200_000_000
_HOLD_NAME = "perflex_hold"
_SOURCE = f"""
extern "C" __global__ void {_HOLD_NAME}(volatile int *state, unsigned long long limit_ns)
{{
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do
  {{
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  }}
  while (state[0] == 0 && now - start < limit_ns);
  if (state[0] == 0)
    state[1] = 1;
}}
"""


class StreamGate:
    """Holds streams of one device by a kernel of it; a RuntimeError where the driver fails."""

    def __init__(self, cupy: Any, kernel: Any) -> None:
        self._kernel = kernel
        # Page-locked memory has the same address on the device. Whether to go on, and whether the stream did not wait.
        self._memory = cupy.cuda.alloc_pinned_memory(2 * np.dtype(np.int32).itemsize)
        self._state = np.frombuffer(self._memory, np.int32, 2)
        self._address = np.uintp(self._memory.ptr)
        with self.held():  # loads the kernel, which may not happen while a stream is held
            pass
        cupy.cuda.runtime.deviceSynchronize()

    @property
    def gave_up(self) -> bool:
        """Whether the last held stream, whose commands are done, went on before the host let it."""
        return bool(self._state[1])

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the current stream: what is enqueued in the block runs after it."""
        self._state[:] = 0
        try:
            self._kernel((1,), (1,), (self._address, np.uint64(_LIMIT_NS)))
            yield
        finally:
            self._state[0] = 1
