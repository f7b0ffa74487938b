"""The machine code of kernels, built on a device without running them, and kept for the next time."""

from __future__ import annotations

import base64
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from perflex.compiled.elf import Function
from perflex.compiled.nvidia.cubin import GpuCode
from perflex.compiled.program import Argument, CompiledProgram
from perflex.devices.device import Device, anywhere
from perflex.errors import DeviceError, MeasurementError, PerflexError
from perflex.timing.isolation.backend import IsolatedBackend
from perflex.timing.key import measurement_key
from perflex.timing.launch.backend import RunLimits
from perflex.timing.launch.kept_code import keep, kept, place_of
from perflex.timing.launch.opencl_code import compiled_for
from perflex.timing.launch.request import launch_request, request_for
from perflex.timing.options import TimingOptions
from perflex.timing.results import MeasurementFailure
from perflex.timing.timer import open_backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perflex.features.sized_kernel import SizedKernel
    from perflex.machines.residency import Resources
    from perflex.progress import Progress
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.launch.request import LaunchRequest

_MOST_WORKERS = 8
# How the variables of CPU drivers begin.
_VARIABLES = ("CL_CONFIG_", "DPCPP_", "SYCL_", "POCL_")
# Kernels whose builds take as long as a process to begin.
_WORTH_A_PROCESS = 4


def compiled_code(
    jobs: Sequence[SizedKernel],
    device: TimedDevice,
    options: TimingOptions | None = None,
    progress: Progress | None = None,
) -> list[tuple[CompiledProgram, ...] | MeasurementFailure]:
    """Build kernels for a device and return their machine code, without running them.

    Code stays in perflex's cache folder, by kernel, sizes, device, driver version and variables of CPU drivers.

    Parameters
    ----------
    jobs
        The kernels.
    device
        The device. Kernels are built in processes of their own.
    options
        How long a build may take.
    progress
        Is told of each kernel before it is built.

    Returns
    -------
        For each kernel, in their order: the code of its device programs, in the order of their launches; or a
        `MeasurementFailure` of kind ``"prepare"`` for a kernel that cannot be launched or built, or whose code cannot
        be read on this device.

    Raises
    ------
    DeviceError
        The device builds nothing (a `FakeDevice`), or does not respond.
    """
    if not isinstance(device, Device):
        msg = f"{device} builds no machine code; leave out f_code features"
        raise DeviceError(msg, device=device)
    options = options or TimingOptions()
    found: list[Any] = [_kept(job, device, options) for job in jobs]
    # By what the driver compiles for: some drivers read that once in a process.
    groups: dict[str, list[tuple[int, LaunchRequest]]] = {}
    for number, job in enumerate(jobs):
        if found[number] is None:
            request = _request(job, device)
            if isinstance(request, MeasurementFailure):
                found[number] = request
            else:
                groups.setdefault(compiled_for(request, device), []).append((number, request))
    shared = _Builds(device, options, progress, len(jobs), len(jobs) - sum(map(len, groups.values())))
    workers = max(1, min(os.cpu_count() or 1, _MOST_WORKERS))
    parts = [part for group in groups.values() for part in _divided(group, workers)]
    with ThreadPoolExecutor(workers) as pool:
        try:
            # The first error ends all: without the device no other kernel would build either.
            for built in pool.map(shared.build, parts):
                for number, outcome in built:
                    found[number] = outcome
                    if not isinstance(outcome, MeasurementFailure):
                        _keep(jobs[number], device, options, outcome)
        except BaseException:  # an interrupt, say; the pool waits for its threads, and these for their processes
            shared.give_up()
            raise
    return found


@dataclass
class _Builds:
    """Builds in several processes, each of them driven by a thread."""

    device: Device
    options: TimingOptions
    progress: Progress | None
    total: int
    done: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    broken: bool = False
    backends: list[IsolatedBackend] = field(default_factory=list)

    def give_up(self) -> None:
        """End all processes, from any thread."""
        self.broken = True
        for backend in self.backends:
            backend.kill()

    def build(self, part: Sequence[tuple[int, LaunchRequest]]) -> list[tuple[int, Any]]:
        """Build kernels that one process can build; return what came of each by its number."""
        found: list[tuple[int, Any]] = []
        limits = RunLimits(self.options.limit_s, self.options.build_limit_s)
        with closing(IsolatedBackend(self.device, limits)) as backend:
            self.backends.append(backend)
            for number, request in part:
                if self.broken:
                    break
                self._tell(request.label)
                try:
                    found.append((number, _built(request, backend)))
                except BaseException:
                    self.broken = True
                    raise
        return found

    def _tell(self, label: str) -> None:
        with self.lock:
            if self.progress is not None:
                self.progress(self.done, self.total, f"building {label}")
            self.done += 1


def _divided(group: Sequence[tuple[int, LaunchRequest]], workers: int) -> Iterator[Sequence[tuple[int, LaunchRequest]]]:
    """Divide a group where that is worth another process."""
    size = max(_WORTH_A_PROCESS, -(-len(group) // workers))
    for start in range(0, len(group), size):
        yield group[start : start + size]


def _request(job: SizedKernel, device: Device) -> LaunchRequest | MeasurementFailure:
    try:
        return launch_request(job, device)
    except PerflexError as error:
        return MeasurementFailure(job.label, error.message, "prepare", error)


def _built(request: LaunchRequest, backend: IsolatedBackend) -> tuple[CompiledProgram, ...] | MeasurementFailure:
    try:
        return backend.code(request)
    except DeviceError:
        raise  # without the device no other kernel would build either
    except PerflexError as error:
        return MeasurementFailure(request.label, error.message, "prepare", error)


def _place(job: SizedKernel, device: Device, options: TimingOptions) -> Path | None:
    """Return the file for a kernel's code; None where the kernel cannot be told from others."""
    try:
        key = measurement_key(job, anywhere(device), options)
    except MeasurementError:
        return None
    # Drivers compile as their variables say, for another instruction set, say.
    variables = sorted(item for item in os.environ.items() if item[0].startswith(_VARIABLES))
    return place_of(key.kernel, key.sizes, key.device, key.driver, variables)


def _kept(job: SizedKernel, device: Device, options: TimingOptions) -> tuple[CompiledProgram, ...] | None:
    path = _place(job, device, options)
    found = None if path is None else kept(path)
    # What is of another scheme is made again.
    with suppress(ValueError, KeyError, TypeError):
        return tuple(_program(entry) for entry in found or ()) or None
    return None


def _keep(job: SizedKernel, device: Device, options: TimingOptions, programs: tuple[CompiledProgram, ...]) -> None:
    path = _place(job, device, options)
    if path is None:
        return
    content = [
        {
            "name": one.name,
            "runtime": one.runtime,
            "functions": [
                [function.name, function.address, base64.b64encode(function.code).decode(), function.symbols]
                for function in one.functions
            ],
            "arguments": [[argument.name, argument.size, argument.is_array] for argument in one.arguments],
            "gpu": _content(one.gpu) if isinstance(one.gpu, GpuCode) else None,
        }
        for one in programs
    ]
    keep(path, content)


def _content(code: GpuCode) -> dict[str, Any]:
    return {**asdict(code), "cubin": base64.b64encode(code.cubin).decode()}


def _program(entry: dict[str, Any]) -> CompiledProgram:
    functions = tuple(
        Function(name, int(place), base64.b64decode(code), tuple((int(at), str(symbol)) for at, symbol in symbols))
        for name, place, code, symbols in entry["functions"]
    )
    arguments = tuple(Argument(name, int(size), bool(is_array)) for name, size, is_array in entry["arguments"])
    return CompiledProgram(entry["name"], entry["runtime"], functions, arguments, _gpu_code(entry.get("gpu")))


def _gpu_code(entry: dict[str, Any] | None) -> GpuCode | None:
    if entry is None:
        return None
    spilt = entry["spill_bytes"]
    return GpuCode(
        str(entry["architecture"]),
        base64.b64decode(entry["cubin"]),
        str(entry["name"]),
        tuple(map(int, entry["groups"])),
        tuple(map(int, entry["work_group"])),
        None if spilt is None else int(spilt),
    )


def resource_use(
    jobs: Sequence[SizedKernel],
    device: TimedDevice,
    options: TimingOptions | None = None,
    progress: Progress | None = None,
) -> list[Resources | MeasurementFailure]:
    """Build kernels on a device, without running them."""
    found: list[Resources | MeasurementFailure] = []
    with closing(open_backend(device, options or TimingOptions())) as backend:
        for number, job in enumerate(jobs):
            if progress is not None:
                progress(number, len(jobs), f"building {job.label}")
            try:
                runnable = backend.build(request_for(job, backend.device))
            except DeviceError:
                raise  # without the device no other kernel would build either
            except PerflexError as error:
                found.append(MeasurementFailure(job.label, error.message, "prepare", error))
                continue
            # A fake device builds nothing that could take anything.
            resources: Resources | None = getattr(runnable, "resources", None)
            if resources is None:
                msg = f"{device} does not tell what kernels take; leave out features such as f_registers"
                raise DeviceError(msg, device=device)
            found.append(resources)
    return found
