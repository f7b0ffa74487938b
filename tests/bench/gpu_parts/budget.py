"""A time budget that is divided among parts: what one leaves over, those after it have."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Allotted", "Budget", "CutShortError", "TimeUpError", "parse_seconds"]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|min|m|h)?")
_UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


class TimeUpError(Exception):
    """A part has used up its time; what it has is kept."""


class CutShortError(BaseException):
    """The run was told to end, or its budget is spent: no part may go on. No part's `except Exception` catches it."""


def parse_seconds(text: str) -> float:
    """Return a duration such as ``8min``, ``90s`` or ``90`` in seconds.

    Raises
    ------
    ValueError
        It is none, or not above zero.
    """
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if seconds <= 0:
        msg = f"{text!r} is no duration above zero; write it as 8min, 90s or 0.5h"
        raise ValueError(msg)
    return seconds


@dataclass(frozen=True)
class Allotted:
    """The time of one part.

    Attributes
    ----------
    seconds
        How much it has.
    deadline
        When it is over, by `clock`, in seconds.
    clock
        What time it is.
    """

    seconds: float
    deadline: float
    clock: Callable[[], float] = time.monotonic

    @property
    def left(self) -> float:
        """Seconds that remain; negative when it is over."""
        return self.deadline - self.clock()

    def check(self) -> None:
        """Do nothing while time remains.

        Raises
        ------
        TimeUpError
            None does.
        """
        if self.left <= 0:
            msg = f"its share of the budget, {self.seconds:.0f} s, is spent"
            raise TimeUpError(msg)

    def progress(self, done: int, total: int, what: str) -> None:  # noqa: ARG002 - what measuring calls
        """As `check`: measuring calls this before each kernel."""
        self.check()

    def part(self, share: float) -> Allotted:
        """Return a share of what remains, a fraction."""
        seconds = max(0.0, self.left) * share
        return Allotted(seconds, min(self.deadline, self.clock() + seconds), self.clock)


class Budget:
    """The time of the whole run.

    Parameters
    ----------
    seconds
        How much there is.
    reserve
        Seconds at the end that no part gets: for the report.
    clock
        What time it is, in seconds.
    """

    def __init__(self, seconds: float, *, reserve: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self.started = clock()
        self._end = self.started + max(0.0, seconds - reserve)

    @property
    def used(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self.started

    @property
    def left(self) -> float:
        """Seconds that parts may still use; negative when it is over."""
        return self._end - self._clock()

    def allot(self, weights: Sequence[float]) -> Allotted:
        """Return the time of the first of the parts that are still to come.

        Parameters
        ----------
        weights
            Of all that are to come, the first one's first: it gets its weight's share of what remains.
        """
        seconds = max(0.0, self.left) * weights[0] / sum(weights)
        return Allotted(seconds, self._clock() + seconds, self._clock)
