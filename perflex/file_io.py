"""Reading and writing users' files: never waiting for a device or a pipe, never half a file."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import stat
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from perflex.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Far more than any file of perflex has; a larger one would fill the memory before its first line is judged.
MOST_BYTES = 32 * 2**20
_MOUNTS = Path("/proc/self/mountinfo")
# File systems that one host alone uses.
_LOCAL = frozenset((
    "aufs", "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "jfs", "nilfs2", "overlay",
    "ramfs", "reiserfs", "tmpfs", "vfat", "xfs", "zfs",
))  # fmt: skip
# Blanks and the like in names of that table.
_UNPRINTED = re.compile(r"\\([0-7]{3})")


def read_bytes(path: Path | str, *, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file of at most so many bytes; anything else is a FileFormatError."""
    path = Path(path)
    try:
        # Before it is opened, for that alone makes some devices act; and after, for it may be another one by then.
        _require_regular(path, path.stat())
        # Without waiting, as opening a pipe does until somebody writes into it.
        with open(path, "rb", opener=_without_waiting) as stream:
            _require_regular(path, os.fstat(stream.fileno()))
            # The size that the system states is not asked: files grow, and some have none.
            content = stream.read(most + 1)
    # ValueError: a name with a zero byte.
    except (OSError, ValueError) as error:
        msg = f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        raise FileFormatError(msg, path=path) from error
    if len(content) > most:
        msg = f"{path} is larger than {most} bytes; it is not a file of perflex"
        raise FileFormatError(msg, path=path)
    return content


def read_text(path: Path | str, *, most: int = MOST_BYTES) -> str:
    """Return the content of a regular file in UTF-8, with or without the mark of that encoding."""
    content = read_bytes(path, most=most)
    try:
        # Spreadsheets and editors begin their files with a mark of the encoding.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{path} is not a text file: byte {error.start} is no UTF-8; it is damaged or foreign"
        raise FileFormatError(msg, path=Path(path)) from error


def read_packed_text(path: Path | str, *, most: int = MOST_BYTES) -> str:
    """Return the content of a regular file in UTF-8, unpacked where its name ends in ``.gz``.

    It may have so many bytes, packed and unpacked.
    """
    return unpacked_text(read_bytes(path, most=most), Path(path), most=most)


def unpacked_text(content: bytes, path: Path, *, most: int = MOST_BYTES) -> str:
    """Return the text in what was read of a file; arguments and errors as `read_packed_text`."""
    try:
        if path.name.endswith(".gz"):
            with gzip.open(io.BytesIO(content)) as stream:
                # One byte more than allowed shows what unpacks to too much, without unpacking all of it.
                content = stream.read(most + 1)
        if len(content) > most:
            msg = f"{path} unpacks to more than {most} bytes; split it"
            raise FileFormatError(msg, path=path)
        # Spreadsheets begin their tables with a mark of the encoding.
        return content.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        msg = f"cannot read {path}: {error}"
        raise FileFormatError(msg, path=path) from error


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _require_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "a device, a pipe or a socket"
        msg = f"cannot read {path}: it is {what}; name a regular file"
        raise FileFormatError(msg, path=path)


def is_on_local_disk(path: Path, mounts: Path = _MOUNTS) -> bool:
    """Return whether no other host can use a file; False where the system does not tell.

    `mounts` is Linux' table of mounted file systems, see proc_pid_mountinfo(5).
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        place = path.resolve()
    except OSError:
        return False
    kind, deepest = "", -1
    for line in lines:
        before, _, after = line.partition(" - ")
        mounted = Path(_UNPRINTED.sub(lambda found: chr(int(found[1], 8)), before.split()[4]))
        # Of several at one place the last one hides the others.
        if place.is_relative_to(mounted) and len(mounted.parts) >= deepest:
            kind, deepest = after.split()[0], len(mounted.parts)
    return kind in _LOCAL


@contextmanager
def writing(path: Path | str, *, binary: bool = False) -> Iterator[IO[Any]]:
    """Yield a stream, what is written to which becomes a file's content in one step at the end of the block.

    After an error the file is as it was. A link stays a link. What is there and no regular file, such as
    ``/dev/null`` or a pipe, is written to and never replaced. Texts are written as they are in UTF-8. What cannot be
    written is an OSError.
    """
    path = Path(path)
    how: dict[str, Any] = {"mode": "wb"} if binary else {"mode": "w", "encoding": "utf-8", "newline": ""}
    if path.exists() and not path.is_file():
        # Neither waits: a pipe that nobody reads is an error.
        with open(path, opener=_without_waiting, **how) as stream:
            os.set_blocking(stream.fileno(), True)
            yield stream
        return
    target = path.resolve()
    # A temporary file is readable for its owner alone; the new file gets the rights of the one that it replaces.
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    # In the same folder, for only within one file system a rename is one step; and on the disk before it.
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False, **how) as stream:
        temporary = Path(stream.name)
        try:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            temporary.chmod(mode)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def saving(path: Path | str, *, binary: bool = False) -> Iterator[IO[Any]]:
    """Do what `writing` does; where the file cannot be written, that is a FileFormatError."""
    try:
        with writing(path, binary=binary) as stream:
            yield stream
    # ValueError: a name with a zero byte.
    except (OSError, ValueError) as error:
        msg = f"cannot write {path}: {getattr(error, 'strerror', None) or error}; name another file"
        raise FileFormatError(msg, path=Path(path)) from error


def require_writable(path: Path | str, *, regular: bool = False) -> None:
    """Raise a FileFormatError where `writing` would refuse a file, or it is to be regular and is not.

    Leaves nothing behind.
    """
    path, cause = Path(path), ""
    try:
        if path.is_dir():
            cause = "it is a folder"
        elif path.exists() and not path.is_file():
            if regular:
                cause = "it is a device or a pipe, which cannot be read again"
            elif not os.access(path, os.W_OK):
                cause = "it takes no writing"
        else:
            # Only making a file shows what permissions, read-only mounts and quotas allow.
            with tempfile.TemporaryFile(dir=path.resolve().parent):
                pass
    # ValueError: a name with a zero byte.
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
    if cause:
        msg = f"cannot write {path}: {cause}; name another file"
        raise FileFormatError(msg, path=path)


def csv_rows(text: str, path: Path) -> list[tuple[int, dict[str, str]]]:
    """Return the rows below the heading of a table, each as the number of its last line and its texts by column.

    Columns without a name are left out: programs write the numbers of rows into such. The path is for messages.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows = []
    try:
        names = [name for name in reader.fieldnames or () if name]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            msg = f"{path} has two columns {twice!r}; rename one of them"
            raise FileFormatError(msg, path=path, field=twice)
        for row in reader:
            # DictReader keeps surplus fields under the key None, and gives missing ones the value None.
            if None in row or None in row.values():
                msg = f"{path}, line {reader.line_num}: it has another number of fields than the heading"
                raise FileFormatError(msg, path=path, line=reader.line_num)
            rows.append((reader.line_num, {name: row[name] for name in names}))
    except csv.Error as error:
        msg = f"{path}, line {reader.line_num}: it is no row of a CSV file: {error}"
        raise FileFormatError(msg, path=path, line=reader.line_num) from error
    if not rows:
        msg = f"{path} has no rows below a heading"
        raise FileFormatError(msg, path=path)
    return rows
