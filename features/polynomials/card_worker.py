"""Counts points of sets in processes of their own; started by `card_process`, never imported.

barvinok may take minutes for some sets, and cannot be interrupted: where isl's limit on operations ends it, it goes on
with null pointers, to a crash or to a wrong count. So each count is made by a fork of this process, which may crash,
and which asks isl at the end whether the limit was reached. In each fork isl is as when it was loaded: what was counted
before would change the number of operations a little.

Requests come through a connection whose file descriptor is the argument: seconds, operations, set and assumptions. Each
is answered with the count's text, which is empty where the operations did not suffice, and None where the time did not.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, wait

import islpy as isl


def _count(points: str, assumptions: str, operations: int) -> str:
    # What barvinok refuses has the empty answer, and is treated like what takes too many operations.
    with suppress(isl.Error):
        assumed = isl.Set(assumptions).params()
        isl.DEFAULT_CONTEXT.set_max_operations(operations)
        counted = str(isl.Set(points).card().coalesce().gist_params(assumed))
        # Beyond the limit every operation fails, also this one.
        isl.Set("{ [i] : i > 0 }").is_empty()
        return counted
    return ""


def _answer(connection: Connection, seconds: float, operations: int, points: str, assumptions: str) -> str | None:
    """Count in a fork, and end it together with the parent."""
    outcome, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        # ITIMER_PROF counts processor time; SIGPROF, which it ends with, terminates a process by default.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        with os.fdopen(theirs, "w") as file:
            file.write(_count(points, assumptions, operations))
        os._exit(0)
    os.close(theirs)
    with os.fdopen(outcome) as file:
        # Nobody asks before the answer: what comes through the connection meanwhile is the parent's end.
        if connection in wait([outcome, connection]):
            os.kill(child, signal.SIGKILL)
        answer = file.read()
    ending = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ending == -signal.SIGPROF:
        return None
    return answer if ending == 0 else ""


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected
    with Connection(int(sys.argv[1])) as connection, suppress(EOFError):  # the end of the parent
        while True:
            connection.send(_answer(connection, *connection.recv()))


_main()
