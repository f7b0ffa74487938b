"""A guard that ends a command and the processes it started soon after an interrupt, whatever the command is doing.

An interrupt becomes an exception when Python next runs code of the main thread. That may take long within a library's
call, the exception may be lost in a callback, and what is tidied up on its way may wait for other processes. So a
process forked when the command began reads the numbers of the signals that the command gets (Python's C code writes
them at once). If the command is still there after a grace, the guard ends it. However a command ended, the guard then
ends the process groups that it left.

Nothing is lost by that: what is kept between runs is written in transactions, and files of results appear by renaming.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

# From the interrupt to the end by force, and from there to the end that no process can refuse.
_GRACE_S = 1.0
_LAST_S = 0.2
# How long a command that ends waits for its guard, which goes on after an interrupt: Python may take long to end, too.
_DISMISSAL_S = 0.1
_PAUSE_S = 0.002
# A signal's number is one byte. No signal has the number 0: it announces a group's leader, negative once it is gone.
_LEADER = struct.Struct("=Bi")
_BYTES = 1 << 12


@dataclass
class _Guard:
    """The command's side of its guard."""

    pid: int
    pipe: int


_guard: _Guard | None = None


def start() -> None:
    """Have this process, a command that has begun just now, guarded until it ends; once, in the main thread.

    Where interrupts are ignored, as in the background of some shells, they still are.
    """
    global _guard  # noqa: PLW0603 - a process has one guard
    if _guard is not None or not hasattr(os, "fork"):
        return
    reading, writing = map(_above_standard_streams, os.pipe())
    command = os.getpid()
    try:
        pid = os.fork()
    except OSError:  # no more processes: a command that works unguarded is better than none
        os.close(reading)
        os.close(writing)
        return
    if pid == 0:
        # Nothing of the command may happen here, its exit handlers neither.
        try:
            _watch(command, reading)
        finally:
            os._exit(0)
    os.close(reading)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _guard = _Guard(pid, writing)
    # Registered first, called last: handlers registered later may hang.
    atexit.register(_dismiss)


def _above_standard_streams(descriptor: int) -> int:
    """Return a copy whose number is none of a standard stream's, to which drivers print where it was closed."""
    import fcntl

    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return copy


def announce(leader: int) -> None:
    """Tell the guard of a process group to be ended with the command."""
    _tell(leader)


def forget(leader: int) -> None:
    """Tell the guard that a process group has ended; call it before the system gives the number to another process."""
    _tell(-leader)


def _tell(number: int) -> None:
    if _guard is not None:
        with suppress(OSError):  # somebody has ended the guard
            os.write(_guard.pipe, _LEADER.pack(0, number))


def _dismiss() -> None:
    """End the guard, and take its exit code, which nobody else may care to do."""
    if _guard is None:
        return
    pid, end = _guard.pid, time.monotonic() + _DISMISSAL_S
    _leave()
    with suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < end:
            time.sleep(_PAUSE_S)


def _leave() -> None:
    """Let go of the guard; in a forked process, too, for the guard waits until nobody has the pipe's end."""
    global _guard  # noqa: PLW0603
    if _guard is not None:
        with suppress(ValueError):  # not in the main thread
            signal.set_wakeup_fd(-1)
        os.close(_guard.pipe)
        _guard = None


def _watch(command: int, pipe: int) -> None:
    """Be the guard."""
    # A terminal or a batch system signals the whole group.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    _let_go_of_files(pipe)
    leaders: set[int] = set()
    deadline: float | None = None
    pending = b""
    while deadline is None or time.monotonic() < deadline:
        left = None if deadline is None else deadline - time.monotonic()
        if select.select([pipe], [], [], left)[0]:
            read = os.read(pipe, _BYTES)
            if not read:  # the command ends
                break
            interrupted, pending = _understood(pending + read, leaders)
            if interrupted and deadline is None:
                deadline = time.monotonic() + _GRACE_S
    if deadline is not None:
        _end(command, deadline)
    for leader in leaders:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def _let_go_of_files(pipe: int) -> None:
    """Close all but the pipe: whoever reads what the command writes waits until all have closed it."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
    most = os.sysconf("SC_OPEN_MAX") if sys.platform != "darwin" else 256
    os.closerange(3, pipe)
    os.closerange(pipe + 1, max(most, pipe + 1))


def _understood(told: bytes, leaders: set[int]) -> tuple[bool, bytes]:
    """Keep the leaders that were announced; return whether there was an interrupt, and the beginning of a word."""
    interrupted, place = False, 0
    while place < len(told):
        if told[place]:
            interrupted |= told[place] in (signal.SIGINT, signal.SIGTERM)
            place += 1
        elif len(told) - place < _LEADER.size:
            break
        else:
            _, number = _LEADER.unpack_from(told, place)
            leaders.add(number) if number > 0 else leaders.discard(-number)
            place += _LEADER.size
    return interrupted, told[place:]


def _end(command: int, deadline: float) -> None:
    """End the command if it is there after the deadline."""
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(command, number)
            deadline = time.monotonic() + _LAST_S
        # A process that has lost its parent gets another.
        while os.getppid() == command and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
        if os.getppid() != command:
            return


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave)
