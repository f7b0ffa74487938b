"""Child processes that may crash or hang: asked to call functions within a limit, ended with all they started.

Each is a new interpreter with an entry of its own, neither a fork (drivers do not survive that) nor a spawn of
`multiprocessing` (which runs the user's main module again). It leads a session and process group of its own: Ctrl-C in
a terminal reaches the parent alone, and ending the group ends the compilers that drivers start.
"""

from __future__ import annotations

import importlib
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import TYPE_CHECKING, Any, TypeVar, cast

from perflex.errors import PerflexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import ProcessPoolExecutor

_Result = TypeVar("_Result")

# How long a process that is asked to end may take, and one that ends of itself, or a killed one that a driver holds.
# Processes that the parent forked may hold its end of standard input open; so its death is looked for, too.
_LOOK_S = 5.0
# A pool's worker has no standard input of its own whose end would tell.
_LOOK_POOLED_S = 0.3
_GRACE_S = 0.3
_END_LIMIT_S = 2.0
# Enough of standard error for the line that tells what happened, however long a dump follows.
_TAIL_BYTES = 1 << 14
_MOST_CHARACTERS = 300
# What compilers' crash handlers write after the line that tells something.
_STACK_DUMP = re.compile(r"PLEASE submit a bug report|Stack dump|#?\d+[.:]?\s|/\S+\(\S*\+0x|\S+\[0x")


class ChildLostError(Exception):
    """A process is no more; ``kind`` is ``"hang"`` where it had to be ended, else ``"crash"``."""

    def __init__(self, reason: str, *, kind: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


class RemoteProcess:
    """A Python process that calls functions as it is asked to: those of modules, by name, with arguments as pickles.

    Variables come beside the parent's. What it prints on standard output is thrown away. An OSError where no process
    can be started.
    """

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        # What this process can import, the child can, too, wherever the user's main module changed the path.
        path = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._connection, theirs = Pipe()
        self._answered = False
        with theirs:  # only the child is to hold it open, so that its end shows here
            code = f"from perflex.child_process import answer_calls; answer_calls({theirs.fileno()})"
            try:
                self._process = subprocess.Popen(  # noqa: S603 - perflex's own module
                    # Its own warnings are to stay quiet: what the user makes of warnings is not meant for drivers.
                    [sys.executable, "-P", "-W", "ignore", "-c", code],
                    stdin=subprocess.PIPE,  # its end tells a child that the parent is gone
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=os.environ | path | dict(variables or {}),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError:
                self._connection.close()
                raise
        self._errors = StreamReader(self._process.stderr)

    @property
    def alive(self) -> bool:
        """Whether the process can be asked anything."""
        return not self._connection.closed and not self._has_ended()

    def call(self, function: Callable[..., _Result], *arguments: object, limit_s: float) -> _Result:
        """Return what a function makes of arguments in the process.

        Raises
        ------
        ChildLostError
            The process crashed, or exceeded the limit and was ended.
        PerflexError
            The function raised it.
        RuntimeError
            The function raised anything else, an error of perflex. The process is ended.
        """
        # What it wrote before has nothing to do with this call, unless it never got so far as to answer one.
        begun = self._errors.count if self._answered else 0
        self._answered = False
        try:
            self._connection.send((function, arguments))
            # At the end of the connection poll is true, too; then recv raises EOFError.
            if not self._connection.poll(limit_s):
                reason = f"no end within {limit_s:.3g} s"
                raise ChildLostError(reason, kind="hang")
            happened, result = self._connection.recv()
            if happened == "broken":
                msg = f"a process that perflex started failed, which is an error of perflex:\n{result}"
                raise RuntimeError(msg)
            self._answered = True
        # Pipe() is a socket pair: its other end's death is an end of file, or a reset where a request was left unread.
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise ChildLostError(self._how_it_ended(begun), kind="crash") from error
        finally:
            # After an interrupt, too: the answer is still to come, and would be taken for that of the next call.
            if not self._answered:
                self.end()
        if happened == "raised":
            raise result
        return cast("_Result", result)

    def end(self, *, at_once: bool = True) -> None:
        """End it and all it started, at once or with some time to end by itself now that the parent is done."""
        if self._connection.closed:
            return
        self._connection.close()
        if at_once:
            self._close_input()
            self._signal(signal.SIGTERM)
        self._wait(_GRACE_S if at_once else _END_LIMIT_S)

    def kill(self) -> None:
        """Kill it and all it started, from any thread; who waits for its answer learns of it, and ends what is left."""
        self._signal(signal.SIGKILL)

    def _wait(self, limit_s: float) -> None:
        """Let it end by itself within a limit, then end what is left of its process group."""
        self._ends_within(limit_s)
        if self._process.returncode is None:
            # Before the exit code is taken, for after that the group's number could be another's.
            self._signal(signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):  # a driver can keep even a killed process as long as it likes
                self._process.wait(_END_LIMIT_S)
        self._close_input()
        self._errors.finish()

    def _close_input(self) -> None:
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]

    def _has_ended(self) -> bool:
        """Return whether it has ended, without taking the exit code."""
        if self._process.returncode is not None:
            return True
        with suppress(ChildProcessError):  # somebody else has taken the exit code
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        return True

    def _ends_within(self, limit_s: float) -> None:
        # Polled: Popen.wait would take the exit code, and with it free the group's number before the group is ended.
        end, pause = time.monotonic() + limit_s, 0.001
        while not self._has_ended() and (left := end - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(2 * pause, 0.02)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _how_it_ended(self, begun: int) -> str:
        """Wait for the end that it comes to by itself, and say how, with what it wrote on standard error last."""
        self._connection.close()
        # Standard input stays open meanwhile: its end would end the process in another way than its own.
        self._wait(_END_LIMIT_S)
        code, last = self._process.returncode, self._errors.last_line(begun)
        ending = "ended without a word"
        if code is not None:
            ending = signal_name(-code) if code < 0 else f"exit code {code}"
        # The kernel's out-of-memory killer gives a process no chance to write why it ended.
        if code == -signal.SIGKILL:
            ending += ", as the system does when memory runs out"
        return f"{ending}; its last output: {last}" if last else ending


class StreamReader:
    """Reads a stream to its end, so that its writer never waits: `count` bytes so far, the last of them kept."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._tail = b""
        self.count = 0
        # A daemon: a left-behind process that holds the stream open must not keep this one from its end.
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        # os.read returns what there is; the stream's own read would wait for the whole number of bytes.
        while data := os.read(self._stream.fileno(), 1 << 16):
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            self.count += len(data)

    def finish(self) -> None:
        """Wait for the end of the stream and close it; a process that was left behind may hold it open."""
        self._thread.join(_END_LIMIT_S)
        # Closing below a thread that reads would free the descriptor's number for another file.
        if not self._thread.is_alive():
            self._stream.close()

    def last_line(self, begun: int = 0) -> str:
        """Return the last informative line of what came after the first `begun` bytes."""
        new = max(0, self.count - begun)
        # Not [-0:], which is all of it; and the cut of the tail may fall within a character.
        text = self._tail[-new:].decode(errors="replace") if new else ""
        lines = [line.strip() for line in text.splitlines() if line.strip() and not _STACK_DUMP.match(line.strip())]
        return lines[-1][:_MOST_CHARACTERS] if lines else ""


def answer_calls(descriptor: int) -> None:
    """Be the process of a `RemoteProcess`: call functions until the connection ends."""
    end_with_parent()
    connection: Connection[Any, Any]
    with Connection(descriptor) as connection:
        while True:
            try:
                request = connection.recv_bytes()
            except (EOFError, ConnectionResetError):
                break
            try:
                function, arguments = pickle.loads(request)  # noqa: S301 - the parent's
                answer = pickle.dumps(("done", function(*arguments)))
            except PerflexError as error:
                answer = pickle.dumps(("raised", error))
            except Exception:  # noqa: BLE001 - an error of perflex is no crash of a driver
                answer = pickle.dumps(("broken", traceback.format_exc()))
            connection.send_bytes(answer)
    os._exit(0)  # drivers crash and hang at the end of processes, too


def end_with_parent() -> None:
    """Watch, in a child that `RemoteProcess` started, for the parent's end; then end the child and all it started.

    A driver that hangs keeps a process alive that no terminal reaches: it leads a session of its own.
    """
    # Run by hand it leads nothing, and would end whoever started it.
    if os.getpgrp() == os.getpid():
        threading.Thread(target=_wait_for_end, args=(os.getppid(),), daemon=True).start()


def _wait_for_end(parent: int) -> None:
    while os.getppid() == parent:
        # The parent holds the other end of the standard input, and never writes.
        readable, _, _ = select.select([0], [], [], _LOOK_S)
        if readable:
            break
    os.killpg(0, signal.SIGKILL)


@contextmanager
def process_pool(workers: int | None = None, *, importing: str = "") -> Iterator[ProcessPoolExecutor]:
    """Give a pool whose workers end with this process, and at once where the block raises anything.

    None is a worker for each processor. Where it is said what they will need, a module, all start at once and import it
    while this process goes on.
    """
    from concurrent.futures import ProcessPoolExecutor

    started: list[SpawnProcess] = []

    class Context(SpawnContext):
        """Knows which processes are the pool's: others in this process may have children of their own."""

        @staticmethod
        def Process(*arguments: Any, **named: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
            started.append(SpawnProcess(*arguments, **named))
            return started[-1]

    # Python's tracker, a process, removes the semaphores that killed processes leave, and warns of them.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    with ProcessPoolExecutor(workers, Context(), initializer=_end_worker_with_parent, initargs=(os.getpid(),)) as pool:
        try:
            for _ in range((workers or os.cpu_count() or 1) if importing else 0):
                pool.submit(_import, importing)
            yield pool
        except BaseException:  # an interrupt, say; the pool would wait for what is at work
            for worker in started:
                if worker.is_alive():
                    worker.kill()
            raise


def _import(module: str) -> None:
    importlib.import_module(module)


def _end_worker_with_parent(parent: int) -> None:
    """Watch, in a worker of a pool, for the end of the parent; then end this process.

    It waits for more work for ever where nobody is left to send any.
    """
    # A fork has its parent's handlers; but an interrupt is the parent's affair.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_look_for_end, args=(parent,), daemon=True).start()


def _look_for_end(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_POOLED_S)
    os.kill(os.getpid(), signal.SIGKILL)


def signal_name(number: int) -> str:
    """Return a signal's name, ``SIGSEGV``, or its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
