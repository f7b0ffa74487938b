"""The store: one SQLite file in the user's cache directory, shared by all processes.

Measurements are never lost silently: where they cannot be kept or read, that is an error. What was counted can be
counted again: where it cannot be kept or read, one warning says why, and nothing else happens.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from perflex.caches import own_cache, tell
from perflex.errors import StoreError, warn
from perflex.store.file import BUSY_S, OldFormatError, StoreFile, UnusableError, error_kind, is_damage
from perflex.store.records import (
    DamageError,
    checked_rows,
    failure_of,
    failure_values,
    insert,
    key_values,
    last_number,
    sample_of,
    sample_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from perflex.store.file import Examination
    from perflex.store.records import Failure, MeasurementKey, Sample

_Result = TypeVar("_Result")
StorePlace: TypeAlias = "str | Path | Store"

_VARIABLE = "PERFLEX_STORE"
_OFF = {"", "off"}
# Not every command that measures has the option.
_BY = f"({_VARIABLE}, or --store if the command has it)"
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
# A kernel's newest label counts.
_RELABEL = """
    ON CONFLICT (number) DO UPDATE SET label = excluded.label, checksum = excluded.checksum
    WHERE excluded.label NOT IN ('', label)
"""
_OF_KEY = "WHERE key = ? ORDER BY number"


class Store:
    """Samples, failures and counts in one SQLite file; for many processes and threads at once.

    What was added has been committed when the call returns: a process that is killed after it loses nothing.
    Samples of one key, session and round are one sample, the first. The order is that of adding, whatever the clock
    does.

    Every method but `read_counts` and `write_counts` raises a StoreError where the file cannot be used; it names the
    file and what to do, and what was added before stays.
    """

    def __init__(self, path: Path) -> None:
        self._file = StoreFile(path)
        self._given_up = False
        self._done: set[str] = set()

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:
        """Return the samples of a key in the order they were added."""
        number = key_values(key)[0]
        rows = self.use(lambda connection: checked_rows(connection, "samples", _OF_KEY, (number,)))
        return tuple(map(sample_of, rows))

    def failure(self, key: MeasurementKey) -> Failure | None:
        """Return the newest failure of a key, unless a sample was added after it."""
        number = key_values(key)[0]

        def fetch(connection: sqlite3.Connection) -> Failure | None:
            rows = checked_rows(connection, "failures", f"{_OF_KEY} DESC LIMIT 1", (number,))
            newer = "SELECT 1 FROM samples WHERE key = ? AND number > ?"
            return (
                failure_of(rows[0]) if rows and not connection.execute(newer, (number, rows[0][0])).fetchone() else None
            )

        return self.use(fetch)

    def add(self, key: MeasurementKey, sample: Sample, label: str = "") -> None:
        """Keep a sample; `label` is what people call the kernel."""
        self.add_many([(key, sample)], {key: label})

    def add_many(
        self, samples: Iterable[tuple[MeasurementKey, Sample]], labels: Mapping[MeasurementKey, str] | None = None
    ) -> None:
        """Keep samples in one transaction: all of them or, after an error, none."""
        self._add("samples", sample_values, samples, labels or {})

    def fail(self, key: MeasurementKey, failure: Failure, label: str = "") -> None:
        """Keep a failure; the middle of a message over 2000 characters is left out."""
        self._add("failures", failure_values, [(key, failure)], {key: label})

    def _add(
        self,
        table: str,
        values_of: Callable[[int, Any], tuple[Any, ...]],
        records: Iterable[tuple[MeasurementKey, Any]],
        labels: Mapping[MeasurementKey, str],
    ) -> None:
        keys: dict[MeasurementKey, tuple[Any, ...]] = {}
        rows = []
        for key, record in records:
            if key not in keys:
                keys[key] = key_values(key, labels.get(key, ""))
            try:
                rows.append(values_of(keys[key][0], record))
            except (ValueError, OverflowError) as error:
                msg = f"a measurement cannot be kept in {self.path}: {error}; measure again"
                raise StoreError(msg, path=self.path) from error

        def execute(connection: sqlite3.Connection) -> None:
            for key in keys.values():
                insert(connection, "measurement_keys", key, _RELABEL)
            # Numbered here: other processes add rows, too.
            for number, row in enumerate(rows, last_number(connection) + 1):
                insert(connection, table, (number, *row))

        self.use(execute, writes=True)

    def use(self, work: Callable[[sqlite3.Connection], _Result], *, writes: bool = False) -> _Result:
        """Return what `work` makes of the connection; with `writes` it is in a transaction. It may be called again."""
        return self._guarded(lambda: self._file.use(work, writes=writes))

    def look(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Return what `work` makes of a connection that only reads: the file stays as it is, damaged or not."""
        return self._guarded(lambda: self._file.look(work))

    def examine(self) -> Examination:
        """Check the file, which is not changed."""
        return self._guarded(self._file.examine)

    def close(self) -> None:
        """Close the file; it is opened again when it is used again."""
        self._file.close()

    def set_asides(self) -> list[Path]:
        """Return the files, damaged or of older formats, that were set aside and are still there."""
        return self._file.set_asides()

    def _guarded(self, use: Callable[[], _Result]) -> _Result:
        try:
            return use()
        except (UnusableError, DamageError, OSError, sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            msg = f"the store {self.path} {_fault(error)}"
            raise StoreError(msg, path=self.path) from error

    def read_counts(self, table: str, end: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a table of counts that `end`, the end of the statement, chooses; none where that fails."""
        found: list[tuple[Any, ...]] = []
        self._tried(lambda: found.extend(self.use(lambda connection: checked_rows(connection, table, end, values))))
        return found

    def write_counts(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Do work in one transaction; nothing happens where that fails."""
        self._tried(lambda: self.use(work, writes=True))

    def _tried(self, use: Callable[[], None]) -> None:
        if self._given_up:
            return
        try:
            use()
        except StoreError as error:
            self._given_up = True
            warn(f"{error.message}; this process keeps no counts")

    def first_time(self, what: str) -> bool:
        """Return whether this is asked for the first time, of this store in this process."""
        first = what not in self._done
        self._done.add(what)
        return first


def _fault(error: Exception) -> str:
    """Return what is wrong with the store's file and what to do, as the rest of a sentence about it."""
    code, kind, number = getattr(error, "sqlite_errorcode", 0), error_kind(error), getattr(error, "errno", None)
    if kind == sqlite3.SQLITE_FULL or code in _NOT_WRITTEN or number in _FULL:
        return f"cannot grow: {error}; free space, or name a file elsewhere {_BY}"
    if kind in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM} or number in _READ_ONLY:
        return f"cannot be written: {error}; change its permissions, or name another file {_BY}"
    if kind == sqlite3.SQLITE_BUSY:
        return f"has been locked for {BUSY_S:.0f} s; end the process that holds it, or name another file {_BY}"
    if isinstance(error, OldFormatError):
        return f"{error}; the next command that measures sets it aside and begins a new one, or name another file {_BY}"
    if isinstance(error, UnusableError):
        return f"{error}{', or' if str(error).endswith('update perflex') else ';'} name another file {_BY}"
    return f"{'is damaged' if is_damage(error) else 'cannot be used'} ({error}); name another file {_BY}"


_by_name: dict[str, Store] = {}
_chosen: ContextVar[Store | None] = ContextVar("perflex_store")


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
        # None is a choice (switched off), so it cannot stand for none made.
        return _chosen.get()
    except LookupError:
        place = os.environ.get(_VARIABLE)
        return store_at(_default_path() if place is None else place)


def required_store(place: StorePlace | None = None) -> Store:
    """Return the store at a place, by default the one in use; a StoreError where it is switched off."""
    store = current_store() if place is None else store_at(place)
    if store is None:
        msg = f"there is no store to keep measurements in: it is switched off; give {_VARIABLE} a file's name"
        raise StoreError(msg)
    return store


@lru_cache(maxsize=1)
def _default_path() -> Path:
    tell()
    return own_cache() / "store.sqlite"


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
