"""Memory, streams, events and errors of the fake driver."""

from __future__ import annotations

import ctypes
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sized


class CUDARuntimeError(RuntimeError):
    pass


class State:
    """What the process's only device remembers."""

    lost = False
    # The current device, and those that kernels were launched on and memory allocated.
    device = 0
    used: set[int] = set()  # noqa: RUF012
    # How many of the next held streams do not wait for the host.
    impatient = 0
    go: int | None = None
    enqueued_while_held = 0
    allocated: dict[int, Sized] = {}  # noqa: RUF012
    launches: list[str] = []  # noqa: RUF012
    dynamic_bytes: list[int] = []  # noqa: RUF012
    worked_ns = 0
    next_address = 1 << 40


# Bytes that there is memory for even where nothing is executed: what the probe of a device copies.
SMALL = 1 << 16


def setting(name, default):
    return int(os.environ.get(f"FAKE_CUDA_{name}", default))


def idle():
    """Whether kernels are not executed: they take a time by their work-items, and arrays have no memory."""
    return bool(setting("IDLE", 0))


def build_version():
    return setting("BUILD", 13000)


def require_device():
    if State.lost:
        raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")


def host_waits():
    """The host may not wait for a stream that waits for the host."""
    require_device()
    if State.go is not None and ctypes.c_int.from_address(State.go).value == 0:
        raise CUDARuntimeError("deadlock: the host waits for a stream that it holds")
    State.go = None


class Runtime:
    memcpyHostToDevice = 1
    memcpyDeviceToHost = 2
    memcpyDeviceToDevice = 3

    @staticmethod
    def driverGetVersion():
        return setting("DRIVER", 13000)

    @staticmethod
    def getDeviceCount():
        return setting("DEVICES", 1)

    @staticmethod
    def getDeviceProperties(number):
        return {
            "name": os.environ.get("FAKE_CUDA_NAME", "NVIDIA H100 80GB HBM3").encode(),
            "warpSize": 32,
            "multiProcessorCount": 132,
            "sharedMemPerBlock": 49152,
            "sharedMemPerBlockOptin": 232448,
            "l2CacheSize": 4096,
            "totalGlobalMem": setting("MEMORY", 1 << 32),
            "maxThreadsPerBlock": 1024,
            "maxThreadsDim": (1024, 1024, 64),
            "maxGridSize": (2147483647, 65535, 65535),
            "major": 9,
            "minor": 0,
        }

    @staticmethod
    def deviceGetPCIBusId(number):
        return f"0000:{number + 1:02X}:00.0"

    @staticmethod
    def setDevice(number):
        require_device()
        if not 0 <= number < Runtime.getDeviceCount():
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        State.device = number

    @staticmethod
    def getDevice():
        return State.device

    @staticmethod
    def deviceSynchronize():
        host_waits()

    @staticmethod
    def malloc(size):
        host_waits()
        State.used.add(State.device)
        if sum(len(block) for block in State.allocated.values()) + size > setting("ROOM", setting("MEMORY", 1 << 32)):
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        if idle() and size > SMALL:
            State.next_address += size
            State.allocated[State.next_address - size] = range(size)
            return State.next_address - size
        block = (ctypes.c_char * size)()
        State.allocated[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    @staticmethod
    def free(address):
        host_waits()
        del State.allocated[address]

    @staticmethod
    def memcpy(target, origin, size, kind):
        host_waits()
        ctypes.memmove(target, origin, size)

    @staticmethod
    def memsetAsync(address, value, size, stream):
        require_device()
        ctypes.memset(address, value, size)
        State.worked_ns += 1000 + size // 1500

    @staticmethod
    def memcpyAsync(target, origin, size, kind, stream):
        require_device()
        for address in {1: [target], 2: [origin], 3: [target, origin]}[kind]:
            held = [begin for begin, block in State.allocated.items() if begin <= address < begin + len(block)]
            if not held or address + size > held[0] + len(State.allocated[held[0]]):
                raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument")
        State.worked_ns += 1000 + size // 1500
        if not idle():
            ctypes.memmove(target, origin, size)


class Stream:
    ptr = 1

    def __init__(self, *, non_blocking=False):
        self.non_blocking = non_blocking

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def synchronize(self):
        host_waits()


class Event:
    def record(self, stream):
        require_device()
        self.at = State.worked_ns if idle() else time.perf_counter_ns()


def get_elapsed_time(first, last):
    return (last.at - first.at) * 1e-6


class _Pinned(ctypes.c_int * 2):
    @property
    def ptr(self):
        return ctypes.addressof(self)


def alloc_pinned_memory(size):
    assert size == 8
    return _Pinned()
