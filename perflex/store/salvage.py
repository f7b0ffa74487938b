"""Carrying the measurements of a damaged store over into a new one."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.store.connection import companion
from perflex.store.recovery import SQLITE_MAGIC, rows_of_file
from perflex.store.rows import (
    FAILURE_COLUMNS,
    KEY_COLUMNS,
    SAMPLE_COLUMNS,
    is_sound_failure,
    is_sound_key,
    is_sound_sample,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Salvaged", "insert", "is_foreign", "mend_order", "salvage"]


@dataclass(frozen=True)
class Salvaged:
    """How much a damaged store still had.

    Attributes
    ----------
    samples, failures
        Rows carried over.
    nameless
        Kernels whose samples are there, but not what they belong to; that is known again as soon as the same
        kernel is measured again.
    """

    samples: int = 0
    failures: int = 0
    nameless: int = 0


def is_foreign(path: Path) -> bool:
    """Return whether a file is no database and has no row of a store; an empty one may become a store.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    with path.open("rb") as stream:
        start = stream.read(len(SQLITE_MAGIC))
    if not start or start == SQLITE_MAGIC:
        return False
    rows = rows_of_file(path, companion(path, "-wal"))
    return not any(is_sound_sample(_sample(row)) or is_sound_key((number, *row[1:])) for number, row in rows)


def insert(table: str, columns: Sequence[str]) -> str:
    """Return the statement that adds a row unless it is there."""
    places = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608


def salvage(damaged: Path, wal: Path, connection: sqlite3.Connection) -> Salvaged:
    """Add what can be read in a damaged file and its write-ahead log to a new store, in one transaction of the caller.

    Every row is checked against its checksum: what damage made of a row is left behind.
    """
    keys: dict[int, tuple[Any, ...]] = {}
    samples: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    failures: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for number, columns in rows_of_file(damaged, wal):
        key, sample, failure = (number, *columns[1:]), _sample(columns), _real(columns[1:], 4)
        # The newest label is the last one found.
        if is_sound_key(key):
            keys[number] = key
        elif is_sound_sample(sample):
            samples.setdefault(sample[:3], (number, *sample))
        elif is_sound_failure(failure):
            failures.setdefault((*failure[:3], failure[4]), (number, *failure))
    nameless = {row[1] for row in (*samples.values(), *failures.values())} - keys.keys()
    connection.executemany(insert("measurement_keys", KEY_COLUMNS), keys.values())
    connection.executemany(insert("measurement_keys", KEY_COLUMNS), [(key, *[""] * 6) for key in nameless])
    # Numbered anew: damage to a number must not make it the largest there can be, or that of another row.
    in_order = sorted(samples.values())
    numbers = [number for number, *_ in in_order]
    connection.executemany(insert("samples", SAMPLE_COLUMNS), [row[1:] for row in in_order])
    connection.executemany(
        insert("failures", FAILURE_COLUMNS),
        [(*row[1:6], bisect_right(numbers, row[6]), row[7]) for row in sorted(failures.values())],
    )
    return Salvaged(len(samples), len(failures), len(nameless))


def mend_order(connection: sqlite3.Connection) -> None:
    """Let every failure be older than the samples still to come; needed when the newest samples are gone."""
    last = "(SELECT ifnull(max(number), 0) FROM samples)"
    connection.execute(f"UPDATE failures SET after = {last} WHERE after > {last}")  # noqa: S608


def _sample(columns: tuple[object, ...]) -> tuple[Any, ...]:
    return _real(columns[1:], 3, 5)


def _real(columns: tuple[object, ...], *places: int) -> tuple[Any, ...]:
    # SQLite keeps whole numbers of REAL columns as integers.
    return tuple(float(v) if i in places and isinstance(v, int) else v for i, v in enumerate(columns))
