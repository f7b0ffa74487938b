"""Reading the rows of an SQLite file page by page, whatever is left of it.

SQLite gives up at the first damaged page above a row. Rows lie in leaf pages that can be understood one by one, so
that only what is in a damaged page itself is lost. Source of the format: https://www.sqlite.org/fileformat2.html,
sections 1.6 and 2. Older states of a row, and rows of foreign tables, are found too: the caller must be able to tell.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

from perflex.store.store_wal import frame_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["SQLITE_MAGIC", "FoundRow", "page_size_of", "rows_of_file"]

FoundRow: TypeAlias = tuple[int, tuple[object, ...]]

SQLITE_MAGIC = b"SQLite format 3\x00"
_PAGE_SIZE = 4096
_HEADER = 100
_TABLE_LEAF = 0x0D
# Longer rows are taken for damage.
_LONGEST = 2**24
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def page_size_of(content: bytes) -> int:
    """Return the size of a file's pages in bytes; the usual one where the header does not say."""
    if content[:16] == SQLITE_MAGIC:
        size = int.from_bytes(content[16:18], "big")
        size = 65536 if size == 1 else size
        if size in {512 << i for i in range(8)}:
            return size
    return _PAGE_SIZE


def rows_of_file(path: Path, wal: Path) -> Iterator[FoundRow]:
    """Yield number and columns of every row that can be read in a file and its write-ahead log, oldest pages first.

    Raises
    ------
    OSError
        A file cannot be read at all.
    """
    content = path.read_bytes()
    size = page_size_of(content)
    pages = [(at // size + 1, content[at : at + size]) for at in range(0, len(content), size)]
    if wal.exists():
        pages += frame_pages(wal.read_bytes(), size)
    newest = dict(pages)
    for number, page in pages:
        yield from _rows_of_page(page, _HEADER if number == 1 else 0, size, newest.get)


def _rows_of_page(page: bytes, start: int, size: int, page_of: Callable[[int], bytes | None]) -> Iterator[FoundRow]:
    if len(page) < start + 8 or page[start] != _TABLE_LEAF:
        return
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    for place in range(start + 8, min(start + 8 + 2 * count, len(page) - 1), 2):
        at = int.from_bytes(page[place : place + 2], "big")
        try:
            yield _row(page, at, size, page_of)
        except (IndexError, ValueError, struct.error):
            continue


def _row(page: bytes, at: int, size: int, page_of: Callable[[int], bytes | None]) -> FoundRow:
    length, at = _varint(page, at)
    number, at = _varint(page, at)
    if length > _LONGEST:
        msg = "the row's length is damaged"
        raise ValueError(msg)
    record = _payload(page, at, length, size, page_of)
    header, place = _varint(record, 0)
    kinds = []
    while place < header:
        kind, place = _varint(record, place)
        kinds.append(kind)
    values = []
    for kind in kinds:
        value, place = _value(record, place, kind)
        values.append(value)
    if place != length:
        msg = "the columns do not fill the row"
        raise ValueError(msg)
    return number - (number >> 63 << 64), tuple(values)


def _payload(page: bytes, at: int, length: int, size: int, page_of: Callable[[int], bytes | None]) -> bytes:
    """Return a row's bytes; what does not fit its page lies in a chain of others."""
    most, least = size - 35, (size - 12) * 32 // 255 - 23
    if length <= most:
        here = length
    else:
        here = least + (length - least) % (size - 4)
        here = least if here > most else here
    parts = [page[at : at + here]]
    found = len(parts[0])
    following = int.from_bytes(page[at + here : at + here + 4], "big") if here < length else 0
    while found < length:
        more = page_of(following)
        if more is None or len(more) < 5 or following == 0:
            msg = "the row's end is missing"
            raise ValueError(msg)
        parts.append(more[4 : 4 + length - found])
        found += len(parts[-1])
        following = int.from_bytes(more[:4], "big")
    if found != length:
        msg = "the row is cut off"
        raise ValueError(msg)
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(8):
        byte = data[at + i]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    return value << 8 | data[at + 8], at + 9


def _value(record: bytes, at: int, kind: int) -> tuple[object, int]:
    if kind in _INTEGER_BYTES:
        end = at + _INTEGER_BYTES[kind]
        return int.from_bytes(record[at:end], "big", signed=True), end
    if kind == 7:
        return struct.unpack_from(">d", record, at)[0], at + 8
    if kind >= 12:
        end = at + (kind - 12) // 2
        return (record[at:end].decode("utf-8") if kind % 2 else record[at:end]), end
    if kind in {10, 11}:
        msg = "a kind of column that files do not have"
        raise ValueError(msg)
    return {0: None, 8: 0, 9: 1}[kind], at
