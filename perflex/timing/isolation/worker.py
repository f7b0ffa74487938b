"""Process in which kernels are built and run, so that a driver's crash or hang costs this process only.

Commands come through a connection whose file descriptor is the argument; each is answered with what happened, the
result, and whether the device can still be used. Standard input is never written to: its end says that the parent is
gone, however it ended.
"""

from __future__ import annotations

import os
import sys
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from perflex.child_process import end_with_parent
from perflex.errors import PerflexError
from perflex.timing.launch.backend import backend_of

if TYPE_CHECKING:
    from perflex.timing.launch.backend import BuiltKernel, KernelBackend


def main(descriptor: int) -> None:
    """Open the device that the parent names, then do as told until the connection ends."""
    end_with_parent()
    with Connection(descriptor) as connection:
        try:
            backend = backend_of(connection.recv(), drivers_shown=True)
        except PerflexError as error:
            connection.send(("failed", error, False))
            return
        connection.send(("done", None, True))
        _serve(connection, backend)


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
            elif what == "code":
                result = backend.code(argument)
            elif what == "results":
                result = runnables[number].results()
            else:
                result = runnables[number].run(argument)
            connection.send(("done", result, True))
        except PerflexError as error:
            connection.send(("failed", error, backend.responds()))
        except Exception:  # noqa: BLE001 - an error of perflex is no crash of a driver
            connection.send(("broken", traceback.format_exc(), False))


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)  # drivers crash and hang at the end of processes, too
