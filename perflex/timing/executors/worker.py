"""What a worker does: finds the device on its machine, locks it, and times a portion of kernels."""

from __future__ import annotations

import math
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from perflex.devices.device import Device
from perflex.errors import DeviceError, ExecutorError, PerflexError
from perflex.timing.executors.device_lock import device_lock
from perflex.timing.executors.portions import ItemResult, PortionResult
from perflex.timing.isolation.affinity import affinity_of
from perflex.timing.measuring import open_backend
from perflex.timing.rounds import Entry, Session, start, time_in_rounds

if TYPE_CHECKING:
    from perflex.timing.executors.portions import Item, Portion


def time_portion(portion: Portion) -> PortionResult:
    """Time the kernels of a portion in rounds on this machine's device; nothing is kept here.

    Errors are returned: what they were raised from, a driver's exception, say, may not be known where they go.
    """
    from perflex.version import __version__

    session = Session(portion.options, portion.session)
    entries = [_entry(item) for item in portion.items]
    error: PerflexError | None = None
    try:
        if portion.version != __version__:
            msg = (
                f"the worker on {socket.gethostname()} has perflex {__version__}, the client {portion.version}; "
                "install the same version on both"
            )
            raise ExecutorError(msg)
        with device_lock(portion.device):  # finding the device tries kernels, too
            _time(entries, portion, session)
    except PerflexError as raised:
        error = raised.alone()
    affinity = affinity_of(portion.device, isolate=portion.options.isolate)
    return PortionResult(tuple(_result(entry, portion.session) for entry in entries), error, affinity)


def _time(entries: list[Entry], portion: Portion, session: Session) -> None:
    device = portion.device
    if isinstance(device, Device):
        device = device_here(device)
    with closing(open_backend(device, portion.options)) as backend:
        for entry in entries:
            if not entry.is_known(portion.options):
                start(entry, backend, session)
        time_in_rounds(entries, backend, session)


def device_here(wanted: Device) -> Device:
    """Return this machine's device that is the client's, as it is called here.

    Raises
    ------
    DeviceError
        There is none of the name, it has another driver, or it does not work.
    """
    from perflex.devices.listing import describe, list_devices

    host = socket.gethostname()
    # All names but the driver's, which is a fault of its own.
    named = [info for info in list_devices() if info.device.names[:3] == wanted.names[:3]]
    if not named:
        msg = (
            f"the worker on {host} has no {wanted}; it has: {describe(list_devices())}; "
            "start workers only where the device is"
        )
        raise DeviceError(msg, device=wanted)
    # Another driver compiles otherwise, so that its times are those of other kernels.
    same = [info for info in named if (info.device.driver, info.device.ordinal) == (wanted.driver, wanted.ordinal)]
    if not same:
        there = ", ".join(f"number {info.device.ordinal} with driver {info.device.driver}" for info in named)
        msg = (
            f"{wanted} is number {wanted.ordinal} with driver {wanted.driver} for the client, but the worker on {host} "
            f"has {there}: times of both cannot be mixed; install the same driver on both"
        )
        raise DeviceError(msg, device=wanted)
    if not same[0].usable:
        msg = f"{wanted} does not work on {host}: {same[0].reason}"
        raise DeviceError(msg, device=wanted)
    return same[0].device


def _entry(item: Item) -> Entry:
    seconds = float(np.median([sample.seconds for sample in item.samples])) if item.samples else math.nan
    return Entry(item.request, samples=list(item.samples), seconds=seconds)


def _result(entry: Entry, session: str) -> ItemResult:
    new = tuple(sample for sample in entry.samples if sample.session == session)
    failure = None if entry.failure is None else (entry.failure.kind, entry.failure.error.alone())
    return ItemResult(new, failure)
