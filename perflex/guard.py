"""A guard that ends a command and all processes it started soon after an interrupt, whatever the command is doing.

An interrupt becomes an exception when Python next runs code of the main thread. That may take long within a library's
call, the exception may be lost in a callback, and what is tidied up on its way may wait for other processes. So the
command runs in a fork of the process that was started, and that process is its guard: it passes an interrupt on, ends
what is still there after a grace, and says so in one line. However a command ended, the guard ends all that it left:
Linux makes the guard the parent of every process in its tree whose own parent has ended.

Nothing is lost by that: what is kept between runs is written in transactions, and files of results appear by renaming.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import FrameType
    from typing import NoReturn

# As shells have it: 128 and the number of SIGINT. SIGTERM ends a command in the same way.
INTERRUPTED = 130
# From the interrupt to the end by force, and from there to the end that no process can refuse.
_GRACE_S = 1.0
_LAST_S = 0.3
_PAUSE_S = 0.005
_LONG_S = 3600.0
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
# Options of prctl(2), from linux/prctl.h.
_PARENT_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36
# Erases a progress bar, and shows the cursor that it has hidden.
_CLEAN_LINE = "\r\x1b[2K\x1b[?25h"
# What `hold_interrupts` has blocked.
_held: set[int] = set()


def hold_interrupts() -> None:
    """Hold SIGINT until `start`, where this process is a command that imports perflex: else Python would show where."""
    if sys.platform != "linux":
        return
    words = sys.orig_argv
    as_module = sys.argv[:1] == ["-m"] and "-m" in words and words[words.index("-m") + 1 :][:1] == ["perflex"]
    # As text: a command in the interpreter's folder is that which pip has made.
    as_command = os.path.abspath(sys.argv[0]) == os.path.join(os.path.dirname(sys.executable), "perflex")  # noqa: PTH100, PTH118, PTH120
    if as_module or as_command:
        _held.update({signal.SIGINT} - signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}))


def start() -> None:
    """Go on in a guarded fork of this process, a command that has begun just now; once, in the main thread.

    Where interrupts are ignored, as in the background of some shells, they still are.
    """
    if sys.platform != "linux":
        return
    heeded = {*_INTERRUPTS, signal.SIGHUP, signal.SIGQUIT}
    heeded = {number for number in heeded if signal.getsignal(number) is not signal.SIG_IGN}
    guard = os.getpid()
    # Where it is ignored, as by some servers that start commands, no exit code is kept.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Blocked before there are two processes, so that none is lost between them.
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, heeded | {signal.SIGCHLD})
    try:
        command = os.fork()
    except OSError:  # no more processes: a command that works unguarded is better than none
        command = 0
    if command:
        _watch(command, heeded)
    if os.getpid() != guard:
        _set_of_process(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(INTERRUPTED)
        # The terminal sends Ctrl-C to all processes of the command, which inherit this; the guard passes it on.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _interrupted)
    signal.pthread_sigmask(signal.SIG_SETMASK, usual - _held)


def _interrupted(number: int, _: FrameType | None) -> NoReturn:
    """Begin the command's end."""
    # The guard says all there is to say. Python would add exceptions that were lost in callbacks, say, or that a second
    # signal came while the next line had it ignored.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _set_of_process(option: int, value: int) -> None:
    import ctypes

    # Refused in a sandbox, say: then children end by themselves a while after their parent.
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _watch(command: int, heeded: Collection[signal.Signals]) -> NoReturn:
    """Be the guard."""
    _set_of_process(_CHILD_SUBREAPER, 1)
    interrupt: int | None = None
    deadline = float("inf")
    status: int | None = None
    while status is None and (left := deadline - time.monotonic()) > 0:
        signalled = signal.sigtimedwait({*heeded, signal.SIGCHLD}, min(left, _LONG_S))
        number = signal.SIGCHLD if signalled is None else signalled.si_signo
        if number in _INTERRUPTS:
            if interrupt is None:
                interrupt, deadline = number, time.monotonic() + _GRACE_S
            number = signal.SIGTERM
        if number != signal.SIGCHLD:
            os.kill(command, number)
        status = _ended().get(command)
    if status is None:
        os.kill(command, signal.SIGKILL)
    _end_all()
    if interrupt is not None:
        _say(f"perflex: interrupted by {signal.Signals(interrupt).name}")
        os._exit(INTERRUPTED)
    _end_like(os.waitstatus_to_exitcode(status or 0))


def _ended() -> dict[int, int]:
    """Return the children that have ended, with their statuses, and forget them."""
    found = {}
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            found[child[0]] = child[1]
    return found


def _end_all() -> None:
    """End all processes below this one; those that tidy up behind others, as Python's tracker of semaphores, may."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        end = time.monotonic() + _LAST_S
        # Again and again: the children of one that has ended are this process's from then on.
        while (children := _children()) and time.monotonic() < end:
            for child in children:
                with suppress(PermissionError):  # one that runs as another user
                    os.kill(child, number)
            time.sleep(_PAUSE_S)


def _children() -> list[int]:
    """Return the children that have not ended."""
    _ended()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return []
    found, own = [], str(os.getpid()).encode()
    for place in Path("/proc").glob("[1-9]*"):
        with suppress(OSError):
            # The program's name, in parentheses, may be any text.
            if (place / "stat").read_bytes().rpartition(b")")[2].split()[1] == own:
                found.append(int(place.name))
    return found


def _say(line: str) -> None:
    with suppress(OSError):
        os.write(2, f"{_CLEAN_LINE if os.isatty(2) else ''}{line}\n".encode())


def _end_like(code: int) -> NoReturn:
    """End as the command did: shells and batch systems say which signal it was."""
    if code < 0:
        import resource

        # The command has left a dump of its memory where one is wanted.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL cannot be handled
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    os._exit(code)
