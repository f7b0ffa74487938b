"""Cycles and sectors of memory instructions, from the addresses of a sub-group's work-items."""

from __future__ import annotations

import numpy as np

# The address of a work-item that does not execute the instruction.
IDLE = np.int64(1) << 60


def distinct(addresses: np.ndarray, granule: int) -> np.ndarray:
    """Return the number of distinct granules along the last axis, idle work-items left out."""
    granules = np.sort(addresses // granule, axis=-1)
    # All idle work-items fall into one granule behind the others, which is not counted.
    idle = IDLE // granule
    new = np.ones(granules.shape, dtype=bool)
    new[..., 1:] = granules[..., 1:] != granules[..., :-1]
    counted: np.ndarray = (new & (granules != idle)).sum(axis=-1)
    return counted


def bank_conflicts(addresses: np.ndarray, banks: int, width: int, unit: int) -> np.ndarray:
    """Return the most distinct units of memory on any one bank, along the last axis.

    Parameters
    ----------
    addresses
        Byte addresses; `IDLE` where a work-item does not take part.
    banks, width
        Number of banks, and bytes of neighbouring addresses on one bank.
    unit
        Addresses in the same so many bytes are served together.
    """
    units = np.sort(addresses // unit, axis=-1)
    new = np.ones(units.shape, dtype=bool)
    new[..., 1:] = units[..., 1:] != units[..., :-1]
    new &= units != IDLE // unit
    bank = (units * unit // width) % banks
    # `bincount` knows no axes: each instruction gets bins of its own in one flat histogram.
    rows = np.arange(bank[..., 0].size).reshape((*bank.shape[:-1], 1)) * banks
    counts = np.bincount((bank + rows)[new], minlength=bank[..., 0].size * banks)
    most: np.ndarray = counts.reshape((*bank.shape[:-1], banks)).max(axis=-1)
    return most
