"""Whether a store is sound: SQLite's own checks, and everything that must hold between its rows."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from perflex.store.connection import companion, is_damage, lossy_text, require_own
from perflex.store.rows import (
    FAILURE_COLUMNS,
    KEY_COLUMNS,
    SAMPLE_COLUMNS,
    full_row,
    is_nameless_key,
    is_sound_failure,
    is_sound_key,
    is_sound_sample,
    is_sound_work,
    text_digest,
)
from perflex.store.write_ahead_log import log_is_damaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_PROBLEMS = 20
_READINGS = 3
_PAUSE_S = 0.05


@dataclass(frozen=True)
class Verdict:
    """What was found in a store's file.

    Attributes
    ----------
    samples, failures
        Sound rows of each kind.
    nameless
        Measurements whose kernel's name was lost to damage; not a fault of this file.
    problems
        What is wrong, a line each; empty where the file is sound.
    """

    samples: int
    failures: int
    nameless: int
    problems: tuple[str, ...]


def verify(path: Path) -> Verdict:
    """Check a store's file without changing it.

    Raises
    ------
    UnusableError
        It is another program's file, or a newer perflex's.
    sqlite3.Error, OSError
        It cannot be read.
    """
    counts = {"samples": 0, "failures": 0, "nameless": 0}
    problems: list[str] = []
    # Quoted: a "?" or "#" in the path would end it. mode=ro makes no file where there is none.
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=10.0, isolation_level=None)
    connection.text_factory = lossy_text
    try:
        version = require_own(connection)
        problems += _problems_of_file(connection, path)
        # The second of `MIGRATIONS` makes the tables of measurements.
        if version >= 2:
            for problem in _problems_of_rows(connection, counts, version):
                problems.append(problem)
                if len(problems) == _MOST_PROBLEMS:
                    problems.append("and more")
                    break
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not is_damage(error):
            raise
        problems.append(str(error))
    finally:
        connection.close()
    return Verdict(**counts, problems=tuple(dict.fromkeys(problems)))


def _problems_of_file(connection: sqlite3.Connection, path: Path) -> list[str]:
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    problems = []
    # A log that is being written looks damaged now and then, a damaged one always does.
    for reading in range(_READINGS):
        if not log_is_damaged(companion(path, "-wal"), size):
            break
        if reading < _READINGS - 1:
            time.sleep(_PAUSE_S)
    else:
        problems.append("its write-ahead log is damaged")
    found = connection.execute(f"PRAGMA integrity_check({_MOST_PROBLEMS})").fetchall()
    problems += [text for (text,) in found if text != "ok"]
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check").fetchmany(_MOST_PROBLEMS):
        problems.append(f"row {row} of {table} belongs to no row of {parent}")
    return problems


def _problems_of_rows(connection: sqlite3.Connection, counts: dict[str, int], version: int) -> Iterator[str]:
    for row in connection.execute("SELECT * FROM measurement_keys"):
        # `salvage` writes such a row for a key whose texts are lost.
        if is_nameless_key(full_row(row, KEY_COLUMNS)):
            counts["nameless"] += 1
        elif not is_sound_key(full_row(row, KEY_COLUMNS)):
            yield f"row {row[0]} of measurement_keys is not what was written"
    yield from _problems_of_measurements(connection, counts)
    if version >= 4:
        for number, *row in connection.execute("SELECT * FROM unfinished_work"):
            if not is_sound_work(row):
                yield f"row {number} of unfinished_work is not what was written"
        yield from _problems_of_counts(connection)


def _problems_of_measurements(connection: sqlite3.Connection, counts: dict[str, int]) -> Iterator[str]:
    for row in connection.execute("SELECT * FROM samples"):
        if is_sound_sample(full_row(row, SAMPLE_COLUMNS)):
            counts["samples"] += 1
        else:
            yield f"row {row[0]} of samples is not what was written"
    last = connection.execute("SELECT ifnull(max(number), 0) FROM samples").fetchone()[0]
    for row in connection.execute("SELECT * FROM failures"):
        if not is_sound_failure(full_row(row, FAILURE_COLUMNS)):
            yield f"row {row[0]} of failures is not what was written"
        elif row[6] > last:
            yield f"row {row[0]} of failures is younger than all samples there will be"
        else:
            counts["failures"] += 1


def _problems_of_counts(connection: sqlite3.Connection) -> Iterator[str]:
    for digest, text in connection.execute("SELECT digest, text FROM scops"):
        if not isinstance(text, str) or text_digest(text) != digest:
            yield "a row of scops is not what was written"
    for key, scop, checksum in connection.execute("SELECT key, scop, checksum FROM kernels"):
        if checksum is not None and checksum != text_digest(key, scop):
            yield "a row of kernels is not what was written"
    for number, *texts, digest in connection.execute("SELECT number, scop, version, text, digest FROM counts"):
        if digest not in {text_digest(*texts), text_digest(texts[-1])}:
            yield f"row {number} of counts is not what was written"
