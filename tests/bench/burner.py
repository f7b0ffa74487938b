"""Processes that take processors from measurements: ``python tests/bench/burner.py ON_S OFF_S PARENT`` is one of them.

`burning` starts them and ends them for certain: they are killed at the end of its block, whatever ends it, and end by
themselves when the process that started them is gone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# A burner looks so often whether its parent is still there.
_LOOK_S = 0.05
_STARTED = "burning"


@contextlib.contextmanager
def burning(on_s: float, off_s: float, processes: int = 1) -> Iterator[tuple[int, ...]]:
    """Keep processors busy while the block runs, and yield the numbers of the processes, all of which burn already.

    Each of them, not in step, burns one processor for `on_s` seconds, then sleeps for `off_s`, and so on.
    """
    if not (on_s > 0 and off_s >= 0 and processes >= 1):
        msg = f"burning needs on_s > 0, off_s >= 0 and a process at least, got {on_s}, {off_s} and {processes}"
        raise ValueError(msg)
    # Isolated and without site packages: it starts in 20 ms and imports nothing of the project.
    command = [sys.executable, "-I", "-S", __file__, repr(on_s), repr(off_s), str(os.getpid())]
    started: list[subprocess.Popen[str]] = []
    try:
        while len(started) < processes:
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
        for process in started:
            if process.stdout is None or process.stdout.readline().strip() != _STARTED:
                msg = f"the burner did not start: {' '.join(command)}"
                raise RuntimeError(msg)
        yield tuple(process.pid for process in started)
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def burn(on_s: float, off_s: float, parent: int) -> None:
    """Burn and sleep in turns until the parent process is gone."""
    while os.getppid() == parent:
        _spend(on_s, parent, burns=True)
        _spend(off_s, parent, burns=False)


def _spend(seconds: float, parent: int, *, burns: bool) -> None:
    end = time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0 and os.getppid() == parent:
        look = time.perf_counter() + min(_LOOK_S, left)
        if not burns:
            time.sleep(min(_LOOK_S, left))
        while burns and time.perf_counter() < look:
            pass


if __name__ == "__main__":
    print(_STARTED, flush=True)
    burn(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
