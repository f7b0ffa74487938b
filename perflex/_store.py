"""The store: one SQLite file in the user's cache directory, shared by all processes.

What is in it can be counted or measured again, so that nothing here ever fails a caller: where the file cannot be
used, one warning says why, reading finds nothing, and writing does nothing.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import warnings
import weakref
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from platformdirs import user_cache_path

from perflex._store_tables import APPLICATION, MIGRATIONS
from perflex._warnings import PerflexWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Store", "StorePlace", "current_store", "store_at", "using_store"]

StorePlace: TypeAlias = "str | Path | Store"

_VARIABLE = "PERFLEX_STORE"
_OFF = {"", "off"}
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# Another process may be writing; so long it is waited for.
_BUSY_S = 5.0


class _UnusableError(Exception):
    """The file is not for this version to use; never leaves this module."""


class Store:
    """One SQLite file, opened when first used and used by any thread.

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
        self._given_up = False
        self._done: set[str] = set()
        _stores.add(self)

    def read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; none where the file cannot be used."""

        def fetch(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return connection.execute(query, values).fetchall()

        return self._guarded(fetch) or []

    def write(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> None:
        """Execute statements in one transaction; nothing happens where the file cannot be used."""

        def execute(connection: sqlite3.Connection) -> None:
            with _transaction(connection):
                for statement, values in statements:
                    connection.execute(statement, values)

        self._guarded(execute)

    def first_time(self, what: str) -> bool:
        """Return whether this is asked for the first time, of this store in this process."""
        with self._lock:
            first = what not in self._done
            self._done.add(what)
            return first

    def close(self) -> None:
        """Close the file; it is opened again when it is used again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def set_aside(self, reason: str) -> None:
        """Rename a damaged file, say so, and go on without."""
        with self._lock:
            if self._given_up:
                return
            self.close()
            try:
                aside = self._rename()
            except OSError as error:
                self._give_up(f"is damaged ({reason}) and cannot be renamed ({error.strerror})")
                return
            told = f"; it is now {aside}" if aside is not None else ""
            self._give_up(f"is damaged ({reason}){told}")

    def _rename(self) -> Path | None:
        # Another process may have set the same file aside already, and begun a new one.
        if not self.path.exists() or self.path.stat().st_ino != self._inode:
            return None
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        aside = self.path.with_name(f"{self.path.name}.damaged-{stamp}-{os.getpid()}")
        self.path.rename(aside)
        for suffix in ("-wal", "-shm"):
            companion = self.path.with_name(self.path.name + suffix)
            if companion.exists():
                companion.rename(aside.with_name(aside.name + suffix))
        return aside

    def _give_up(self, reason: str) -> None:
        if not self._given_up:
            self._given_up = True
            self.close()
            msg = f"the store {self.path} {reason}; nothing is remembered in this process (PERFLEX_STORE names another)"
            warnings.warn(msg, PerflexWarning, stacklevel=2)

    def _guarded(self, use: Callable[[sqlite3.Connection], Any]) -> Any:
        """Return what `use` makes of the connection, or None."""
        with self._lock:
            if self._given_up:
                return None
            try:
                if self._connection is None:
                    self._connection = self._open()
                return use(self._connection)
            except (_UnusableError, OSError) as error:
                self._give_up(str(error))
            except sqlite3.Error as error:
                # The low byte is the kind of failure.
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
                    self.set_aside(str(error))
                else:
                    self._give_up(f"cannot be used ({error})")
            return None

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"cannot be made ({error.strerror})"
            raise _UnusableError(msg) from None
        connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        self._inode = self.path.stat().st_ino
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _forget_connection(self) -> None:
        # SQLite forbids to use, or even close, a connection in a forked process.
        _inherited.append(self._connection)
        self._connection = None
        self._lock = threading.RLock()


def _prepare(connection: sqlite3.Connection) -> None:
    """Check whose file it is, and make the tables that are missing."""
    connection.execute("PRAGMA synchronous=NORMAL")
    version = _number(connection, "user_version")
    if version == len(MIGRATIONS) and _number(connection, "application_id") == APPLICATION:
        return
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables and _number(connection, "application_id") != APPLICATION:
        msg = "is another program's SQLite file"
        raise _UnusableError(msg)
    if version > len(MIGRATIONS):
        msg = f"was written by a newer perflex (format {version}, this one knows {len(MIGRATIONS)}); update perflex"
        raise _UnusableError(msg)
    connection.execute("PRAGMA journal_mode=WAL")
    with _transaction(connection):
        # Another process may have been faster.
        for migration in MIGRATIONS[_number(connection, "user_version") :]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute(f"PRAGMA user_version={len(MIGRATIONS)}")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_inherited: list[sqlite3.Connection | None] = []
_by_name: dict[str, Store] = {}
_chosen: ContextVar[Store | None] = ContextVar("perflex_store")


def _after_fork() -> None:
    for store in list(_stores):
        store._forget_connection()  # noqa: SLF001 - same module


os.register_at_fork(after_in_child=_after_fork)


def store_at(place: StorePlace) -> Store | None:
    """Return the store in a file: one object per file. An empty name or ``"off"`` means none."""
    if isinstance(place, Store):
        return place
    name = str(place)
    if name in _OFF:
        return None
    if name not in _by_name:
        path = str(Path(name).expanduser().absolute())
        _by_name[name] = _by_name.setdefault(path, Store(Path(path)))
    return _by_name[name]


def current_store() -> Store | None:
    """Return the store in use: that of `using_store`, else PERFLEX_STORE's, else the one in the cache directory."""
    try:
        return _chosen.get()
    except LookupError:
        place = os.environ.get(_VARIABLE)
        return store_at(_default_path() if place is None else place)


@lru_cache(maxsize=1)
def _default_path() -> Path:
    return user_cache_path("perflex") / "store.sqlite"


@contextmanager
def using_store(place: StorePlace | None) -> Iterator[None]:
    """Use a store in the block, in this thread; None leaves things as they are."""
    if place is None:
        yield
        return
    token = _chosen.set(store_at(place))
    try:
        yield
    finally:
        _chosen.reset(token)
