"""The store's file: opened when first used, reopened when another process replaced it, replaced when damaged."""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
import time
import warnings
import weakref
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from perflex.errors import PerflexWarning
from perflex.store.connection import abandon, companion, connect, is_damage, transaction
from perflex.store.faults import DamageError, UnusableError
from perflex.store.lock import folder_lock
from perflex.store.records import numbers_in_words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from perflex.store.recovery import Salvaged

_Result = TypeVar("_Result")

_COMPANIONS = ("-wal", "-shm")
# Marks a damaged file until the new one is complete: a process that is killed in between can be followed by another.
_PENDING = ".pending"
_PAUSE_S = 0.005
# More often than anything but another program that fights for the same file replaces it.
_MOST_REPLACEMENTS = 10


class StoreFile:
    """One SQLite file, used by any thread.

    A file found damaged is renamed, and a new one begun that has the measurements which the damaged one still shows.
    While another process has the old file open it may write there: after every commit it is made sure that the file
    is still the one of that name, else the work is done again in the new one.

    Parameters
    ----------
    path
        The file; it and its folder are made when needed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        _files.add(self)

    def use(
        self, work: Callable[[sqlite3.Connection], _Result], *, writes: bool = False, patience_s: float = 0.0
    ) -> _Result:
        """Return what `work` makes of the connection; it may be called again.

        Parameters
        ----------
        work
            Reads, or writes in one transaction.
        writes
            Give it a transaction.
        patience_s
            Try for so long when other processes are writing all the time.

        Raises
        ------
        UnusableError, DamageError, sqlite3.Error, OSError
            The file cannot be used.
        """
        with self._lock:
            try:
                return self._attempt(work, writes=writes, patience_s=patience_s)
            except (sqlite3.DatabaseError, DamageError, UnicodeDecodeError) as error:
                if not is_damage(error):
                    raise
                # Once only: if the new file is damaged, too, the caller is told.
                self.set_aside(str(error))
            return self._attempt(work, writes=writes, patience_s=patience_s)

    @property
    def is_open(self) -> bool:
        """Whether this process has the file open; then nothing but SQLite may read it, or its locks are gone."""
        return self._connection is not None

    def set_asides(self) -> list[Path]:
        """Return the damaged files that were set aside and are still there."""
        if not self.path.parent.is_dir():
            return []
        start = f"{self.path.name}.damaged-"
        names = (path for path in self.path.parent.iterdir() if path.name.startswith(start))
        return sorted(path for path in names if not path.name.endswith(_COMPANIONS))

    def is_pending(self) -> bool:
        """Return whether a damaged file was set aside and no new one has been begun yet."""
        return not self.path.exists() and bool(self._pending())

    def close(self) -> None:
        """Close the file; it is opened again when it is used again."""
        with self._lock:
            if self._connection is None:
                return
            # While the lock is held nobody renames the file: closing deletes the write-ahead log by its name.
            with suppress(TimeoutError), folder_lock(self.path.parent, alone=False):
                if self._is_current():
                    self._connection.close()
                    self._connection = None
            self._abandon_connection()

    def set_aside(self, reason: str) -> None:
        """Rename the damaged file, begin a new one with what the old one still shows, and say so.

        Raises
        ------
        sqlite3.Error, OSError
            The file cannot be renamed, or a new one not be written; what was measured is tried again at the next use.
        """
        with self._lock, folder_lock(self.path.parent, alone=True):
            if self._inode is None and self.path.exists():
                self._inode = self.path.stat().st_ino
            # Another process may have done it.
            aside = self._rename() if self._is_current() else None
            self._abandon_connection()
            found = None if aside is None else self._begin_anew(aside)
        if aside is not None:
            msg = f"the store {self.path} is damaged ({reason}); it is now {aside}{_salvaged_text(found)}"
            warnings.warn(msg, PerflexWarning, stacklevel=2)

    def _attempt(self, work: Callable[[sqlite3.Connection], _Result], *, writes: bool, patience_s: float) -> _Result:
        deadline, replaced = time.monotonic() + patience_s, 0
        while True:
            try:
                connection = self._opened()
                if not writes:
                    return work(connection)
                with transaction(connection):
                    result = work(connection)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
                continue
            if self._is_current():
                return result
            replaced += 1
            if replaced == _MOST_REPLACEMENTS:
                msg = "is replaced again and again by other processes"
                raise UnusableError(msg)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and not self._is_current():
            self._abandon_connection()
        if self._connection is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                msg = f"cannot be made ({error.strerror}: {error.filename})"
                raise UnusableError(msg) from None
            # Before connecting, which makes an empty file: then nothing would be pending any more.
            self._finish_pending()
            # So that the connection and the inode are of the same file.
            with folder_lock(self.path.parent, alone=False):
                self._inode = None
                try:
                    self._connection = connect(self.path)
                finally:
                    # After a failure, too: `set_aside` must know which file was found damaged.
                    with suppress(OSError):
                        self._inode = self.path.stat().st_ino
            _open_files.add(self)
        return self._connection

    def _is_current(self) -> bool:
        """Return whether the file is still the one of its name."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def _abandon_connection(self) -> None:
        abandon(self._connection)
        self._connection = None
        _open_files.discard(self)

    def _rename(self) -> Path:
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        aside = self.path.with_name(f"{self.path.name}.damaged-{stamp}-{os.getpid()}")
        self.path.rename(companion(aside, _PENDING))
        return aside

    def _finish_pending(self) -> None:
        """Begin the new file where another process was killed after it had set the damaged one aside."""
        if not self.is_pending():
            return
        with folder_lock(self.path.parent, alone=True):
            # Another process may have been faster.
            for pending in [] if self.path.exists() else self._pending()[-1:]:
                self._begin_anew(pending.with_name(pending.name.removesuffix(_PENDING)))

    def _pending(self) -> list[Path]:
        return [path for path in self.set_asides() if path.name.endswith(_PENDING)]

    def _begin_anew(self, aside: Path) -> Salvaged:
        from perflex.store.recovery import salvage

        pending = companion(aside, _PENDING)
        # SQLite would replay a log that lies beside a new file of the old name.
        for suffix in _COMPANIONS:
            with suppress(FileNotFoundError):
                companion(self.path, suffix).rename(companion(aside, suffix))
        fresh = self.path.with_name(f"{self.path.name}.new-{os.getpid()}")
        try:
            connection = connect(fresh)
            try:
                with transaction(connection):
                    found = salvage(pending, companion(aside, "-wal"), connection)
            finally:
                # Before the rename: closing copies the log into the file and deletes it.
                connection.close()
            fresh.rename(self.path)
        finally:
            for suffix in ("", *_COMPANIONS):
                companion(fresh, suffix).unlink(missing_ok=True)
        pending.rename(aside)
        return found

    def forget_connection(self) -> None:
        """Begin afresh in a forked process: SQLite forbids to use, or even close, an inherited connection."""
        self._abandon_connection()
        # Another thread of the parent may have held the old one, and will never give it back here.
        self._lock = threading.RLock()


def _salvaged_text(found: Salvaged | None) -> str:
    if found is None or not (found.samples or found.failures):
        return "; a new one was begun"
    return (
        f"; a new one has what could be read of it: {numbers_in_words(found.samples, found.failures, found.nameless)}"
    )


_files: weakref.WeakSet[StoreFile] = weakref.WeakSet()
# Referenced here so that none is garbage-collected: that would close the connection without looking whether the file
# was renamed meanwhile, and SQLite would delete the write-ahead log of the file that has its name now.
_open_files: set[StoreFile] = set()


def _close_all() -> None:
    for file in list(_open_files):
        with suppress(sqlite3.Error):
            file.close()


def _after_fork() -> None:
    for file in list(_files):
        file.forget_connection()
    _open_files.clear()


# Before the interpreter closes all connections at its end, those of renamed files, too (see `abandon`).
atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
