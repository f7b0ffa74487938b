"""Walls of the instruction roofline: how efficient a memory access pattern is, in instructions per transaction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perflex.features.gpu.wavefronts import bank_conflicts, distinct


@dataclass(frozen=True)
class Wall:
    """A pattern of access, and its load and store instructions per transaction."""

    name: str
    intensity: float


def pattern_transactions(stride: int, itemsize: int, *, lanes: int = 32, sector: int = 32) -> int:
    """Return the transactions of one sub-group's access of global memory, from an aligned base.

    Parameters
    ----------
    stride
        Elements from one work-item to the next.
    itemsize
        Bytes of an element.
    lanes, sector
        Work-items of a sub-group, and bytes of a transaction.
    """
    return int(distinct(np.arange(lanes, dtype=np.int64) * stride * itemsize, sector))


def global_walls(itemsize: int = 4, *, lanes: int = 32, sector: int = 32) -> tuple[Wall, ...]:
    """Return the walls of global memory (Section III-A): one element for all, neighbours, and a sector for each.

    With elements of four bytes and sub-groups of 32: stride-0 at 1, stride-1 at 1/4, stride-8 at 1/32.
    """
    strides = dict.fromkeys((0, 1, max(1, sector // itemsize)))
    return tuple(
        Wall(f"stride-{stride}", 1 / pattern_transactions(stride, itemsize, lanes=lanes, sector=sector))
        for stride in strides
    )


def local_walls(*, lanes: int = 32, banks: int = 32, width: int = 4) -> tuple[Wall, ...]:
    """Return the walls of local memory (Section III-A): no conflict at 1, and 2-way to 32-way conflicts.

    A conflict is n-way if n work-items want different words of one bank, which takes n transactions.
    """
    walls = []
    ways = 1
    while ways <= min(lanes, banks):
        # The number of banks is a power of two, so a stride of 2**k words makes 2**k-way conflicts.
        words = np.arange(lanes, dtype=np.int64) * ways
        count = int(bank_conflicts(words * width, banks, width, width))
        walls.append(Wall("no conflict" if count == 1 else f"{count}-way", 1 / count))
        ways *= 2
    return tuple(walls)
