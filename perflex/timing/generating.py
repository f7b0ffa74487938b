"""Generating kernels' code in the workers of an executor, ahead of their builds: it takes longer than most builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from perflex.devices.device import Device
from perflex.errors import PerflexError
from perflex.features.many import EXECUTOR_FAULTS
from perflex.features.sized_kernel import SizedKernel
from perflex.timing.launch.request import LaunchRequest, launch_request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor, Future

    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.rounds import Entry

_Generated: TypeAlias = "LaunchRequest | PerflexError"


class GeneratedAhead:
    """Code of kernels, in the making.

    Parameters
    ----------
    entries
        Kernels to be built, in this order.
    device
        Where; only for a `Device` code is generated.
    executor
        Whose workers generate it; with None nothing is done ahead.
    """

    def __init__(self, entries: Sequence[Entry], device: TimedDevice, executor: Executor | None) -> None:
        self._pending: dict[int, tuple[Future[list[_Generated]], int]] = {}
        if executor is None or not isinstance(device, Device):
            return
        # One kernel at all its sizes goes to one worker: its code is the same.
        by_kernel: dict[int, list[tuple[Entry, SizedKernel]]] = {}
        for entry in entries:
            if isinstance(entry.job, SizedKernel):
                by_kernel.setdefault(id(entry.job.kernel), []).append((entry, entry.job))
        try:
            for group in by_kernel.values():
                future = executor.submit(_generate, [job for _, job in group], device)
                self._pending |= {id(entry): (future, place) for place, (entry, _) in enumerate(group)}
        except EXECUTOR_FAULTS:
            return  # what was not handed over is generated here

    def take(self, entry: Entry) -> PerflexError | None:
        """Give an entry its code if that was made; return why it cannot be."""
        if id(entry) not in self._pending:
            return None
        future, place = self._pending.pop(id(entry))
        try:
            found = future.result()[place]
        except EXECUTOR_FAULTS:
            return None  # building generates it here
        if isinstance(found, PerflexError):
            return found
        entry.job = found
        return None


def _generate(jobs: Sequence[SizedKernel], device: Device) -> list[_Generated]:
    """Generate code in a worker, which may be another process."""
    made: list[_Generated] = []
    for job in jobs:
        try:
            made.append(launch_request(job, device))
        except PerflexError as error:
            made.append(error)
    return made
