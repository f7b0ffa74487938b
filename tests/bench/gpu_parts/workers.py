"""Processes that generate code and count features beside this one, on machines with cores to spare."""

from __future__ import annotations

import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["code_workers", "default_workers"]

_MOST = 12


def default_workers(*, on_gpu: bool) -> int:
    """Return how many processes may work beside this one: none where they would disturb what is timed."""
    usable = len(os.sched_getaffinity(0))
    return min(_MOST, usable - 1) if on_gpu and usable > 2 else 0


@contextmanager
def code_workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Give a pool of processes that is ended with the block, whatever its workers are doing.

    They are started afresh, not forked: a driver's state does not survive a fork.
    """
    pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        yield pool
    finally:
        workers = list(getattr(pool, "_processes", None) or {})
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            _end(worker)


def _begin() -> None:
    # The signals that end the run go to its process group; the parent ends its workers itself.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"


def _end(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
