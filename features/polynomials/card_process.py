"""Counting points of sets with a limit on time: in a worker process that is ended when the time is up."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from threading import Lock

from perflex.child_process import AskedProcess, ChildLostError

# A loaded machine gives a process less than all of a core.
_PATIENCE = 20.0
# The first answer includes the start of Python and the import of islpy.
_START_S = 60.0


class CardProcess:
    """A worker process, started when first needed, and again after it has ended."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._worker: AskedProcess | None = None
        self._owner = 0
        atexit.register(self.close)

    def card(self, points: str, assumptions: str, seconds: float) -> str | None:
        """Return the number of points of a set as isl's text of a piecewise quasi-polynomial.

        Parameters
        ----------
        points, assumptions
            isl's texts of the set and of a parameter set.
        seconds
            Processor time that counting may take.

        Returns
        -------
        str or None
            None where it takes longer, or cannot be done.
        """
        with self._lock:
            try:
                answer: str = self._running().ask((seconds, points, assumptions), _START_S + _PATIENCE * seconds)
            except (ChildLostError, OSError):
                # Out of time, the worker was ended; the next set gets a new one.
                return None
            return answer or None

    def _running(self) -> AskedProcess:
        if self._owner != os.getpid():  # a fork must not share pipes with its parent
            self._worker, self._owner = None, os.getpid()
        if self._worker is None or not self._worker.alive:
            self._end()
            # As a script and isolated (-I) it starts without perflex and loopy, in a fraction of their time.
            self._worker = AskedProcess(["-I", str(Path(__file__).with_name("card_worker.py"))])
        return self._worker

    def _end(self) -> None:
        if self._worker is not None and self._owner == os.getpid():
            self._worker.end()
        self._worker = None

    def close(self) -> None:
        """End the worker, if there is one."""
        with self._lock:
            self._end()


card_process = CardProcess()
