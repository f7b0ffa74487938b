"""Commands in a terminal of their own that are interrupted, and what is left of them."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MARK = "PERFLEX_INTERRUPTED_RUN"
# Beside other work a command takes many times as long to begin.
_START_S = 300.0
_PATIENCE_S = 20.0
_PAUSE_S = 0.01
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
# A shell as far as a terminal is concerned: it leads the session and stays when the command, in the foreground, has
# ended. Without one the system would end what a command leaves, for the terminal would be gone.
_SHELL = """
import fcntl, os, signal, subprocess, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)  # what runs the tests in the background may ignore it
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
command = subprocess.Popen(sys.argv[2:], process_group=0)
os.tcsetpgrp(0, command.pid)
os.write(int(sys.argv[1]), b"%d\\n" % command.pid)
os.write(int(sys.argv[1]), b"%d\\n" % command.wait())
signal.pause()
"""


@dataclass(frozen=True)
class Ending:
    """How a command ended."""

    code: int  # negative for a signal
    seconds: float  # from the signal to the end of the last process
    left: tuple[str, ...]  # ends of the command lines of processes that were there after `_PATIENCE_S`
    lines: tuple[str, ...]  # what stood in the terminal after the signal, without what was overwritten


class TerminalCommand:
    """A command in the foreground of a terminal of its own, with environment variables beside this process's."""

    def __init__(self, words, variables):
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        self._terminal, theirs = pty.openpty()
        self._numbers, told = os.pipe()
        self._shell = subprocess.Popen(
            [sys.executable, "-IS", "-c", _SHELL, str(told), "env", self._mark, *words], stdin=theirs, stdout=theirs,
            stderr=theirs, env=os.environ | variables, pass_fds=[told], start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.close(told)
        self._output = b""
        self.pid = self._number()

    def close(self):
        """Kill all that is left."""
        for pid in self._running():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._shell.kill()
        self._shell.wait()
        os.close(self._terminal)
        os.close(self._numbers)

    def comes_to(self, words, count=1):
        """Wait until so many of its processes have words in their command lines; return whether it came to that."""
        end = time.monotonic() + _START_S
        while sum(words in line for line in self._running().values()) < count:
            self._read(_PAUSE_S)
            if time.monotonic() > end or self._has_ended():
                return False
        return True

    def shown(self):
        """Return what stands in the terminal."""
        self._read(0)
        return self._output.decode(errors="replace")

    def runs_for(self, seconds):
        """Let it run; return whether it still does."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._has_ended():
            self._read(min(left, 0.1))
        return not self._has_ended()

    def code(self):
        """Return its exit code once it has ended, negative for a signal."""
        return self._number()

    def interrupt(self, number, times=1):
        """Press Ctrl-C, or send another signal to the command's main process, and look for its end."""
        self._read(0)
        shown, known = len(self._output), self._running()
        sent = time.monotonic()
        for _ in range(times):
            if number == signal.SIGINT:
                os.write(self._terminal, b"\x03")
            else:
                os.kill(self.pid, number)
        while (running := self._running() | _still(known)) and time.monotonic() - sent < _PATIENCE_S:
            self._read(_PAUSE_S)
        seconds = time.monotonic() - sent
        self._read(0.1)
        code = self.code() if self.pid not in running else 0
        return Ending(code, seconds, tuple(words[-150:] for words in running.values()), _lines(self._output[shown:]))

    def _has_ended(self):
        return bool(select.select([self._numbers], [], [], 0)[0])

    def _number(self):
        """Return the next number that the shell says: the command's process, then its exit code."""
        text = b""
        while not text.endswith(b"\n"):
            text += os.read(self._numbers, 1)
        return int(text)

    def _read(self, limit_s):
        while select.select([self._terminal], [], [], limit_s)[0]:
            self._output += os.read(self._terminal, 1 << 16)
            limit_s = 0

    def _running(self):
        """Return the processes with the command's mark and all that they started, with their command lines."""
        parents = _parents()
        found = {pid for pid in parents if self._mark.encode() in _of(pid, "environ").split(b"\0")}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return {pid: _words(pid) for pid in found}


def _parents():
    """Return the parent of each process of this machine that has not ended."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            state = _of(int(place.name), "stat").rpartition(b")")[2].split()
            if state and state[0] not in b"ZX":
                found[int(place.name)] = int(state[1])
    return found


def _still(known):
    parents = _parents()
    return {pid: words for pid, words in known.items() if pid in parents and _words(pid) == words}


def _words(pid):
    return _of(pid, "cmdline").replace(b"\0", b" ").decode()


def _of(pid, what):
    with suppress(OSError):
        return Path(f"/proc/{pid}/{what}").read_bytes()
    return b""


def _lines(shown):
    text = _CONTROL.sub(b"", shown).replace(b"^C", b"").replace(b"\r\n", b"\n").decode(errors="replace")
    # What stands behind the last carriage return has overwritten the rest.
    return tuple(line.rpartition("\r")[2] for line in text.split("\n") if line.rpartition("\r")[2].strip())
