"""What compilers make of kernels: built on a device without running them, and kept for the next time."""

from __future__ import annotations

import atexit
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from perflex.compiled.elf import Function  # noqa: TC001 - msgspec reads the annotations
from perflex.compiled.nvidia.cubin import GpuCode  # noqa: TC001
from perflex.compiled.program import Argument, CompiledProgram
from perflex.devices.device import Device, anywhere
from perflex.errors import DeviceError, MeasurementError, PerflexError
from perflex.machines.residency import Resources
from perflex.timing.isolation.backend import IsolatedBackend
from perflex.timing.key import measurement_key
from perflex.timing.launch.backend import RunLimits
from perflex.timing.launch.kept_code import keep, kept, key_of
from perflex.timing.launch.opencl_code import compiled_for
from perflex.timing.launch.request import request_for
from perflex.timing.options import TimingOptions
from perflex.timing.results import MeasurementFailure
from perflex.timing.timer import open_backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perflex.features.sized_kernel import SizedKernel
    from perflex.progress import Progress
    from perflex.timing.launch.backend import TimedDevice

_MOST_WORKERS = 8
# How the variables of CPU drivers begin.
_VARIABLES = ("CL_CONFIG_", "DPCPP_", "SYCL_", "POCL_")
# Kernels whose builds take as long as a process to begin.
_WORTH_A_PROCESS = 4

_What = Literal["code", "resources"]
# Processes that wait for more kernels, and for how many they built, by device and what drivers read once in a process.
_idle: dict[tuple[Any, ...], tuple[IsolatedBackend, int]] = {}
_MOST_BUILT = 500


def _end_idle() -> None:
    while _idle:
        _idle.popitem()[1][0].close()


atexit.register(_end_idle)
# They are the parent's.
os.register_at_fork(after_in_child=_idle.clear)


def compiled_code(
    jobs: Sequence[SizedKernel],
    device: TimedDevice,
    options: TimingOptions | None = None,
    progress: Progress | None = None,
) -> list[tuple[CompiledProgram, ...] | MeasurementFailure]:
    """Build kernels for a device and return their machine code, without running them.

    Code is kept in the store, by kernel, sizes, device, driver version and variables of CPU drivers.

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
    return _built(jobs, device, "code", options or TimingOptions(), progress)


def resource_use(
    jobs: Sequence[SizedKernel],
    device: TimedDevice,
    options: TimingOptions | None = None,
    progress: Progress | None = None,
) -> list[Resources | MeasurementFailure]:
    """Build kernels on a device, without running them, and return what they take; it is kept as `compiled_code`."""
    return _built(jobs, device, "resources", options or TimingOptions(), progress)


def _built(
    jobs: Sequence[SizedKernel], device: TimedDevice, what: _What, options: TimingOptions, progress: Progress | None
) -> list[Any]:
    """Return machine code of kernels or what they take, or why there is none: kept before, or built side by side."""
    keys = [_key(job, device, what, options) for job in jobs]
    found: list[Any] = [_kept(key, what) for key in keys]
    # By what the driver compiles for: some drivers read that once in a process.
    groups: dict[str, list[tuple[int, Any]]] = {}
    for number, job in enumerate(jobs):
        if found[number] is not None:
            continue
        try:
            request: Any = request_for(job, device)
        except PerflexError as error:
            found[number] = _failure(job.label, error)
            continue
        group = compiled_for(request, device) if isinstance(device, Device) and what == "code" else ""
        groups.setdefault(group, []).append((number, request))
    builds = _Builds(device, what, options, progress, len(jobs), len(jobs) - sum(map(len, groups.values())))
    # A GPU may be set to take one process at a time; code is compiled without it.
    aside = builds.isolated and (what == "code" or getattr(device, "kind", "") == "cpu")
    workers = min(os.cpu_count() or 1, _MOST_WORKERS) if aside else 1
    # A group is divided where that is worth another process.
    parts = [
        group[start : start + size]
        for group in groups.values()
        for size in [max(_WORTH_A_PROCESS, -(-len(group) // workers))]
        for start in range(0, len(group), size)
    ]
    with ThreadPoolExecutor(workers) as pool:
        try:
            # The first error ends all: without the device no other kernel would build either.
            for number, outcome in chain.from_iterable((pool.map if aside else map)(builds.build, parts)):
                found[number] = outcome
                if not isinstance(outcome, MeasurementFailure):
                    keep(keys[number], outcome)
        except BaseException:  # an interrupt, say; the pool waits for its threads, and these for their processes
            builds.give_up()
            raise
    return found


@dataclass
class _Builds:
    """Builds in processes, each of them driven by a thread; or in this process, where that is asked for."""

    device: TimedDevice
    what: _What
    options: TimingOptions
    progress: Progress | None
    total: int
    done: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    broken: bool = False
    backends: list[IsolatedBackend] = field(default_factory=list)

    @property
    def isolated(self) -> bool:
        """Whether kernels are built in processes of their own."""
        return isinstance(self.device, Device) and (self.what == "code" or self.options.isolate)

    def give_up(self) -> None:
        """End all processes, from any thread."""
        self.broken = True
        for backend in self.backends:
            backend.kill()

    def build(self, part: Sequence[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """Build kernels that one process can build; return what came of each by its number."""
        found: list[tuple[int, Any]] = []
        with self._opened(part[0][1]) as backend:
            for number, request in part:
                if self.broken:
                    break
                with self.lock:
                    if self.progress is not None:
                        self.progress(self.done, self.total, f"building {request.label}")
                    self.done += 1
                try:
                    found.append((number, self._outcome(backend, request)))
                except BaseException:
                    self.broken = True
                    raise
        return found

    @contextmanager
    def _opened(self, request: Any) -> Iterator[Any]:
        """Give what builds a part, whose kernels are compiled for the same as the first."""
        if not isinstance(self.device, Device) or not self.isolated:
            with closing(open_backend(self.device, self.options)) as backend:
                yield backend
            return
        limits = RunLimits(self.options.limit_s, self.options.build_limit_s)
        place = self.device, compiled_for(request, self.device) if self.what == "code" else "", *_variables()
        waiting = _idle.pop(place, None)
        isolated, built = (IsolatedBackend(self.device, limits), 0) if waiting is None else waiting
        isolated.limits = limits
        self.backends.append(isolated)
        try:
            yield isolated
        except BaseException:
            isolated.close()
            raise
        # One process waits for the next build, which else would take seconds to begin. It keeps what it has built.
        mine = isolated, built + self.total
        # One step: threads put theirs here, too.
        if built > _MOST_BUILT or _idle.setdefault(place, mine) is not mine:
            isolated.close()

    def _outcome(self, backend: Any, request: Any) -> Any:
        """Return machine code, what the kernel takes, or why there is none."""
        try:
            if self.what == "code":
                return backend.code(request)
            # A fake device builds nothing that could take anything.
            resources = getattr(backend.build(request), "resources", None)
        except PerflexError as error:
            return _failure(request.label, error)
        if resources is None:
            msg = f"{self.device} does not tell what kernels take; leave out features such as f_registers"
            raise DeviceError(msg, device=self.device)
        return resources


def _failure(label: str, error: PerflexError) -> MeasurementFailure:
    """Return what an error means for one kernel."""
    if isinstance(error, DeviceError):
        raise error  # without the device no other kernel would build either
    return MeasurementFailure(label, error.message, "prepare", error)


def _key(job: SizedKernel, device: TimedDevice, what: _What, options: TimingOptions) -> str:
    """Return under what it is kept; empty where a kernel cannot be told from others, or the device is a user's own."""
    if not isinstance(device, Device):
        return ""
    try:
        key = measurement_key(job, anywhere(device), options)
    except MeasurementError:
        return ""
    return key_of(what, key.kernel, key.sizes, key.device, key.driver, _variables())


def _variables() -> list[tuple[str, str]]:
    """Return what drivers are told by variables: they compile for another instruction set, say."""
    return sorted(item for item in os.environ.items() if item[0].startswith(_VARIABLES))


@dataclass(frozen=True)
class _KeptProgram:
    """A `CompiledProgram` of a device, which is none for a GPU of AMD's."""

    name: str
    runtime: str
    functions: tuple[Function, ...]
    arguments: tuple[Argument, ...]
    gpu: GpuCode | None


def _kept(key: str, what: _What) -> tuple[CompiledProgram, ...] | Resources | None:
    if what == "resources":
        return kept(key, Resources)
    found = kept(key, tuple[_KeptProgram, ...])
    return None if found is None else tuple(CompiledProgram(**vars(one)) for one in found)
