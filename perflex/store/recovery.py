"""Carrying the measurements of a damaged store over into a new one.

SQLite gives up at the first damaged page above a row. Rows lie in leaf pages, each of which can be read alone: here
SQLite reads them one by one, each as the whole content of a table, so that only what is in a damaged page itself is
lost. Rows of foreign tables and older states of a row are found, too: every row is checked against its checksum.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from perflex.store.connection import companion, lossy_text
from perflex.store.rows import (
    FAILURE_COLUMNS,
    KEY_COLUMNS,
    SAMPLE_COLUMNS,
    insert_statement,
    is_sound_failure,
    is_sound_key,
    is_true_failure,
    is_true_key,
    is_true_sample,
    seal,
)
from perflex.store.write_ahead_log import FRAME_HEADER, frames

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_Row: TypeAlias = tuple[Any, ...]

_SQLITE_MAGIC = b"SQLite format 3\x00"
# SQLite's own choice for new files: a damaged header need not say it.
_PAGE_SIZE = 4096
# First byte of a leaf page of a table: https://www.sqlite.org/fileformat2.html, section 1.6.
_TABLE_LEAF = 0x0D


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
        start = stream.read(len(_SQLITE_MAGIC))
    if not start or start == _SQLITE_MAGIC:
        return False
    rows = _readable_rows(path, companion(path, "-wal"))
    return not any(is_true_sample(_sample(row)) or is_true_key(row[: len(KEY_COLUMNS)]) for row in rows)


def salvage(damaged: Path, wal: Path, connection: sqlite3.Connection) -> Salvaged:
    """Add what can be read in a damaged file and its write-ahead log to a new store, in one transaction of the caller.

    Every row is checked against its checksum: what damage made of a row is left behind. So is what work was not done:
    older states of pages have rows of work that was done since, and measuring anew is never wrong.
    """
    keys: dict[int, _Row] = {}
    samples: dict[_Row, _Row] = {}
    failures: dict[_Row, _Row] = {}
    for row in _readable_rows(damaged, wal):
        key, sample, failure = row[: len(KEY_COLUMNS)], _sample(row), _failure(row)
        # Of several states of a row the last one found is the newest. Labels change, and what a failure is older than
        # (`mend_order`).
        if is_true_key(key):
            # A damaged label is none, until the kernel is measured again.
            label = key[6] if is_sound_key(key) else ""
            keys[row[0]] = (*key[:6], label, seal(row[0], label))
        elif is_true_sample(sample):
            samples.setdefault(sample[1:4], sample)
        elif is_true_failure(failure):
            failures[*failure[1:4], failure[5]] = failure
    nameless = {row[1] for row in (*samples.values(), *failures.values())} - keys.keys()
    connection.executemany(insert_statement("measurement_keys", KEY_COLUMNS), keys.values())
    # Samples must refer to a row (foreign_keys); one of empty texts is filled in when the kernel is measured again.
    unnamed = [(key, *[""] * 6, None) for key in nameless]
    connection.executemany(insert_statement("measurement_keys", KEY_COLUMNS), unnamed)
    # Numbered anew: damage to a number must not make it the largest there can be, or that of another row.
    in_order = sorted(samples.values())
    numbers = [row[0] for row in in_order]
    connection.executemany(
        insert_statement("samples", SAMPLE_COLUMNS),
        [(new, *row[1:10], seal(new, row[7], row[9])) for new, row in enumerate(in_order, 1)],
    )
    connection.executemany(
        insert_statement("failures", FAILURE_COLUMNS),
        [_failure_anew(new, row, numbers) for new, row in enumerate(sorted(failures.values()), 1)],
    )
    return Salvaged(len(samples), len(failures), len(nameless))


def _failure_anew(number: int, row: _Row, numbers: list[int]) -> _Row:
    """Return a failure's row in a file whose samples are numbered from 1, by their old numbers in order."""
    # So many of them had at most the old number. Where that is damaged, the failure is older than all: tried again.
    after = bisect_right(numbers, row[6]) if is_sound_failure(row) else 0
    return (number, *row[1:6], after, row[7], seal(number, after, row[7]))


def mend_order(connection: sqlite3.Connection) -> None:
    """Let every failure be older than the samples still to come; needed when the newest samples are gone."""
    last = "(SELECT ifnull(max(number), 0) FROM samples)"
    changed = f"after = {last}, seal = CASE WHEN seal IS NULL THEN NULL ELSE seal(number, {last}, checksum) END"
    connection.execute(f"UPDATE failures SET {changed} WHERE after > {last}")  # noqa: S608


def _readable_rows(path: Path, wal: Path) -> Iterator[_Row]:
    """Yield every row that SQLite can read in a leaf page, older states of a page first: its number and 10 columns."""
    pages, replaced = _pages(path, wal)
    last = max(pages, default=1)
    content = [pages.get(number, b"").ljust(_PAGE_SIZE, b"\0") for number in range(2, last + 1)] + replaced
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        # SQLite takes a page size only before the first table is made.
        connection.execute(f"PRAGMA page_size={_PAGE_SIZE}")
        # As many columns as the widest row has, NULL where a row has fewer; what they are, the checksums find out.
        connection.execute("CREATE TABLE leaf (number INTEGER PRIMARY KEY, a, b, c, d, e, f, g, h, i, j)")
        # The first page is new, whatever the damaged file's is like; bytes 28 to 31 are the number of pages.
        first, count = connection.serialize()[:_PAGE_SIZE], (1 + len(content)).to_bytes(4, "big")
        connection.deserialize(b"".join([first[:28], count, first[32:], *content]))
        connection.text_factory = lossy_text
        for number in (*range(last + 1, len(content) + 2), *range(2, last + 1)):
            if content[number - 2][0] == _TABLE_LEAF:
                yield from _rows_of_leaf(connection, number)
    finally:
        connection.close()


def _rows_of_leaf(connection: sqlite3.Connection, page: int) -> Iterator[_Row]:
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute("UPDATE sqlite_schema SET rootpage = ?", (page,))
    # Makes SQLite read the schema anew.
    connection.execute("PRAGMA writable_schema=RESET")
    # From both ends: a damaged row hides those behind it (and the one before it, which Python's cursor then keeps).
    for order in ("ASC", "DESC"):
        try:
            yield from connection.execute(f"SELECT * FROM leaf ORDER BY number {order}")  # noqa: S608
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            continue
        return


def _pages(path: Path, wal: Path) -> tuple[dict[int, bytes], list[bytes]]:
    """Return the newest state of each page, by its number, and older or misplaced ones, the oldest first."""
    content = path.read_bytes()
    pages = {at // _PAGE_SIZE + 1: content[at : at + _PAGE_SIZE] for at in range(0, len(content), _PAGE_SIZE)}
    replaced = []
    log = wal.read_bytes() if wal.exists() else b""
    written = frames(log, _PAGE_SIZE)
    # A log that was begun anew still ends with frames of the run before, which are older; only their salts tell.
    written.sort(key=lambda frame: frame[8:16] == log[16:24])
    most = len(pages) + len(written)
    for frame in written:
        number, page = int.from_bytes(frame[:4], "big"), frame[FRAME_HEADER:]
        # A damaged number must not make the file as large as it says.
        if 0 < number <= most:
            pages[number], page = page, pages.get(number, b"")
        replaced.append(page.ljust(_PAGE_SIZE, b"\0"))
    return pages, replaced


def _sample(row: _Row) -> _Row:
    return _real(row, 4, 6)


def _failure(row: _Row) -> _Row:
    return _real(row[: len(FAILURE_COLUMNS)], 5)


def _real(columns: _Row, *places: int) -> _Row:
    # SQLite keeps whole numbers of REAL columns as integers.
    return tuple(float(v) if i in places and isinstance(v, int) else v for i, v in enumerate(columns))
