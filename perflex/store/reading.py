"""Reading all samples or failures with what they were measured of: every row is checked before it is handed out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from perflex.store.faults import DamageError
from perflex.store.rows import (
    FAILURE_COLUMNS,
    KEY_COLUMNS,
    SAMPLE_COLUMNS,
    is_nameless_key,
    is_sound_failure,
    is_sound_key,
    is_sound_sample,
    label_of,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_TABLES = {"samples": (SAMPLE_COLUMNS, is_sound_sample), "failures": (FAILURE_COLUMNS, is_sound_failure)}


class KeptRow(NamedTuple):
    """A row of samples or failures, and the key's texts; those are empty where damage took them.

    Attributes
    ----------
    device, driver, label, kernel, sizes, conditions
        Of the key; sizes are JSON.
    row
        In the order of the table's columns: its number and its key's come first.
    """

    device: str
    driver: str
    label: str
    kernel: str
    sizes: str
    conditions: str
    row: Sequence[Any]


def rows_after(connection: sqlite3.Connection, table: str, number: int, most: int) -> list[KeptRow]:
    """Return so many rows of ``samples`` or ``failures`` behind a number, in the order added.

    Raises
    ------
    DamageError
        One of them, or the key of one, is not what was written, is missing, or stands there twice.
    """
    columns, is_sound = _TABLES[table]
    # Not only rows that have a key: one that lost it must not be left out silently.
    query = f"""
        SELECT k.{", k.".join(KEY_COLUMNS)}, t.{", t.".join(columns)}
        FROM {table} AS t LEFT JOIN measurement_keys AS k ON k.number = t.key
        WHERE t.number > ? ORDER BY t.number LIMIT ?
    """  # noqa: S608 - one of two names
    found = []
    for joined in connection.execute(query, (number, most)):
        key, row = joined[: len(KEY_COLUMNS)], joined[len(KEY_COLUMNS) :]
        nameless = is_nameless_key(key)
        if not is_sound(row) or row[0] <= number or not (nameless or is_sound_key(key)):
            msg = f"a row of {table}, or its key, is not what was written"
            raise DamageError(msg)
        # SQLite reads in the order of the numbers without sorting: a page that is there twice shows by them.
        number = row[0]
        _, kernel, sizes, device, driver, conditions, *_ = key
        found.append(KeptRow(device, driver, "" if nameless else label_of(key), kernel, sizes, conditions, row))
    return found
