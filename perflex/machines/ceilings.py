"""Ceilings of the instruction roofline that were published for a machine, beside what its facts give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex.machines.units import Source

# Warp-level instructions, and the levels that transactions go to.
CEILING_LEVELS = ("instructions", "l1", "local", "l2", "dram")


@dataclass(frozen=True)
class PublishedCeiling:
    """The most of something that a machine does in a second.

    Attributes
    ----------
    rate
        In instructions of sub-groups per second, or in B/s.
    source
        Where it comes from.
    """

    rate: float
    source: Source
