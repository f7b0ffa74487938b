"""The store: one SQLite file in the user's cache directory, shared by all processes.

Measurements are never lost silently: where they cannot be kept or read, that is an error. What was counted or compiled
can be made again: where it cannot be kept or read, one warning says why, and nothing else happens.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from perflex.caches import cache_folder, warn_of_moved_caches
from perflex.errors import StoreError, warn
from perflex.store.file import VARIABLE, StoreFile
from perflex.store.records import failure_of_json, key_to_json, record_values, sample_of_json, valid_text
from perflex.store.rows import checked_rows, insert

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from perflex.store.records import Failure, MeasurementKey, Sample

StorePlace: TypeAlias = "str | Path | Store"

_OFF = {"", "off"}
# A kernel's newest label counts.
_RELABEL = """
    ON CONFLICT (number) DO UPDATE SET label = excluded.label, checksum = excluded.checksum
    WHERE excluded.label NOT IN ('', label)
"""


class Store(StoreFile):
    """Samples, failures, counts and machine code in one SQLite file; for many processes and threads at once.

    What was added has been committed when the call returns: a process that is killed after it loses nothing.
    Samples of one key, session and round are one sample, the first. The order is that of adding, whatever the clock
    does.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._given_up = False
        self._done: set[str] = set()

    def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:
        """Return the samples of a key in the order they were added."""
        which = "WHERE key = ? AND round NOT NULL ORDER BY number"
        number, _ = _keyed(key)
        rows = self.use(lambda connection: checked_rows(connection, "records", which, (number,)))
        return tuple(sample_of_json(row[-2]) for row in rows)

    def failure(self, key: MeasurementKey) -> Failure | None:
        """Return the newest failure of a key, unless a sample was added after it."""
        which = "WHERE key = ? ORDER BY number DESC LIMIT 1"
        number, _ = _keyed(key)
        rows = self.use(lambda connection: checked_rows(connection, "records", which, (number,)))
        return next((failure_of_json(data) for *_, turn, _, data, _ in rows if turn is None), None)

    def add(self, key: MeasurementKey, sample: Sample, label: str = "") -> None:
        """Keep a sample; `label` is what people call the kernel."""
        self._add([(key, sample)], {key: label})

    def add_many(
        self, samples: Iterable[tuple[MeasurementKey, Sample]], labels: Mapping[MeasurementKey, str] | None = None
    ) -> None:
        """Keep samples in one transaction: all of them or, after an error, none."""
        self._add(samples, labels or {})

    def fail(self, key: MeasurementKey, failure: Failure, label: str = "") -> None:
        """Keep a failure; the middle of a message over 2000 characters is left out."""
        self._add([(key, failure)], {key: label})

    def _add(
        self, records: Iterable[tuple[MeasurementKey, Sample | Failure]], labels: Mapping[MeasurementKey, str]
    ) -> None:
        keys: dict[MeasurementKey, tuple[int, str]] = {}
        rows = []
        for key, record in records:
            if key not in keys:
                keys[key] = _keyed(key)
            try:
                rows.append((keys[key][0], *record_values(record)))
            except (ValueError, OverflowError) as error:
                msg = f"a measurement cannot be kept in {self.path}: {error}; measure again"
                raise StoreError(msg, path=self.path) from error

        def execute(connection: sqlite3.Connection) -> None:
            for key, (number, data) in keys.items():
                insert(connection, "measurement_keys", (number, valid_text(labels.get(key, "")), data), _RELABEL)
            # Numbered here: other processes add rows, too.
            (last,) = connection.execute("SELECT ifnull(max(number), 0) FROM records").fetchone()
            for number, row in enumerate(rows, last + 1):
                insert(connection, "records", (number, *row))

        self.use(execute, writes=True)

    def read_made(self, table: str, end: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows that `end`, the end of the statement, chooses from a table of what can be made again.

        None where that fails.
        """
        found: list[tuple[Any, ...]] = []
        self._tried(lambda connection: found.extend(checked_rows(connection, table, end, values)))
        return found

    def write_made(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Do work in one transaction; nothing happens where that fails."""
        self._tried(work, writes=True)

    def _tried(self, work: Callable[[sqlite3.Connection], None], *, writes: bool = False) -> None:
        if self._given_up:
            return
        try:
            self.use(work, writes=writes)
        except StoreError as error:
            self._given_up = True
            warn(f"{error.message}; this process keeps no counts and no machine code")

    def first_time(self, what: str) -> bool:
        """Return whether this is asked for the first time, of this store in this process."""
        first = what not in self._done
        self._done.add(what)
        return first


# Asked of each sample of many kernels in turn.
@lru_cache(maxsize=4096)
def _keyed(key: MeasurementKey) -> tuple[int, str]:
    """Return a key's number, a digest, and its JSON."""
    data = key_to_json(key)
    # SQLite's integers have 64 bits with a sign.
    return int.from_bytes(hashlib.sha256(data.encode()).digest()[:8], "big") >> 1, data


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
        place = os.environ.get(VARIABLE)
        return store_at(_default_path() if place is None else place)


def required_store(place: StorePlace | None = None) -> Store:
    """Return the store at a place, by default the one in use; a StoreError where it is switched off."""
    store = current_store() if place is None else store_at(place)
    if store is None:
        msg = f"there is no store to keep measurements in: it is switched off; give {VARIABLE} a file's name"
        raise StoreError(msg)
    return store


@lru_cache(maxsize=1)
def _default_path() -> Path:
    warn_of_moved_caches()
    return cache_folder() / "store.sqlite"


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
