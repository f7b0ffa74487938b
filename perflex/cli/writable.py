"""Finding out that results cannot be written before minutes of measuring, not after."""

from __future__ import annotations

from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from perflex.cli.arguments import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["require_writable_file", "require_writable_folder"]


def require_writable_folder(folder: Path) -> None:
    """Make the folder if it is not there, and make sure that files can be made in it; leaves none behind.

    Raises
    ------
    ArgumentError
        Files cannot be made there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; name another folder with --out"
        raise ArgumentError(msg, path=folder) from error


def require_writable_file(path: Path) -> None:
    """Make sure that a file can be made or replaced; leaves nothing behind.

    Raises
    ------
    ArgumentError
        The path is a folder, or its folder is missing or takes no files.
    """
    try:
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}; name another file with --out"
        raise ArgumentError(msg, path=path) from error
    if path.is_dir():
        msg = f"cannot write {path}: it is a folder; name a file with --out"
        raise ArgumentError(msg, path=path)
