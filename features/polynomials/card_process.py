"""Counting points of sets with a limit on time: in a worker process that is ended when the time is up."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from pathlib import Path
from queue import Empty, Queue
from threading import Lock, Thread

__all__ = ["CardProcess", "card_process"]

# A loaded machine gives a process less than all of a core.
_PATIENCE = 20.0
_START_S = 60.0


class CardProcess:
    """A worker process, started when first needed, and again after it has ended."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._worker: subprocess.Popen[str] | None = None
        self._answers: Queue[str | None] = Queue()
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
            worker = self._running()
            try:
                if worker.stdin is not None:
                    worker.stdin.write(f"{seconds}\t{points}\t{assumptions}\n")
                    worker.stdin.flush()
                answer = self._answers.get(timeout=_START_S + _PATIENCE * seconds)
            except (Empty, OSError):
                answer = None
            if answer is None:
                self._end()
            return answer or None

    def _running(self) -> subprocess.Popen[str]:
        if self._owner != os.getpid():  # a fork must not share pipes with its parent
            self._worker, self._owner = None, os.getpid()
        if self._worker is None or self._worker.poll() is not None:
            self._answers = Queue()
            script = str(Path(__file__).with_name("card_worker.py"))
            self._worker = subprocess.Popen(  # noqa: S603 - this package's own script
                [sys.executable, "-I", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
            )
            Thread(target=_read, args=(self._worker, self._answers), daemon=True).start()
        return self._worker

    def _end(self) -> None:
        if self._worker is not None and self._owner == os.getpid():
            self._worker.kill()
            for pipe in (self._worker.stdin, self._worker.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:  # the worker has ended with something unread
                        continue
            self._worker.wait()
        self._worker = None

    def close(self) -> None:
        """End the worker, if there is one."""
        with self._lock:
            self._end()


def _read(worker: subprocess.Popen[str], answers: Queue[str | None]) -> None:
    """Pass the worker's lines on, and None when it has ended."""
    if worker.stdout is not None:
        for line in worker.stdout:
            answers.put(line.rstrip("\n"))
    answers.put(None)


card_process = CardProcess()
