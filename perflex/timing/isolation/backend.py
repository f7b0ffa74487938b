"""A backend whose kernels are built and run in a process of their own, so that they can crash and hang."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from perflex.child_process import ChildLostError, RemoteProcess
from perflex.errors import DeviceError, MeasurementError, PerflexError
from perflex.timing.isolation import worker
from perflex.timing.isolation.affinity import affinity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perflex.compiled.program import CompiledProgram
    from perflex.devices.device import Device
    from perflex.machines.residency import Resources
    from perflex.timing.launch.backend import RunLimits
    from perflex.timing.launch.launch_times import LaunchTimes
    from perflex.timing.launch.plan import Code
    from perflex.timing.launch.request import LaunchRequest

_Result = TypeVar("_Result")

_START_LIMIT_S = 60.0


class WorkerProcess:
    """A process that builds and runs kernels on one device, whose workers stay on their processors if they can.

    Parameters
    ----------
    device
        Where it runs kernels.

    Raises
    ------
    DeviceError
        No process can be started.
    """

    def __init__(self, device: Device) -> None:
        from perflex.devices.listing import list_devices

        list_devices()  # finds the drivers that work; the process inherits their list
        self.device = device
        self._ready = False
        try:
            self._process = RemoteProcess(affinity_of(device, isolate=True).variables)
        except OSError as error:
            raise self._not_started(str(error)) from error

    @property
    def alive(self) -> bool:
        """Whether the process can be asked anything."""
        return self._process.alive

    def call(self, function: Callable[..., _Result], *arguments: object, limit_s: float) -> _Result:
        """Have a function of `perflex.timing.isolation.worker` called there and return its result."""
        self._open_device()
        try:
            return self._process.call(function, *arguments, limit_s=limit_s)
        except PerflexError:
            # The device may be lost to that process.
            with suppress(ChildLostError):
                if not self._process.call(worker.responds, limit_s=_START_LIMIT_S):
                    self.end()
            raise

    def end(self) -> None:
        """End the process: one that is idle is given the time to end by itself, one that still starts is not."""
        self._process.end(at_once=not self._ready)

    def kill(self) -> None:
        """Kill the process, from any thread; who waits for its answer learns of it, and ends what is left."""
        self._process.kill()

    def _open_device(self) -> None:
        """Have the process open the device; it has been starting since this object was made."""
        if self._ready:
            return
        try:
            self._process.call(worker.open_device, self.device, limit_s=_START_LIMIT_S)
        except ChildLostError as lost:
            raise self._not_started(lost.reason) from lost
        except PerflexError:
            self.end()
            raise
        self._ready = True

    def _not_started(self, reason: str) -> DeviceError:
        msg = (
            f"the process that runs kernels on {self.device} did not start: {reason}; "
            "TimingOptions(isolate=False) runs them without one"
        )
        return DeviceError(msg, device=self.device)


# What a run may take besides the launches: first the driver's own work at the first launch, later stalls of the host.
_FIRST_S = 3.0
_LATER_S = 5.0
# Buffers are filled before the launch, and no host is slower than this.
_FILL_BYTES_PER_S = 5e8
# A launch that takes so many times as long as the fastest before hangs.
_TIMES_LONGER = 20.0


class IsolatedBackend:
    """Builds and runs kernels on one device in a process of its own.

    Code is generated here, so that kernels need not cross process borders and the other process starts without
    loopy. When that process is lost, the kernel at work is at fault and fails; a new process starts with the next
    kernel, and the others are built there again when they are next run.
    """

    def __init__(self, device: Device, limits: RunLimits) -> None:
        self.device = device
        self.timer_resolution_s = device.timer_resolution_ns * 1e-9
        self.limits = limits
        self._worker: WorkerProcess | None = None
        self._numbers = 0
        self._fatal: dict[Code, tuple[str, str]] = {}
        self._endless: list[LaunchRequest] = []

    def build(self, request: LaunchRequest) -> IsolatedRunnable:
        """Build there what was generated and checked here."""
        for other in self._endless:
            if other.code == request.code and _at_least(request.sizes, other.sizes):
                raise _failure(request.label, "hang", f"not tried: {other.label} is the same code and does not end")
        return IsolatedRunnable(self, request)

    def responds(self) -> bool:
        """Return True: what lost the device ends with its process, and the next kernel gets another."""
        return True

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def kill(self) -> None:
        """Kill the process at work, from any thread; who waits for its answer learns of it."""
        if self._worker is not None:
            self._worker.kill()

    def worker(self) -> WorkerProcess:
        """Return the process at work, a new one if there is none."""
        if self._worker is not None and not self._worker.alive:
            self.close()
        if self._worker is None:
            self._worker = WorkerProcess(self.device)
        return self._worker

    def place(self, request: LaunchRequest) -> _Place:
        """Have a kernel built."""
        self._numbers += 1
        process = self.worker()
        resources = self._building(process, request, worker.build, self._numbers, request)
        return _Place(process, self._numbers, resources)

    def code(self, request: LaunchRequest) -> tuple[CompiledProgram, ...]:
        """Have a kernel built there and return its machine code."""
        return self._building(self.worker(), request, worker.code, request)

    def _building(
        self, process: WorkerProcess, request: LaunchRequest, function: Callable[..., _Result], *arguments: object
    ) -> _Result:
        """Call what builds a source; one that ended a process once is not tried again for other sizes."""
        if request.code in self._fatal:
            raise _failure(request.label, *self._fatal[request.code])
        try:
            return process.call(function, *arguments, limit_s=self.limits.build_s)
        except ChildLostError as lost:
            doing = "building it" + (" does not end" if lost.kind == "hang" else " crashes the compiler")
            self._fatal[request.code] = lost.kind, f"{doing} ({lost.reason})"
            raise _failure(request.label, *self._fatal[request.code]) from lost

    def remember_endless(self, request: LaunchRequest) -> None:
        """Keep that a kernel does not end with some sizes: with larger ones it is not worth another time limit."""
        self._endless.append(request)


class IsolatedRunnable:
    """A kernel with sizes, built in the process that runs kernels."""

    def __init__(self, backend: IsolatedBackend, request: LaunchRequest) -> None:
        self._backend = backend
        self._request = request
        self._fill_s = sum(request.slot_bytes.values()) / _FILL_BYTES_PER_S
        self._build()

    def _build(self) -> None:
        self._place = self._backend.place(self._request)
        self._fastest_s: float | None = None  # the first launch in a process does more than later ones

    @property
    def resources(self) -> Resources:
        """What the kernel takes of the device, as far as the driver tells."""
        return self._place.resources

    def run(self, launches: int, *, cold: bool = False, warmups: int = 0) -> LaunchTimes:
        """Run back to back and return the device time of each launch in seconds, taken in the other process.

        It is built anew if another process began since.
        """
        self._require_worker()
        start = time.monotonic()
        times = self._called(launches + warmups, worker.run, launches, cold, warmups)
        each = (time.monotonic() - start) / (launches + warmups)
        self._fastest_s = each if self._fastest_s is None else min(each, self._fastest_s)
        return times

    def results(self) -> dict[str, Any]:
        """Return what a launch writes; see `BoundKernel`."""
        self._require_worker()
        return self._called(1, worker.results)

    def _require_worker(self) -> None:
        if self._place.worker is not self._backend.worker():
            self._build()
            self._called(1, worker.run, 1, False, 0)  # what only a first launch does is no part of a time

    def _called(self, launches: int, function: Callable[..., _Result], *arguments: object) -> _Result:
        """Call a function of this kernel, which launches it so many times."""
        place = self._place
        try:
            return place.worker.call(function, place.number, *arguments, limit_s=self._limit(launches))
        except ChildLostError as lost:
            doing = "crashes its process"
            if lost.kind == "hang":
                doing = "does not end; TimingOptions(limit_s=...) allows more if the kernel is only slow"
                self._backend.remember_endless(self._request)
            raise _failure(self._request.label, lost.kind, f"{doing} ({lost.reason})") from lost

    def _limit(self, launches: int) -> float:
        hard = self._backend.limits.launch_s
        if self._fastest_s is None:
            return _FIRST_S + self._fill_s + launches * hard
        return _LATER_S + self._fill_s + launches * min(hard, _TIMES_LONGER * self._fastest_s)


@dataclass(frozen=True, eq=False)
class _Place:
    """Where a built kernel is found, and what it takes there."""

    worker: WorkerProcess
    number: int
    resources: Resources


def _at_least(sizes: Mapping[str, int], others: Mapping[str, int]) -> bool:
    return all(sizes.get(name, value) >= value for name, value in others.items())


def _failure(label: str, kind: str, reason: str) -> MeasurementError:
    return MeasurementError(f"{label}: {reason}", kernel=label, kind=kind)
