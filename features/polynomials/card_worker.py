"""Counts points of sets in a process of its own; started by `card_process`, never imported.

barvinok may take minutes for some sets, and cannot be interrupted: stopped inside, it goes on with null pointers. Here
the operating system ends the process instead, when a count has used up its processor time.

Requests come through a connection whose file descriptor is the argument: seconds, set and assumptions. Each is answered
with the count's text, which is empty for an error.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

import islpy as isl


def _allow(seconds: float) -> None:
    """Let this process compute for so long from now on; 0 for ever."""
    # ITIMER_PROF counts processor time; SIGPROF, which it ends with, terminates a process by default.
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _count(points: str, assumptions: str) -> str:
    # What barvinok refuses has the empty answer, and is treated like what takes too long.
    with suppress(isl.Error):
        assumed = isl.Set(assumptions).params()
        return str(isl.Set(points).card().coalesce().gist_params(assumed))
    return ""


def _main() -> None:
    with Connection(int(sys.argv[1])) as connection, suppress(EOFError):  # the end of the parent
        while True:
            seconds, points, assumptions = connection.recv()
            _allow(seconds)
            answer = _count(points, assumptions)
            _allow(0)
            connection.send(answer)


_main()
