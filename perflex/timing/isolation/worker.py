"""Process in which kernels are built and run, so that a driver's crash or hang costs this process only.

Commands come through a connection whose file descriptor is the argument; each is answered with what happened, the
result, and whether the device can still be used. Standard input is never written to: its end says that the parent is
gone, however it ended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from perflex.errors import MeasurementError, PerflexError
from perflex.timing.launch.backend import backend_of

if TYPE_CHECKING:
    from perflex.timing.launch.backend import BuiltKernel, KernelBackend

# Processes that the parent forked may hold its end of standard input open; so its death is looked for, too.
_LOOK_S = 5.0


def main(descriptor: int) -> None:
    """Open the device that the parent names, then do as told until the connection ends."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    with Connection(descriptor) as connection:
        try:
            backend = backend_of(connection.recv(), drivers_shown=True)
        except PerflexError as error:
            connection.send(("failed", error, False))
            return
        connection.send(("done", None, True))
        _serve(connection, backend)


def _end_with_parent(parent: int) -> None:
    """End this process and the compilers it started when the parent is gone, even in the middle of a kernel."""
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], _LOOK_S)
        if readable:
            break
    os.killpg(0, signal.SIGKILL)


def _serve(connection: Connection[Any, Any], backend: KernelBackend) -> None:
    runnables: dict[int, BuiltKernel] = {}
    while True:
        try:
            what, number, argument = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            result: Any
            if what == "build":
                runnables[number] = backend.build(argument)
                result = runnables[number].resources
            else:
                result = runnables[number].run(argument)
            connection.send(("done", result, True))
        except MeasurementError as error:
            connection.send(("failed", error, backend.responds()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)  # drivers crash and hang at the end of processes, too
