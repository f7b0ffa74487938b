"""The store: one SQLite file in the user's cache directory, shared by all processes.

What was counted can be counted again, so that nothing here ever fails a caller: where the file cannot be used, one
warning says why, reading finds nothing, and writing does nothing. Measurements are in the same file, and more is
made of them (`perflex.store`).
"""

from __future__ import annotations

import os
import sqlite3
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from perflex.caches import own_cache, tell
from perflex.errors import PerflexWarning
from perflex.store.connection import store_fault
from perflex.store.faults import DamageError, UnusableError
from perflex.store.file import StoreFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

StorePlace: TypeAlias = "str | Path | Store"

_VARIABLE = "PERFLEX_STORE"
_OFF = {"", "off"}
# SQLite waits for other writers by itself, but not while several processes turn a new file into a store: then an
# attempt fails at once as "busy", and is repeated for so long.
_PATIENCE_S = 5.0


class Store:
    """What was counted, in one SQLite file, used by any thread.

    Parameters
    ----------
    path
        The file; it and its folder are made when needed.

    Attributes
    ----------
    file : StoreFile
        The file, for those who must know when it fails.
    """

    def __init__(self, path: Path) -> None:
        self.file = StoreFile(path)
        self._given_up = False
        self._set_aside = False
        self._done: set[str] = set()

    @property
    def path(self) -> Path:
        """The file."""
        return self.file.path

    def read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; none where the file cannot be used."""
        rows: list[tuple[Any, ...]] = []

        def fetch() -> None:
            found = self.file.use(
                lambda connection: connection.execute(query, values).fetchall(), patience_s=_PATIENCE_S
            )
            rows.extend(found)

        self._guarded(fetch)
        return rows

    def write(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> None:
        """Execute statements in one transaction; nothing happens where the file cannot be used."""

        def execute(connection: sqlite3.Connection) -> None:
            for statement, values in statements:
                connection.execute(statement, values)

        self._guarded(lambda: self.file.use(execute, writes=True, patience_s=_PATIENCE_S))

    def first_time(self, what: str) -> bool:
        """Return whether this is asked for the first time, of this store in this process."""
        first = what not in self._done
        self._done.add(what)
        return first

    def close(self) -> None:
        """Close the file; it is opened again when it is used again."""
        self.file.close()

    def set_aside(self, reason: str) -> None:
        """Rename a damaged file, say so, and go on with a new one; without any when that is damaged, too."""
        if self._set_aside:
            self._give_up(f"is damaged again ({reason})")
        self._set_aside = True
        self._guarded(lambda: self.file.set_aside(reason))

    def _give_up(self, reason: str) -> None:
        if not self._given_up:
            self._given_up = True
            self.close()
            msg = (
                f"the store {self.path} {reason}; this process keeps no measurements; "
                "name another file with PERFLEX_STORE"
            )
            warnings.warn(msg, PerflexWarning, stacklevel=2)

    def _guarded(self, use: Callable[[], object]) -> None:
        if self._given_up:
            return
        try:
            use()
        except (UnusableError, DamageError, OSError, sqlite3.Error, UnicodeDecodeError) as error:
            self._give_up(store_fault(error))


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
