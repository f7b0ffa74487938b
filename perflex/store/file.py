"""The store's file: opened when first used, set aside where it cannot be used, so that a new one is begun."""

from __future__ import annotations

import atexit
import errno
import os
import sqlite3
import threading
import time
import weakref
from collections import Counter
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import quote

from perflex.errors import StoreError, warn
from perflex.file_io import is_on_local_disk
from perflex.store.rows import APPLICATION, CHECKED, CREATE_STATEMENTS, FORMAT, DamageError, is_sound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_Result = TypeVar("_Result")

VARIABLE = "PERFLEX_STORE"
# Not every command that measures has the option.
_BY = f"({VARIABLE}, or --store if the command has it)"
# So long SQLite waits for other processes that write.
BUSY_S = 30.0
_PAUSE_S = 0.005
# Of the write-ahead log so much stays when it has been copied into the file.
_LOG_BYTES = 16 * 2**20
_MAGIC = b"SQLite format 3\x00"
_COMPANIONS = ("-wal", "-shm")
_MOST_PROBLEMS = 20
# What is raised at damage; sqlite3 fails to read SQLite's own message where that shows a damaged name.
_FAULTS = (sqlite3.DatabaseError, UnicodeDecodeError)
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
# Extended codes: their low byte, SQLITE_IOERR, is that of failed reads, too.
_NOT_WRITTEN = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}


class _UnusableError(Exception):
    """Why the file is not for this version to use; then what to do but to name another, if anything."""


class _OldFormatError(_UnusableError):
    """The file is of an earlier version's format."""


def _kind(error: BaseException) -> int:
    """Return SQLite's primary code of an error; 0 for others."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_damage(error: BaseException) -> bool:
    return isinstance(error, (DamageError, UnicodeDecodeError)) or _kind(error) in _DAMAGE


def _fault(error: Exception) -> str:
    """Return what is wrong with the store's file and what to do, as the rest of a sentence about it."""
    code, kind, number = getattr(error, "sqlite_errorcode", 0), _kind(error), getattr(error, "errno", None)
    if kind == sqlite3.SQLITE_FULL or code in _NOT_WRITTEN or number in _FULL:
        return f"cannot grow: {error}; free space, or name a file elsewhere {_BY}"
    if kind in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM} or number in _READ_ONLY:
        return f"cannot be written: {error}; change its permissions, or name another file {_BY}"
    if kind == sqlite3.SQLITE_BUSY:
        return f"has been locked for {BUSY_S:.0f} s; end the process that holds it, or name another file {_BY}"
    if isinstance(error, _UnusableError):
        what, *remedies = error.args
        return f"{what}; {', or '.join([*remedies, 'name another file'])} {_BY}"
    return f"{'is damaged' if _is_damage(error) else 'cannot be used'} ({error}); name another file {_BY}"


def is_database(path: Path) -> bool:
    """Return whether a file is one of SQLite's, or empty; to be asked before this process opens it otherwise."""
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) in {_MAGIC, b""}


class Examination(NamedTuple):
    """How many sound rows there are, by table or ``"samples"`` and ``"failures"``, and what is wrong, in words."""

    sound: Mapping[str, int]
    problems: tuple[str, ...]


class StoreFile:
    """One SQLite file, used by any thread.

    Where it is used, a file that is damaged or of an older format gets another name, and a new one is begun; where it
    is only looked at, nothing changes. Every method that reads or writes raises a StoreError where the file cannot be
    used; it names the file and what to do, and what was added before stays.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._opened = 0
        self._was_set_aside = False
        _files.add(self)

    def __del__(self) -> None:
        # Python warns of connections that nobody closed.
        with suppress(sqlite3.Error):
            self.close()

    def use(self, work: Callable[[sqlite3.Connection], _Result], *, writes: bool = False) -> _Result:
        """Return what `work` makes of the connection, in a transaction where it writes; it may be called again."""
        with self._named(), self._lock:
            try:
                return self._attempt(work, writes=writes)
            except (*_FAULTS, DamageError, _OldFormatError) as error:
                # Once only: if the new file is damaged, too, the caller is told.
                if not (isinstance(error, _OldFormatError) or _is_damage(error)) or self._was_set_aside:
                    raise
                self._set_aside(error.args[0] if isinstance(error, _OldFormatError) else f"is damaged ({error})")
            return self._attempt(work, writes=writes)

    def look(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Return what `work` reads; the file is neither made nor changed nor given another name."""
        with self._named(), closing(_reading(self.path)) as connection:
            if not _has_tables(connection):
                msg = "is empty"
                raise _UnusableError(msg)
            return work(connection)

    def examine(self) -> Examination:
        """Check the file, which is not changed."""
        with self._named(), closing(_reading(self.path)) as connection:
            return _examined(connection)

    def close(self) -> None:
        """Close the file; it is opened again when it is used again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def set_asides(self) -> list[Path]:
        """Return the files, damaged or of older formats, that were set aside and are still there."""
        found = self.path.parent.glob(f"{self.path.name}.aside-*")
        return sorted(path for path in found if not path.name.endswith(_COMPANIONS))

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (_UnusableError, DamageError, OSError, sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            msg = f"the store {self.path} {_fault(error)}"
            raise StoreError(msg, path=self.path) from error

    def _set_aside(self, reason: str) -> None:
        """Give the file another name, so that a new one is begun, and say so."""
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        aside = self.path.with_name(f"{self.path.name}.aside-{stamp}-{os.getpid()}")
        self.close()
        # Another process may have been faster.
        if _inode(self.path) != self._opened:
            return
        for suffix in (*_COMPANIONS, ""):
            with suppress(FileNotFoundError):
                self.path.with_name(self.path.name + suffix).rename(aside.with_name(aside.name + suffix))
        self._was_set_aside = True
        msg = f"the store {self.path} {reason}; it is now {aside}, and a new one has been begun"
        warn(msg)

    def _attempt(self, work: Callable[[sqlite3.Connection], _Result], *, writes: bool) -> _Result:
        if self._connection is not None and _inode(self.path) != self._opened:
            # Somebody removed the file, or put another in its place.
            self.close()
        if self._connection is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                msg = f"cannot be made ({error.strerror}: {error.filename})"
                raise _UnusableError(msg) from None
            self._opened = _inode(self.path)
            self._connection = _opened_store(self.path)
            self._opened = _inode(self.path)
        if not writes:
            return work(self._connection)
        with _transaction(self._connection):
            return work(self._connection)

    def forget_connection(self) -> None:
        """Begin afresh in a forked process: SQLite forbids to use an inherited connection, or to close it."""
        _inherited.append(self._connection)
        self._connection = None
        # Another thread of the parent may have held the old one, and will never give it back here.
        self._lock = threading.RLock()


def _inode(path: Path) -> int:
    """Return what tells files of one name apart; 0 where there is none."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _connected(path: Path, how: str = "mode=rwc") -> sqlite3.Connection:
    # Quoted: a "?" or "#" in the path would end it. No isolation level: sqlite3 would begin transactions of its own.
    # Threads take turns by the lock of `StoreFile`.
    place = f"file:{quote(str(path))}?{how}"
    connection = sqlite3.connect(place, timeout=BUSY_S, isolation_level=None, check_same_thread=False, uri=True)
    # sqlite3 would fail at a damaged text with an error that does not say so; this way its checksum is wrong.
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    return connection


def _reading(path: Path) -> sqlite3.Connection:
    """Open a file that stays as it is, also in a folder that cannot be written."""
    connection = _connected(path, "mode=ro")
    try:
        connection.execute("PRAGMA user_version")
    except _FAULTS as error:
        # SQLite wants to put the memory that readers and writers share beside it. Nobody writes where there is no log.
        refused = _kind(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
        if refused and not path.with_name(f"{path.name}-wal").exists():
            connection.close()
            return _connected(path, "mode=ro&immutable=1")
    return connection


def _opened_store(path: Path) -> sqlite3.Connection:
    """Open a file, and make the tables of a new one."""
    if path.exists() and not path.is_file():
        msg = "is no regular file"
        raise _UnusableError(msg)
    # A write-ahead log needs memory that all processes share, which those of several hosts do not.
    shared = not is_on_local_disk(path)
    deadline = time.monotonic() + BUSY_S
    while True:
        connection = _connected(path)
        try:
            # A commit is with the system when it returns: only a failing system, not a failing process, can lose it.
            # Without a log such a loss might damage the file.
            connection.execute(f"PRAGMA synchronous={'FULL' if shared else 'NORMAL'}")
            connection.execute(f"PRAGMA journal_size_limit={_LOG_BYTES}")
            if shared:
                connection.execute("PRAGMA journal_mode=DELETE")
            if not _has_tables(connection):
                # Before the transaction, in which the mode cannot change; the file keeps it.
                if not shared:
                    connection.execute("PRAGMA journal_mode=WAL")
                with _transaction(connection):
                    # Another process may have been faster.
                    if not _has_tables(connection):
                        _make_tables(connection)
        except BaseException as error:
            connection.close()
            # SQLite does not wait by itself while several processes turn a new file into a store.
            if _kind(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
        else:
            return connection


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in (*CREATE_STATEMENTS, f"PRAGMA application_id={APPLICATION}", f"PRAGMA user_version={FORMAT}"):
        connection.execute(statement)


def _has_tables(connection: sqlite3.Connection) -> bool:
    """Return whether a file has the store's tables; a new one has none, and others are an error."""
    # In this order: another process may just be making the tables.
    found = {text for (text,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    version, application = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("user_version", "application_id")
    )
    if found and application != APPLICATION:
        msg = "is another program's SQLite file"
        raise _UnusableError(msg)
    if version > FORMAT:
        msg = f"was written by a newer perflex (format {version}, this one knows {FORMAT})"
        raise _UnusableError(msg, "update perflex")
    if found and 0 < version < FORMAT:
        msg = f"was written by an older perflex (format {version}, this one knows {FORMAT})"
        raise _OldFormatError(msg, "the next command that measures sets it aside and begins a new one")
    if found and found != set(CREATE_STATEMENTS):
        msg = "its tables are no store's"
        raise DamageError(msg)
    return bool(found)


def _examined(connection: sqlite3.Connection) -> Examination:
    sound: Counter[str] = Counter()
    problems: list[str] = []
    try:
        _has_tables(connection)
        problems.extend(text for (text,) in connection.execute(f"PRAGMA integrity_check({_MOST_PROBLEMS})"))
        for table in CHECKED:
            for number, *row in connection.execute(f"SELECT rowid, * FROM {table}"):  # noqa: S608
                if is_sound(row):
                    # Of a record, whether it has a round.
                    sound[table if table != "records" else "failures" if row[3] is None else "samples"] += 1
                elif len(problems) < _MOST_PROBLEMS:
                    problems.append(f"row {number} of {table} is not what was written")
        lost = "SELECT DISTINCT key FROM records WHERE key NOT IN (SELECT number FROM measurement_keys)"
        sound["nameless"] = len(connection.execute(lost).fetchall())
    except (*_FAULTS, DamageError) as error:
        if not _is_damage(error):
            raise
        problems.append(str(error))
    return Examination(sound, tuple(problem for problem in dict.fromkeys(problems) if problem != "ok"))


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
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


_files: weakref.WeakSet[StoreFile] = weakref.WeakSet()
_inherited: list[sqlite3.Connection | None] = []


def _close_all() -> None:
    for file in list(_files):
        with suppress(sqlite3.Error):
            file.close()


def _after_fork() -> None:
    for file in list(_files):
        file.forget_connection()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
