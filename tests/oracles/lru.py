"""A cache hierarchy simulated access by access: fully associative, least recently used, write-allocate, write-back.

An oracle for cache volumes that knows nothing of reuse distances: loops are run, addresses are looked up.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

__all__ = ["Crossing", "Reference", "lru_crossings", "trace_of"]


@dataclass(frozen=True)
class Reference:
    """An access in the innermost body.

    Attributes
    ----------
    base
        Byte address of the array.
    coefficients
        Bytes per iteration of each loop, outermost first.
    offset
        Bytes added.
    store
        Whether it is a store.
    """

    base: int
    coefficients: tuple[int, ...]
    offset: int = 0
    store: bool = False


@dataclass(frozen=True)
class Crossing:
    """Lines that crossed a boundary: towards the core, and dirty ones away from it."""

    loads: int
    evicts: int


def trace_of(ranges: list[range], references: list[Reference], line: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Return the line numbers and store flags of loops with these ranges, outermost first, in order of time."""
    grids = np.meshgrid(*(np.asarray(one) for one in ranges), indexing="ij")
    columns = [
        reference.base
        + reference.offset
        + sum(coefficient * grid for coefficient, grid in zip(reference.coefficients, grids, strict=True))
        for reference in references
    ]
    addresses = np.stack([np.broadcast_to(column, grids[0].shape).ravel() for column in columns], axis=1)
    stores = np.broadcast_to([reference.store for reference in references], addresses.shape)
    return (addresses // line).ravel(), stores.ravel()


def lru_crossings(lines: np.ndarray, stores: np.ndarray, capacity: int, line: int = 64) -> Crossing:
    """Return the lines that cross below a cache of so many bytes, for a cache that is empty at first.

    Dirty lines that are left at the end count as evicted.
    """
    held: OrderedDict[int, bool] = OrderedDict()
    room = capacity // line
    loads = evicts = 0
    for address, store in zip(lines.tolist(), stores.tolist(), strict=True):
        dirty = held.pop(address, None)
        if dirty is None:
            loads += 1
            if len(held) >= room:
                evicts += held.popitem(last=False)[1]
            dirty = False
        held[address] = dirty or store
    return Crossing(loads, evicts + sum(held.values()))
