"""How a run ends when it has to: signals, and a watchdog for code that takes no signals."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .budget import CutShortError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["CUT_STATUS", "ends_by_itself"]

# As `timeout` reports it.
CUT_STATUS = 124
# A library that keeps Python's lock keeps the thread from working, too; this much later the C runtime ends it.
_LAST_S = 3.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM)


@contextmanager
def ends_by_itself(seconds: float, grace: float, last_words: Callable[[str], None]) -> Iterator[None]:
    """Raise `CutShortError` in the block on SIGTERM, SIGINT, SIGHUP, and when its time is over.

    Code that hangs in a library or driver runs no signal handler. So a thread ends the process all the same, without
    asking, `grace` seconds after that.

    Parameters
    ----------
    seconds
        Time of the block.
    grace
        Seconds between the error and the end of the process.
    last_words
        Called with the reason before the process is ended; what else was to be kept must be on disk by then.
    """
    over = threading.Event()
    told: list[str] = []
    ending = threading.Lock()

    def raise_cut(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        told.append("the whole budget is spent" if name == "SIGALRM" else f"it was told to end ({name})")
        for other in _SIGNALS:  # a second signal must not disturb what the first one began
            signal.signal(other, signal.SIG_IGN)
        threading.Thread(target=end, args=(grace,), daemon=True).start()
        raise CutShortError(told[0])

    def end(after: float) -> None:
        # After a signal at the very end of the time both threads come here at once; one of them speaks.
        if not over.wait(after) and ending.acquire(blocking=False):
            faulthandler.dump_traceback()
            last_words(told[0] if told else "the whole budget is spent, and it did not react")
            os._exit(CUT_STATUS)

    faulthandler.dump_traceback_later(seconds + grace + _LAST_S, exit=True)
    before = {number: signal.signal(number, raise_cut) for number in _SIGNALS}
    threading.Thread(target=end, args=(seconds + grace,), daemon=True).start()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)
