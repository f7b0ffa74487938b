"""Machine code in perflex's cache folder, by a text of all that it follows from; what nobody asks for is removed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from perflex.caches import own_cache
from perflex.errors import FileFormatError
from perflex.file_io import read_bytes, writing

if TYPE_CHECKING:
    from pathlib import Path

# Part of every key: counts what changes in how code is read or kept.
_SCHEME = 4
_KEPT_S = 30 * 86400


def place_of(*parts: object) -> Path:
    """Return the file for code that follows from these."""
    digest = hashlib.sha256(repr((_SCHEME, *parts)).encode("utf-8", "surrogatepass")).hexdigest()
    return own_cache() / "code" / digest[:2] / f"{digest}.json"


def kept(path: Path) -> Any:
    """Return what a file holds; None where there is none that can be read."""
    if not path.is_file():
        return None
    with suppress(OSError):  # a folder that is only read
        os.utime(path)
    with suppress(FileFormatError, OSError, ValueError):
        return json.loads(read_bytes(path))
    return None


def keep(path: Path, content: object) -> None:
    """Write a file. A cache that cannot be written costs a build the next time, nothing else."""
    with suppress(FileFormatError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with writing(path) as stream:
            json.dump(content, stream)
        _remove_unused(path.parents[1])


@cache
def _remove_unused(folder: Path) -> None:
    """Remove code that nobody has asked for since a month; once in a process."""
    latest = time.time() - _KEPT_S
    for path in folder.glob("*/*.json"):
        with suppress(OSError):  # another process has removed it
            if path.stat().st_mtime < latest:
                path.unlink()
