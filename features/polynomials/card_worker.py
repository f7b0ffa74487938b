"""Counts points of sets, in a process that `CardProcess` starts.

barvinok may take minutes for some sets, and cannot be interrupted: where isl's limit on operations ends it, it goes on
with null pointers, to a crash or to a wrong count. So each count is made by a fork of that process, which may crash,
and which asks isl at the end whether the limit was reached. In each fork isl is as when it was loaded: what was counted
before would change the number of operations a little.
"""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress

import islpy as isl


def count(seconds: float, operations: int, points: str, assumptions: str) -> str | None:
    """Return the number of points of a set as text; empty where operations did not suffice, None where time did not."""
    outcome, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected
        # ITIMER_PROF counts processor time; SIGPROF, which it ends with, terminates a process by default.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        with os.fdopen(theirs, "w") as file:
            file.write(_counted(points, assumptions, operations))
        os._exit(0)
    os.close(theirs)
    with os.fdopen(outcome) as file:
        answer = file.read()
    ending = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ending == -signal.SIGPROF:
        return None
    return answer if ending == 0 else ""


def _counted(points: str, assumptions: str, operations: int) -> str:
    # What barvinok refuses has the empty answer, and is treated like what takes too many operations.
    with suppress(isl.Error):
        assumed = isl.Set(assumptions).params()
        isl.DEFAULT_CONTEXT.set_max_operations(operations)
        counted = str(isl.Set(points).card().coalesce().gist_params(assumed))
        # Beyond the limit every operation fails, also this one.
        isl.Set("{ [i] : i > 0 }").is_empty()
        return counted
    return ""
