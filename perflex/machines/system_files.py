"""Reading what Linux reports in files; what is not there stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_text(path: Path) -> str:
    """Return a file's text; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def read_number(path: Path) -> int | None:
    """Return the natural number in a file; None where the file is missing or says something else."""
    text = read_text(path)
    return int(text) if text.isdecimal() else None


def read_list(path: Path) -> list[int]:
    """Return the numbers of a list such as ``0-3,8``; none where the file is missing or says something else."""
    found: list[int] = []
    for part in read_text(path).split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            return []
        found += range(int(first), int(last or first) + 1)
    return found
