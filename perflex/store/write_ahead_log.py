"""Damage in SQLite's write-ahead log, which SQLite itself takes for the log's end.

Source of the format: https://www.sqlite.org/fileformat2.html, section 4. SQLite reads a log up to the first frame
whose checksum is wrong. After a process was killed that frame belongs to a transaction that never ended; where whole
transactions follow it, the log was damaged, and what they committed would silently be gone.
Seldom, what a killed process left looks the same: the file is then set aside without need, and nothing is lost.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WAL_HEADER = 32
FRAME_HEADER = 24
_MAGIC = 0x377F0682
_32_BITS = 0xFFFFFFFF


def frames(log: bytes, page_size: int) -> list[bytes]:
    """Return the whole frames of a log, each a header and a page, damaged or not, in the order written."""
    step = FRAME_HEADER + page_size
    return [log[at : at + step] for at in range(WAL_HEADER, len(log) - step + 1, step)]


def log_is_damaged(path: Path, page_size: int) -> bool:
    """Return whether committed transactions of a log lie behind damage."""
    try:
        log = path.read_bytes()
    except FileNotFoundError:
        return False
    written = frames(log, page_size)
    if not written:
        return False
    magic, _, found_size, *_ = struct.unpack_from(">3I", log)
    # The checksums' words may have the byte order of the machine that wrote them, everything else is big-endian.
    order = ">" if magic & 1 else "<"
    if magic & ~1 != _MAGIC or found_size != page_size or _checksum(log[:24], order, bytes(8)) != log[24:32]:
        return True
    # Each checksum goes on from the one before it; the salts tell this run of the log from those it overwrites.
    previous, salts = log[24:32], log[16:24]
    damaged = False
    for frame in written:
        before, previous = previous, frame[16:24]
        # The salts first: a log that was begun anew has many frames of the run before, and summing takes time.
        if frame[8:16] != salts or _checksum(frame[:8] + frame[FRAME_HEADER:], order, before) != previous:
            damaged = True
        elif damaged and any(frame[4:8]):
            # A transaction's last frame says how large the file is then, every other one zero.
            return True
    return False


def _checksum(data: bytes, order: str, start: bytes) -> bytes:
    """Return the checksum of pairs of 32-bit words, going on from another one."""
    first, second = struct.unpack(">2I", start)
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for word, following in zip(words, words, strict=True):
        # Section 4.2 of the format, modulo 2^32; in Python + binds tighter than &.
        first = first + word + second & _32_BITS
        second = second + following + first & _32_BITS
    return struct.pack(">2I", first, second)
