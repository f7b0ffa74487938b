"""Damage in SQLite's write-ahead log, which SQLite itself takes for the log's end.

Source of the format: https://www.sqlite.org/fileformat2.html, section 4. SQLite reads a log up to the first frame
whose checksum is wrong. After a process was killed that frame belongs to a transaction that never ended; where whole
transactions follow it, the log was damaged, and what they committed would silently be gone.
Seldom, what a killed process left looks the same: the file is then set aside without need, and nothing is lost.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FRAME_HEADER", "WAL_HEADER", "frame_pages", "wal_is_damaged"]

WAL_HEADER = 32
FRAME_HEADER = 24
_MAGIC = 0x377F0682


def wal_is_damaged(path: Path, page_size: int) -> bool:
    """Return whether committed transactions of a log lie behind damage."""
    try:
        log = path.read_bytes()
    except FileNotFoundError:
        return False
    if len(log) < WAL_HEADER + FRAME_HEADER + page_size:
        return False
    import numpy as np

    magic, _, found_size, *_ = struct.unpack_from(">8I", log)
    order = ">u4" if magic & 1 else "<u4"
    header = np.frombuffer(log, ">u4", 8)
    start = _checksums(np.frombuffer(log, order, 6)[None, :], np.zeros((1, 2), np.uint32))
    if magic & ~1 != _MAGIC or found_size != page_size or (start[0] != header[6:8]).any():
        return True
    frames = _frames(log, page_size)
    heads = frames[:, :FRAME_HEADER].copy().view(">u4")
    current = (heads[:, 2:4] == header[4:6]).all(axis=1)
    summed = np.concatenate([frames[:, :8], frames[:, FRAME_HEADER:]], axis=1).view(order)
    seeds = np.concatenate([header[None, 6:8], heads[:-1, 4:6]]).astype(np.uint32)
    intact = current & (_checksums(summed, seeds) == heads[:, 4:6]).all(axis=1)
    if intact.all():
        return False
    first = int(np.argmin(intact))
    return bool((intact & (heads[:, 1] > 0))[first:].any())


def frame_pages(log: bytes, page_size: int) -> list[tuple[int, bytes]]:
    """Return number and content of the pages in a log, damaged or not, in the order written."""
    step = FRAME_HEADER + page_size
    return [
        (int.from_bytes(log[at : at + 4], "big"), log[at + FRAME_HEADER : at + step])
        for at in range(WAL_HEADER, len(log) - step + 1, step)
    ]


def _frames(log: bytes, page_size: int) -> Any:
    import numpy as np

    step = FRAME_HEADER + page_size
    count = (len(log) - WAL_HEADER) // step
    return np.frombuffer(log, np.uint8, count * step, WAL_HEADER).reshape(count, step)


def _checksums(words: Any, seeds: Any) -> Any:
    """Return the checksum of each row of 32-bit words, each going on from its seed; arithmetic is modulo 2**32.

    One step of the definition, for the words x and y, is ``s += x + t; t += y + s``. That is linear, so that a
    row's checksum is a sum over its words with coefficients that depend on the place only.
    """
    import numpy as np

    pairs = words.shape[1] // 2
    powers = np.array(_powers(pairs), np.uint32)  # (pairs + 1, 2, 2)
    first = words[:, 0::2].astype(np.uint32)
    both = first + words[:, 1::2].astype(np.uint32)
    steps = powers[pairs - 1 :: -1] if pairs else powers[:0]
    sums = [first @ steps[:, i, 0] + both @ steps[:, i, 1] + seeds @ powers[pairs, i] for i in range(2)]
    return np.stack(sums, axis=1).astype(np.uint32)


@lru_cache(maxsize=4)
def _powers(pairs: int) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Return the powers 0 to `pairs` of the step's matrix, modulo 2**32."""
    mask = 0xFFFFFFFF
    powers = [((1, 0), (0, 1))]
    for _ in range(pairs):
        (a, b), (c, d) = powers[-1]
        powers.append(((a + b & mask, a + 2 * b & mask), (c + d & mask, c + 2 * d & mask)))
    return tuple(powers)
