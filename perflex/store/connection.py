"""Opening the store's file: whose it is, whether it is whole, and the tables it must have."""

from __future__ import annotations

import ctypes
import re
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perflex.store.faults import DamageError, UnusableError
from perflex.store.rows import seal
from perflex.store.schema import APPLICATION, MIGRATIONS
from perflex.store.write_ahead_log import log_is_damaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH}
# The store's statements are always the same: where SQLite does not take one, the tables are not those that were made.
_TABLES = "scops|kernels|counts|versions|measurement_keys|samples|failures|unfinished(_work)?"
_OTHER_TABLES = re.compile(
    rf"no such table: (main\.)?({_TABLES})$|no such column|has (no column|\d+ columns)|already exists|duplicate column"
)
# Another process may be writing; so long one statement waits for it.
_BUSY_S = 5.0
# Of the write-ahead log so much stays when it has been copied into the file.
_WAL_BYTES = 16 * 2**20


def is_damage(error: BaseException) -> bool:
    """Return whether an error says that the file is damaged."""
    # The low byte is the kind of failure.
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    other_tables = kind == sqlite3.SQLITE_ERROR and _OTHER_TABLES.search(str(error)) is not None
    # sqlite3 fails to read SQLite's own message where that shows a damaged name.
    return isinstance(error, (DamageError, UnicodeDecodeError)) or kind in _DAMAGE or other_tables


def store_fault(error: Exception) -> str:
    """Return what is wrong with the store's file, as the rest of a sentence about it."""
    if isinstance(error, UnusableError):
        return str(error)
    if is_damage(error):
        return f"is damaged ({error})"
    reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return f"cannot be used ({reason})"


def companion(path: Path, suffix: str) -> Path:
    """Return a file that SQLite keeps beside another: ``-wal``, ``-shm``."""
    return path.with_name(path.name + suffix)


def lossy_text(text: bytes) -> str:
    """Decode a text of a file; bytes that are no Unicode are replaced.

    Damage leaves such bytes. sqlite3 would fail at them with an error that does not say so; this way the checksums
    find the damaged row, and the rows after it are still read.
    """
    return text.decode("utf-8", "replace")


def connect(path: Path) -> sqlite3.Connection:
    """Open a file, make the tables that are missing, and look for damage that shows without reading everything.

    Raises
    ------
    UnusableError
        It is another program's file, or a newer perflex's.
    DamageError, sqlite3.Error, OSError
        It is damaged, or cannot be used.
    """
    if path.exists() and not path.is_file():
        msg = "is no regular file"
        raise UnusableError(msg)
    # No isolation level: sqlite3 would begin transactions of its own. Threads take turns by the lock of `StoreFile`.
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    connection.text_factory = lossy_text
    connection.create_function("seal", -1, seal, deterministic=True)
    try:
        # A commit is with the system when it returns: only a failing system, not a failing process, can lose it.
        connection.execute("PRAGMA synchronous=NORMAL")
        version = require_own(connection)
        _require_whole_log(connection, companion(path, "-wal"))
        if version < len(MIGRATIONS):
            _make_tables(connection)
        connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES}")
        # Off by default, and a setting of the connection, not of the file.
        connection.execute("PRAGMA foreign_keys=ON")
        # The newest rows' pages and all above them.
        for table in ("samples", "failures"):
            connection.execute(f"SELECT * FROM {table} ORDER BY number DESC LIMIT 1").fetchall()  # noqa: S608
    except BaseException as error:
        if is_damage(error):
            # Closing would copy the sound part of the write-ahead log into the file, and delete the log.
            abandon(connection)
        else:
            connection.close()
        raise
    return connection


def require_own(connection: sqlite3.Connection) -> int:
    """Return how many steps of `MIGRATIONS` a file has, 0 for a new one.

    Raises
    ------
    UnusableError
        It is another program's file, or a newer perflex's.
    """
    # In this order: another process may just be making the tables.
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    version = _number(connection, "user_version")
    if tables and _number(connection, "application_id") != APPLICATION:
        msg = "is another program's SQLite file"
        raise UnusableError(msg)
    if version > len(MIGRATIONS):
        msg = f"was written by a newer perflex (format {version}, this one knows {len(MIGRATIONS)}); update perflex"
        raise UnusableError(msg)
    return version


def _require_whole_log(connection: sqlite3.Connection, wal: Path) -> None:
    page_size = _number(connection, "page_size")
    if not log_is_damaged(wal, page_size):
        return
    # Another process may have begun the log anew while it was read; now nobody writes.
    with transaction(connection):
        damaged = log_is_damaged(wal, page_size)
    if damaged:
        msg = "its write-ahead log is damaged"
        raise DamageError(msg)


def _make_tables(connection: sqlite3.Connection) -> None:
    # Before the transaction, in which the mode cannot change; the file keeps it.
    connection.execute("PRAGMA journal_mode=WAL")
    with transaction(connection):
        # Another process may have been faster.
        for migration in MIGRATIONS[_number(connection, "user_version") :]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute(f"PRAGMA user_version={len(MIGRATIONS)}")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write in the block: all of it or, after an error, nothing."""
    # Takes the write lock at once: a transaction that begins by reading fails without waiting where another one wrote.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.commit()
    except BaseException:
        # SQLite has often done so itself.
        if connection.in_transaction:
            connection.rollback()
        raise


def abandon(connection: sqlite3.Connection | None) -> None:
    """Leave a connection open until the process ends, and never close it.

    In a forked process closing would break the parent's locks. Where the file was renamed, it would delete the
    write-ahead log of the file that has its name now.
    """
    if connection is not None:
        # A reference that nobody gives back: no garbage collection closes the connection.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
