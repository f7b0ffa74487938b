"""The measurement store: samples and failures in the file of `perflex.store.store`, never lost silently."""

from __future__ import annotations

import errno
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from perflex.errors import StoreError
from perflex.store.connection import store_fault
from perflex.store.faults import DamageError, UnusableError
from perflex.store.recovery import is_foreign
from perflex.store.rows import (
    FAILURE_COLUMNS,
    SAMPLE_COLUMNS,
    failure_of,
    failure_row,
    is_sound_failure,
    is_sound_sample,
    key_number,
    key_row,
    require_sound,
    sample_of,
    sample_row,
)
from perflex.store.store import current_store, store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from perflex.store.records import Failure, MeasurementKey, Sample
    from perflex.store.store import StorePlace

_Result = TypeVar("_Result")

# So long other processes may write without a pause.
_PATIENCE_S = 60.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Extended codes: their low byte, SQLITE_IOERR, is that of failed reads, too.
_NOT_WRITTEN = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}

# A row that was salvaged without its texts gets them back; a kernel's newest label counts.
_ADD_KEY = """
    INSERT INTO measurement_keys (number, kernel, sizes, device, driver, conditions, label, label_checksum)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (number) DO UPDATE SET
        kernel = excluded.kernel, sizes = excluded.sizes, device = excluded.device, driver = excluded.driver,
        conditions = excluded.conditions, label = CASE WHEN excluded.label = '' THEN label ELSE excluded.label END,
        label_checksum = CASE WHEN excluded.label = '' THEN label_checksum ELSE excluded.label_checksum END
    WHERE kernel != excluded.kernel
        OR (excluded.label != '' AND (label, label_checksum) IS NOT (excluded.label, excluded.label_checksum))
"""
# Numbers are given here, as SQLite would, for seals to cover them; in the transaction, as other processes add rows.
_ADD_SAMPLE = f"""
    INSERT INTO samples ({", ".join(SAMPLE_COLUMNS)})
    SELECT next, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, seal(next, ?7, ?9)
    FROM (SELECT ifnull(max(number), 0) + 1 AS next FROM samples) WHERE true ON CONFLICT DO NOTHING
"""  # noqa: S608
_ADD_FAILURE = f"""
    INSERT INTO failures ({", ".join(FAILURE_COLUMNS)})
    SELECT next, ?1, ?2, ?3, ?4, ?5, last, ?6, seal(next, last, ?6)
    FROM (SELECT ifnull(max(number), 0) + 1 AS next FROM failures),
        (SELECT ifnull(max(number), 0) AS last FROM samples) WHERE true ON CONFLICT DO NOTHING
"""  # noqa: S608
_SAMPLES = f"SELECT {', '.join(SAMPLE_COLUMNS)} FROM samples WHERE key = ? ORDER BY number"  # noqa: S608
# Numbers, not clocks, tell whether a sample came after the failure.
_FAILURE = f"""
    SELECT {", ".join(FAILURE_COLUMNS)} FROM failures
    WHERE key = ? AND after >= (SELECT ifnull(max(number), 0) FROM samples WHERE key = ?)
    ORDER BY number DESC LIMIT 1
"""  # noqa: S608


class MeasurementStore:
    """Samples and failures in one SQLite file, append-only; for many processes and threads at once.

    What was added has been committed when the call returns: a process that is killed after it loses nothing.
    Samples of one key, session and round are one sample, the first. The order is that of adding, whatever the clock
    does.

    Parameters
    ----------
    place
        The file, a store, or None for the one in use.

    Raises
    ------
    StoreError
        No file is in use: the store is switched off. Every method raises it, too, where the file cannot be used; it
        names the file and what to do, and what was added before stays.
    """

    def __init__(self, place: StorePlace | None = None) -> None:
        store = current_store() if place is None else store_at(place)
        if store is None:
            msg = "there is no store to keep measurements in: it is switched off; give PERFLEX_STORE a file's name"
            raise StoreError(msg)
        self._file = store.file

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:
        """Return the samples of a key in the order they were added."""

        def fetch(connection: sqlite3.Connection) -> tuple[Sample, ...]:
            rows = connection.execute(_SAMPLES, (key_number(key),)).fetchall()
            require_sound(rows, is_sound_sample)
            return tuple(map(sample_of, rows))

        return self.use(fetch)

    def failure(self, key: MeasurementKey) -> Failure | None:
        """Return the newest failure of a key, unless a sample was added after it."""

        def fetch(connection: sqlite3.Connection) -> Failure | None:
            rows = connection.execute(_FAILURE, (key_number(key),) * 2).fetchall()
            require_sound(rows, is_sound_failure)
            return failure_of(rows[0]) if rows else None

        return self.use(fetch)

    def add(self, key: MeasurementKey, sample: Sample, label: str = "") -> None:
        """Keep a sample; `label` is what people call the kernel."""
        self.add_many([(key, sample)], {key: label})

    def add_many(
        self, samples: Iterable[tuple[MeasurementKey, Sample]], labels: Mapping[MeasurementKey, str] | None = None
    ) -> None:
        """Keep samples in one transaction: all of them or, after an error, none."""
        names = labels or {}
        keys: dict[MeasurementKey, tuple[object, ...]] = {}
        rows = []
        for key, sample in samples:
            if key not in keys:
                keys[key] = key_row(key, names.get(key, ""))
            rows.append(self._row(partial(sample_row, key_number(key), sample)))

        def execute(connection: sqlite3.Connection) -> None:
            connection.executemany(_ADD_KEY, keys.values())
            connection.executemany(_ADD_SAMPLE, rows)

        self.use(execute, writes=True)

    def fail(self, key: MeasurementKey, failure: Failure, label: str = "") -> None:
        """Keep a failure; the middle of a message over 2000 characters is left out."""
        row = self._row(partial(failure_row, key_number(key), failure))

        def execute(connection: sqlite3.Connection) -> None:
            connection.execute(_ADD_KEY, key_row(key, label))
            connection.execute(_ADD_FAILURE, row)

        self.use(execute, writes=True)

    def close(self) -> None:
        """Close the file; it is opened again when it is used again."""
        self._file.close()

    def exists(self) -> bool:
        """Return whether there is a file, or one that was set aside and is still to be replaced."""
        return self._guarded(lambda: self.path.exists() or self._file.is_pending())

    def is_foreign(self) -> bool:
        """Return whether the file is neither a database nor has any measurement in it."""
        return not self._file.is_open and self._guarded(lambda: is_foreign(self.path))

    def set_asides(self) -> list[Path]:
        """Return the damaged files that were set aside and are still there."""
        return self._guarded(self._file.set_asides)

    def set_aside(self, reason: str) -> None:
        """Rename the file as damaged, and begin a new one with all that can be read of it."""
        self._guarded(lambda: self._file.set_aside(reason))

    def use(self, work: Callable[[sqlite3.Connection], _Result], *, writes: bool = False) -> _Result:
        """Return what `work` makes of the connection; with `writes` it is in a transaction. It may be called again."""
        return self._guarded(lambda: self._file.use(work, writes=writes, patience_s=_PATIENCE_S))

    def _guarded(self, use: Callable[[], _Result]) -> _Result:
        try:
            return use()
        except (UnusableError, DamageError, OSError, sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            msg = f"the store {self.path} {_fault(error)}"
            raise StoreError(msg, path=self.path) from error

    def _row(self, make: Callable[[], tuple[object, ...]]) -> tuple[object, ...]:
        try:
            return make()
        except (ValueError, OverflowError) as error:
            msg = f"a measurement cannot be kept in {self.path}: {error}; measure again"
            raise StoreError(msg, path=self.path) from error


def _fault(error: Exception) -> str:
    """Return what is wrong with the store's file and what to do, as the rest of a sentence about it."""
    code = getattr(error, "sqlite_errorcode", 0)
    number = getattr(error, "errno", None)
    reason = store_fault(error)
    if code & 0xFF == sqlite3.SQLITE_FULL or code in _NOT_WRITTEN or number in _FULL:
        return f"cannot grow: {error}; free space, or name a file elsewhere (--store, PERFLEX_STORE)"
    if code & 0xFF in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM} or number in _READ_ONLY:
        return f"cannot be written: {error}; change its permissions, or name another file (--store, PERFLEX_STORE)"
    if code & 0xFF == sqlite3.SQLITE_BUSY or isinstance(error, TimeoutError):
        return f"has been locked for {_PATIENCE_S:.0f} s; end the process that holds it, or name another file (--store)"
    if isinstance(error, UnusableError) and reason.endswith("update perflex"):
        return f"{reason}, or name another file (--store, PERFLEX_STORE)"
    return f"{reason}; name another file (--store, PERFLEX_STORE)"
