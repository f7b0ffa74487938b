"""Modules that lie beside users' files: what one file imports is not what another one's of the same name is."""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Modules from beside users' files, by name; and the entry of the path that is there for the last file, if any.
_beside: dict[str, Path] = {}
_added: list[str] = []


@contextmanager
def modules_beside(folder: Path) -> Iterator[None]:
    """Let a file of a folder that is executed in the block import the modules beside it, and no others of their names.

    They can be imported until the next such block.
    """
    for entry in _added:
        if entry in sys.path:
            # The last: the same folder may stand in front for other reasons.
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(entry)]
    for name in [name for name, place in _beside.items() if place != folder]:
        if not ((folder / f"{name}.py").is_file() or (folder / name).is_dir()):
            continue
        del _beside[name]
        for each in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[each]
    # At the end of the path, so that a file beside the kernel hides no installed module.
    _added[:] = [] if str(folder) in sys.path else [str(folder)]
    sys.path += _added
    before = set(sys.modules)
    try:
        yield
    finally:
        for each in {name.partition(".")[0] for name in sys.modules} - before:
            origin = Path(getattr(sys.modules.get(each), "__file__", None) or "")
            if folder in origin.parents[:2]:
                _beside[each] = folder


def line_of(error: BaseException, path: Path) -> int | None:
    """Return the last line of an executed file that an error came through; None where it came through none."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None
