"""The tables of the store, and their rows, each with a checksum: SQLite does not notice a value that has changed."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from perflex.errors import warn

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

# Marks the file as perflex's own ("pflx"), and counts its formats.
APPLICATION = 0x70666C78
FORMAT = 7
_CHECKSUM = "checksum INTEGER NOT NULL"
TABLES: Mapping[str, str] = {
    # Descriptions of kernels by the digest of the text, which description a kernel has by the kernel's key, and what
    # was counted of it: JSON from the name of each count to its record. `version` is a state of the package.
    "scops": f"digest TEXT PRIMARY KEY, text TEXT NOT NULL, {_CHECKSUM}",
    "kernels": f"key TEXT PRIMARY KEY, scop TEXT NOT NULL, version TEXT NOT NULL, {_CHECKSUM}",
    "counts": (
        f"scop TEXT NOT NULL, version TEXT NOT NULL, text TEXT NOT NULL, {_CHECKSUM}, "
        "PRIMARY KEY (scop, version, checksum)"
    ),
    # When each state of the package has last written (Julian day).
    "versions": "version TEXT PRIMARY KEY, used REAL NOT NULL",
    # What compilers made, by the digest of all that it follows from, and when it was last asked for, to about a day
    # (seconds since 1970).
    "code": f"digest TEXT PRIMARY KEY, used REAL NOT NULL, content BLOB NOT NULL, {_CHECKSUM}",
    # `MeasurementKey`s by a digest, and what people call their kernels.
    "measurement_keys": f"number INTEGER PRIMARY KEY, label TEXT NOT NULL, data TEXT NOT NULL, {_CHECKSUM}",
    # Each `Sample` and `Failure`; the numbers tell what was added after what. A failure has no round.
    "records": (
        "number INTEGER PRIMARY KEY, key INTEGER NOT NULL, session TEXT NOT NULL, round INTEGER, "
        f"started REAL NOT NULL, data TEXT NOT NULL, {_CHECKSUM}, UNIQUE (key, session, round)"
    ),
    # The sessions of work that has not come to its end yet, and whose they are: the process, when it began, its host.
    "unfinished_work": (
        "work TEXT NOT NULL, session TEXT NOT NULL, host TEXT NOT NULL, process INTEGER NOT NULL, "
        f"began TEXT NOT NULL, {_CHECKSUM}, PRIMARY KEY (work, session)"
    ),
}
_NUMBERED = ("measurement_keys", "records")
CHECKED = tuple(name for name, columns in TABLES.items() if _CHECKSUM in columns)
CREATE_STATEMENTS = tuple(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items())
# Tables that a warning has told of, by the store's path.
_told: set[tuple[str, str]] = set()


class DamageError(Exception):
    """The file is damaged in a way that SQLite does not notice; never leaves the store."""


def checksum(values: Sequence[object]) -> int:
    """Return the checksum of a row's other values; their texts have every digit of a number."""
    return zlib.crc32(repr(tuple(values)).encode("utf-8", "replace"))


def is_sound(row: Sequence[Any]) -> bool:
    """Return whether a row of a table is what was written."""
    return bool(row[-1] == checksum(row[:-1]))


def checked_rows(
    connection: sqlite3.Connection, table: str, rest: str = "", values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Return the rows of a table that `rest`, the end of the statement, chooses; without those that are not sound."""
    return sound_rows(connection, table, rows_in_order(connection, table, rest, values))


def sound_rows(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows that are what was written; a warning tells once of each table that has others."""
    sound = [row for row in rows if is_sound(row)]
    if len(sound) == len(rows):
        return sound
    place = str(connection.execute("PRAGMA database_list").fetchone()[2])
    if (place, table) not in _told:
        _told.add((place, table))
        msg = (
            f"the store {place} is damaged: rows of {table} are not what was written, and are left out; "
            "'perflex store verify' names them"
        )
        warn(msg)
    return sound


def rows_in_order(
    connection: sqlite3.Connection, table: str, rest: str, values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Return the rows that `rest` chooses, sound or not; a DamageError where they are not those asked for."""
    rows = connection.execute(f"SELECT * FROM {table} {rest}", values).fetchall()  # noqa: S608 - one of `TABLES`
    numbers = [row[0] for row in rows if table in _NUMBERED]
    # A page may be there twice, or in the place of another; one of an index leads to rows of other values.
    wanted = values if "= ?" in rest else ()
    if any(value not in row for row in rows for value in wanted) or numbers != sorted(set(numbers)):
        msg = f"a row of {table} is not where it was written"
        raise DamageError(msg)
    return rows


def insert(
    connection: sqlite3.Connection, table: str, values: Sequence[Any], conflict: str = "ON CONFLICT DO NOTHING"
) -> None:
    """Add a row; `conflict` says what happens where one like it is there."""
    row = (*values, checksum(values))
    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))}) {conflict}", row)  # noqa: S608
