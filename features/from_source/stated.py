"""Whether what a user states of a source fits something in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex.features.from_source.walk import Walk

_LOOP = re.compile(r"\b(for|while|do)\b")
# As many lines and arrays are named.
_MOST_NAMED = 8


def without_a_fit(walk: Walk, trips: Iterable[str], arrays: Iterable[str]) -> str:
    """Return what stated trip counts and extents fit nothing, in words; empty if all do.

    Loops and arrays that this launch does not come to may be stated, too: of variants some do.
    """
    kernel, loops = walk.kernel, walk.recorder.loops
    for label in trips:
        if label in loops:
            continue
        header, _, line = label.rpartition(":")
        files = [name for name in kernel.included() if name.rpartition("/")[2] == header] if header else [""]
        if not any(_LOOP.search(kernel.text(int(line), file)) for file in files):
            return f"no loop begins in line {label}, where a trip count is stated; {_named('loops begin in', loops)}"
    known = walk.recorder.arrays
    text = kernel.source if set(arrays) - known.keys() else ""
    for name in arrays:
        if name not in known and not re.search(rf"\*\s*(\w+\s+)*{re.escape(name)}\b|\b{re.escape(name)}\s*\[", text):
            return f"no array is called {name!r}, for which an extent is stated; {_named('arrays are', known)}"
    return ""


def _named(words: str, names: Iterable[str]) -> str:
    listed = sorted(names, key=lambda name: (len(name), name))[:_MOST_NAMED]
    return f"{words} {', '.join(listed)}" if listed else "there is none"
