"""Counts points of sets in a process of its own; started by `_card_process`, never imported.

barvinok may take minutes for some sets, and cannot be interrupted: stopped inside, it goes on with null pointers. Here
the operating system ends the process instead, when a count has used up its processor time.

One request per line, ``SECONDS<tab>SET<tab>ASSUMPTIONS``; one answer per line: the count's text, or nothing for an
error.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

import islpy as isl


def _allow(seconds: float) -> None:
    """Let this process compute for so long from now on; 0 for ever."""
    # Windows has no such timer; there only the other process's patience limits a count.
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _answer(line: str) -> str:
    seconds, points, assumptions = line.rstrip("\n").split("\t")
    _allow(float(seconds))
    with suppress(isl.Error):
        assumed = isl.Set(assumptions).params()
        return str(isl.Set(points).card().coalesce().gist_params(assumed))
    return ""


def _main() -> None:
    for line in sys.stdin:
        answer = _answer(line)
        _allow(0)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


_main()
