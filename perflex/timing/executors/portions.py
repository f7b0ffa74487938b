"""Portions of measuring work and their results, as plain data that goes to other processes and machines."""

from __future__ import annotations

import math
import socket
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from perflex.devices.device import Device, identity
from perflex.errors import DeviceError, ExecutorError, PerflexError
from perflex.timing.device_lock import device_lock
from perflex.timing.isolation.affinity import affinity_of
from perflex.timing.measuring import open_backend
from perflex.timing.rounds import Entry, Session, start, time_in_rounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.sized_kernel import SizedKernel
    from perflex.store.records import Sample
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.options import TimingOptions

_Entry = TypeVar("_Entry")

# A portion is what is lost at most when a worker dies, and has to be large enough for rounds to interleave kernels.
_MOST_KERNELS = 24
_FEWEST_KERNELS = 8


@dataclass(frozen=True)
class Item:
    """A kernel to be timed.

    Attributes
    ----------
    request
        What the device's backend builds it from, see `request_for`.
    samples
        What is known of it.
    """

    request: SizedKernel | LaunchRequest
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class Portion:
    """Kernels that are timed together in rounds by one worker.

    Attributes
    ----------
    version
        Version of perflex that sends it.
    device
        As the sender knows it.
    options
        How kernels are timed.
    session
        Name that the portion's samples get: a new one each time it is sent.
    affinity
        The setting of the device's processors that samples are kept under, see `Affinity`.
    items
        The kernels.
    """

    version: str
    device: TimedDevice
    options: TimingOptions
    session: str
    affinity: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class ItemResult:
    """The new samples of a kernel, and the kind of failure and the error if it failed."""

    samples: tuple[Sample, ...] = ()
    failure: tuple[str, PerflexError] | None = None


@dataclass(frozen=True)
class PortionResult:
    """The result of a portion.

    Attributes
    ----------
    items
        One result per item.
    error
        Why the portion ended early, as where the device was lost.
    unfit
        Whether the error is that this worker's times cannot be mixed with the others'; another one may do.
    worker
        Its address where the executor knows one.
    """

    items: tuple[ItemResult, ...]
    error: PerflexError | None = None
    unfit: bool = False
    worker: str = ""


def divide(entries: Sequence[_Entry], workers: int) -> list[list[_Entry]]:
    """Divide kernels into portions of about equal numbers.

    Neighbours stay together: they are often one kernel with several sizes, which is then built once, and not tried
    again with larger sizes once it hung.
    """
    if not entries:
        return []
    # As many as workers, so that none is idle, unless portions became too small for rounds.
    for_all = min(workers, len(entries) // _FEWEST_KERNELS)
    number = max(1, math.ceil(len(entries) / _MOST_KERNELS), for_all)
    bounds = [round(index * len(entries) / number) for index in range(number + 1)]
    return [list(entries[first:last]) for first, last in pairwise(bounds)]


def time_portion(portion: Portion) -> PortionResult:
    """Time the kernels of a portion in rounds on a device of this machine that is free; nothing is kept here.

    Errors are returned: what they were raised from, a driver's exception, say, may not be known where they go.
    """
    session = Session(portion.options, portion.session)
    entries = [_entry(item) for item in portion.items]
    error: PerflexError | None = None
    unfit = True
    try:
        require_version(portion.version)
        devices = devices_here(portion.device)
        _require_affinity(devices[0], portion)
        unfit = False
        with device_lock(*devices) as device:
            _time(entries, device, session)
    except PerflexError as raised:
        error = raised.alone()
    items = tuple(_result(entry, portion.session) for entry in entries)
    return PortionResult(items, error, unfit=error is not None and unfit)


def _time(entries: list[Entry], device: TimedDevice, session: Session) -> None:
    with closing(open_backend(device, session.options)) as backend:
        for entry in entries:
            if not entry.is_known(session.options):
                start(entry, backend, session)
        time_in_rounds(entries, session)


def require_version(version: str) -> None:
    """Raise an ExecutorError where another version of perflex sent the work."""
    from perflex.version import __version__

    if version != __version__:
        msg = (
            f"the worker on {socket.gethostname()} has perflex {__version__}, the client {version}; "
            "install the same version on both"
        )
        raise ExecutorError(msg)


def _require_affinity(device: TimedDevice, portion: Portion) -> None:
    setting = affinity_of(device, isolate=portion.options.isolate).setting
    if setting != portion.affinity:
        msg = (
            f"processors of {device} are set by {setting or 'nothing'} on {socket.gethostname()}, elsewhere by "
            f"{portion.affinity or 'nothing'}: times of both cannot be mixed; start all workers in the same way"
        )
        raise DeviceError(msg, device=device)


def devices_here(wanted: TimedDevice) -> list[TimedDevice]:
    """Return this machine's devices that will do for the client's, as they are called here; at least one."""
    from perflex.devices.listing import describe, list_devices

    if not isinstance(wanted, Device):
        return [wanted]
    host = socket.gethostname()
    # All names but the driver's, which is a fault of its own.
    named = [info for info in list_devices() if info.device.names[:3] == wanted.names[:3]]
    # One with a host is that very device.
    if wanted.host:
        named = [info for info in named if identity(info.device) == identity(wanted)]
    if not named:
        msg = (
            f"the worker on {host} has no {wanted}; it has: {describe(list_devices())}; "
            "start workers only where the device is"
        )
        raise DeviceError(msg, device=wanted)
    # Another driver compiles otherwise, so that its times are those of other kernels.
    same = [info for info in named if info.device.driver == wanted.driver]
    if not same:
        msg = (
            f"{wanted} has driver {wanted.driver} for the client, but the worker on {host} has driver "
            f"{named[0].device.driver}: times of both cannot be mixed; install the same driver on both"
        )
        raise DeviceError(msg, device=wanted)
    usable: list[TimedDevice] = [info.device for info in same if info.usable]
    if not usable:
        msg = f"{wanted} does not work on {host}: {same[0].reason}"
        raise DeviceError(msg, device=wanted)
    return usable


def _entry(item: Item) -> Entry:
    return Entry(item.request, samples=list(item.samples))


def _result(entry: Entry, session: str) -> ItemResult:
    new = tuple(sample for sample in entry.samples if sample.session == session)
    failure = None if entry.failure is None else (entry.failure.kind, entry.failure.error.alone())
    return ItemResult(new, failure)
