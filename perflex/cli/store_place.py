"""The store that a command of ``perflex store`` is about."""

from __future__ import annotations

import re
import sqlite3
import time
from typing import TYPE_CHECKING

from perflex.cli.arguments import ArgumentError
from perflex.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.store.samples import MeasurementStore
    from perflex.store.verify import Verdict

_AGE = re.compile(r"\s*(\d{1,6})\s*([hdwy])\s*")
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}


def existing_store(place: Path | None) -> MeasurementStore:
    """Return the store in a file, or the one in use.

    Raises
    ------
    ArgumentError
        There is no such file, or it is no store: a file that was named by mistake must not be taken for a damaged one.
    StoreError
        The store is switched off.
    """
    from perflex.store.samples import MeasurementStore

    store = MeasurementStore(place)
    if not store.exists():
        msg = f"there is no store at {store.path}; measuring makes one, --store names another"
        raise ArgumentError(msg, path=store.path)
    if store.path.is_dir():
        msg = f"{store.path} is a folder; name a file with --store"
        raise ArgumentError(msg, path=store.path)
    if store.path.exists() and not store.path.is_file():
        msg = f"{store.path} is a device, a pipe or a socket; name a regular file with --store"
        raise ArgumentError(msg, path=store.path)
    if not store.path.exists():
        # A damaged one was set aside by a process that was killed then; opening finishes that.
        store.use(lambda _: None)
    if place is not None and store.is_foreign():
        msg = f"{store.path} is no store of perflex; name another file with --store"
        raise ArgumentError(msg, path=store.path)
    return store


def verified(store: MeasurementStore) -> Verdict:
    """Return what is wrong with a store's file, which is not changed.

    Raises
    ------
    StoreError
        The file cannot be read at all, is another program's or a newer perflex's.
    """
    from perflex.store.connection import store_fault
    from perflex.store.faults import UnusableError
    from perflex.store.verify import verify

    try:
        return verify(store.path)
    except (UnusableError, sqlite3.Error, OSError, UnicodeDecodeError) as error:
        msg = f"the store {store.path} {store_fault(error)}; name another file with --store"
        raise StoreError(msg, path=store.path) from error


def time_before(age: str) -> float:
    """Return the time that lies so far back, in seconds since 1970.

    Raises
    ------
    ArgumentError
        The age is not a number with a unit.
    """
    match = _AGE.fullmatch(age)
    if match is None:
        msg = f"cannot read the age {age!r}; write a number of hours, days, weeks or years, such as 90d"
        raise ArgumentError(msg, word=age)
    return time.time() - int(match[1]) * _SECONDS[match[2]]
