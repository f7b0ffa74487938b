"""A lock on a folder: shared by those who open a file in it, held alone by the one who replaces the file."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PATIENCE_S = 60.0
_PAUSE_S = 0.005


@contextmanager
def folder_lock(folder: Path, *, alone: bool) -> Iterator[None]:
    """Hold the lock in the block; the system gives it back when the process ends in any way.

    The folder itself is locked: a lock file could not be made where only the store may be written, and removing it
    would be a race of its own.

    Raises
    ------
    TimeoutError
        Another process has held it for a minute.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # Without the right to list the folder there is no replacing files in it either.
        yield
        return
    try:
        taken = True
        with suppress(OSError):  # some network file systems have no such locks
            taken = lock_taken(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, _PATIENCE_S)
        if not taken:
            msg = "another process has been replacing it for a minute"
            raise TimeoutError(0, msg)
        yield
    finally:
        # Closing also gives the lock back.
        os.close(handle)


def lock_taken(handle: int, kind: int, patience_s: float) -> bool:
    """Take an ``flock`` of a kind, and return whether others gave it free in time; the system's own wait has no limit.

    Raises
    ------
    OSError
        The file system has no such locks.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_S)
        else:
            return True
