"""Taking old or unwanted measurements out of the store."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.store.reading import rows_after
from perflex.store.recovery import mend_order
from perflex.store.rows import failure_of, sample_of

if TYPE_CHECKING:
    import sqlite3

    from perflex.store.samples import MeasurementStore


@dataclass(frozen=True)
class Selection:
    """Which rows go: those that all conditions hold for.

    Attributes
    ----------
    before
        Started before this time, in seconds since 1970, UTC.
    device
        Of devices whose name has all these parts.
    failures_only
        Failures, but no samples.
    keep_newest
        Of each measurement so many samples, and so many failures, stay: those added last.
    """

    before: float | None = None
    device: str = ""
    failures_only: bool = False
    keep_newest: int = 0


@dataclass(frozen=True)
class Removal:
    """Which rows a selection takes.

    Attributes
    ----------
    samples, failures
        Numbers of the rows.
    by_device
        How many samples and failures of each device.
    """

    samples: tuple[int, ...]
    failures: tuple[int, ...]
    by_device: dict[str, tuple[int, int]]


def selected(store: MeasurementStore, selection: Selection) -> Removal:
    """Return which rows a selection takes; nothing is changed.

    Raises
    ------
    StoreError
        The file cannot be read.
    """
    return store.use(lambda connection: _removal(connection, selection))


def remove(store: MeasurementStore, selection: Selection) -> Removal:
    """Delete what a selection takes, and give its space back to the file system.

    Raises
    ------
    StoreError
        The file cannot be written.
    """

    def delete(connection: sqlite3.Connection) -> Removal:
        # Selected again: other processes may have added samples since.
        taken = _removal(connection, selection)
        connection.executemany("DELETE FROM samples WHERE number = ?", [(number,) for number in taken.samples])
        connection.executemany("DELETE FROM failures WHERE number = ?", [(number,) for number in taken.failures])
        connection.execute(
            "DELETE FROM measurement_keys WHERE number NOT IN "
            "(SELECT key FROM samples UNION ALL SELECT key FROM failures)"
        )
        # A failure counts until a sample is added after it: numbers of deleted samples will be given again.
        mend_order(connection)
        return taken

    # VACUUM cannot be in a transaction.
    def shrink(connection: sqlite3.Connection) -> None:
        connection.execute("VACUUM")
        # VACUUM writes to the write-ahead log; the file shrinks when that is copied into it.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    taken = store.use(delete, writes=True)
    store.use(shrink)
    return taken


def _removal(connection: sqlite3.Connection, selection: Selection) -> Removal:
    # Parts are separated as in the names that commands take for devices.
    parts = [part for part in re.split(r"[\s_:]+", selection.device.lower()) if part]
    samples = [] if selection.failures_only else _rows_to_remove(connection, "samples", parts, selection)
    failures = _rows_to_remove(connection, "failures", parts, selection)
    counts = [Counter(device for _, device in rows) for rows in (samples, failures)]
    by_device = {device: (counts[0][device], counts[1][device]) for device in counts[0] | counts[1]}
    return Removal(tuple(number for number, _ in samples), tuple(number for number, _ in failures), by_device)


def _rows_to_remove(
    connection: sqlite3.Connection, table: str, parts: list[str], selection: Selection
) -> list[tuple[int, str]]:
    """Return number and device of the rows of a table that go."""
    kept: Counter[int] = Counter()
    taken = []
    for found in reversed(rows_after(connection, table, 0, -1)):
        if not all(part in found.device.lower() for part in parts):
            continue
        number, key = found.row[:2]
        started = (failure_of if table == "failures" else sample_of)(found.row).started
        kept[key] += 1
        if kept[key] > selection.keep_newest and (selection.before is None or started < selection.before):
            taken.append((number, found.device))
    return taken
