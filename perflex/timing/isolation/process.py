"""The parent's side of a process that runs kernels: started, asked under a time limit, ended with all it started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any

from perflex.errors import DeviceError

if TYPE_CHECKING:
    from perflex.devices.device import Device

__all__ = ["WorkerLostError", "WorkerProcess"]

_START_LIMIT_S = 60.0
_GRACE_S = 0.3
_END_LIMIT_S = 2.0
_TAIL_BYTES = 1 << 14
_LAST_WORDS = 300
# What compilers' crash handlers write after the line that tells something.
_STACK_DUMP = re.compile(r"PLEASE submit a bug report|Stack dump|#?\d+[.:]?\s|/\S+\(\S*\+0x|\S+\[0x")


class WorkerLostError(Exception):
    """The process is no more; ``kind`` is ``"hang"`` where it had to be ended, else ``"crash"``."""

    def __init__(self, reason: str, *, kind: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


class WorkerProcess:
    """A process that builds and runs kernels on one device.

    It is a new interpreter with an entry of its own, neither a fork (drivers do not survive that) nor a spawn
    of `multiprocessing` (which runs the user's main module again). It leads a session and process group of its own:
    Ctrl-C in a terminal reaches the parent alone, and ending it ends the compilers that drivers start.

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
        self._asked = False
        self._connection, theirs = Pipe()
        try:
            # Asked for its own warnings to stay quiet: what the user makes of warnings is not meant for drivers.
            words = [
                sys.executable,
                "-P",
                "-W",
                "ignore",
                "-m",
                "perflex.timing.isolation.worker",
                str(theirs.fileno()),
            ]
            self._process = subprocess.Popen(  # noqa: S603
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            self._connection.close()
            raise self._not_started(str(error)) from error
        finally:
            theirs.close()
        self._words = _LastWords(self._process.stderr)

    @property
    def alive(self) -> bool:
        """Whether the process can be asked anything."""
        return not self._connection.closed and self._process.poll() is None

    def ask(self, what: str, number: int, argument: object, limit_s: float) -> Any:
        """Have a command done and return its result.

        Raises
        ------
        WorkerLostError
            The process crashed, or gave no answer within the limit and was ended.
        PerflexError
            The command failed.
        DeviceError
            The process did not start.
        """
        self._start()
        happened, result, sound = self._exchange((what, number, argument), limit_s, self._words.count)
        if not sound:
            self.end()
        if happened == "failed":
            raise result
        return result

    def end(self) -> None:
        """End the process: at once in the middle of a command, else it is given the time to end by itself."""
        if self._connection.closed:
            return
        self._connection.close()
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        self._reap(patience_s=_GRACE_S if self._asked else _END_LIMIT_S, terminate=self._asked)
        self._words.finish()

    def _start(self) -> None:
        if self._ready:
            return
        try:
            happened, error, _ = self._exchange(self.device, _START_LIMIT_S, 0)
        except WorkerLostError as lost:
            raise self._not_started(lost.reason) from lost
        if happened == "failed":
            self.end()
            raise error
        self._ready = True

    def _not_started(self, reason: str) -> DeviceError:
        msg = (
            f"the process that runs kernels on {self.device} did not start: {reason}; "
            "TimingOptions(isolate=False) runs them without one"
        )
        return DeviceError(msg, device=self.device)

    def _exchange(self, message: object, limit_s: float, begun: int) -> tuple[str, Any, bool]:
        """Send and receive; of what the process writes, what came before `begun` has nothing to do with it."""
        self._asked = True
        try:
            self._connection.send(message)
            if not self._connection.poll(limit_s):
                self.end()
                reason = f"no end within {limit_s:.3g} s"
                raise WorkerLostError(reason, kind="hang")
            answer: tuple[str, Any, bool] = self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise WorkerLostError(self._ending(begun), kind="crash") from error
        self._asked = False
        return answer

    def _ending(self, begun: int) -> str:
        """Return how the process ended by itself, and the last line it wrote on standard error meanwhile."""
        self._connection.close()
        # Standard input stays open meanwhile: its end would end the process in another way than its own.
        code = self._reap(patience_s=_END_LIMIT_S, terminate=False)
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        self._words.finish()
        ending = "ended without a word"
        if code is not None:
            ending = _signal_name(-code) if code < 0 else f"exit code {code}"
        if code == -signal.SIGKILL:
            ending += ", as the system does when memory runs out"
        last = self._words.since(begun)
        return f"{ending}; its last words: {last}" if last else ending

    def _reap(self, *, patience_s: float, terminate: bool) -> int | None:
        """Wait for the end, then kill what is left of the process group; return the exit code."""
        if self._process.returncode is None:
            if terminate:
                self._signal(signal.SIGTERM)
            self._wait_unreaped(patience_s)
            # Before the exit code is taken, for after that the group's number could be another's.
            self._signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # a driver can keep even a killed process for as long as it likes
            self._process.wait(_END_LIMIT_S)
        return self._process.returncode

    def _wait_unreaped(self, patience_s: float) -> None:
        end = time.monotonic() + patience_s
        with suppress(ChildProcessError):
            while time.monotonic() < end:
                if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                    return
                time.sleep(0.002)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


class _LastWords:
    """Reads a stream to its end, so that its writer never waits, and remembers the last of it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._tail = b""
        self.count = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while data := os.read(self._stream.fileno(), 1 << 16):
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            self.count += len(data)

    def finish(self) -> None:
        """Wait for the end of the stream and close it; a process that was left behind may hold it open."""
        self._thread.join(_END_LIMIT_S)
        if not self._thread.is_alive():
            self._stream.close()

    def since(self, begun: int) -> str:
        """Return the last telling line of what came after the first `begun` bytes."""
        new = max(0, self.count - begun)
        text = self._tail[-new:].decode(errors="replace") if new else ""
        lines = [line.strip() for line in text.splitlines() if line.strip() and not _STACK_DUMP.match(line.strip())]
        return lines[-1][:_LAST_WORDS] if lines else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
