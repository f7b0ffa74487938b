"""Conventions in which layer conditions and volumes are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.features.cpu.traced import select
from perflex.features.cpu.traffic import Crossing

if TYPE_CHECKING:
    from perflex.machines.levels import CacheLevel

CONVENTIONS = ("reference", "paper")


@dataclass(frozen=True)
class Rules:
    """How conditions and volumes are read.

    Attributes
    ----------
    convention
        ``"reference"`` or ``"paper"``, as `estimate_ecm` explains.
    cores
        Working cores.
    """

    convention: str
    cores: int

    @property
    def strict(self) -> bool:
        """Whether reuse must need less than the cache, rather than at most that."""
        return self.convention == "paper"

    def whole(self, everything: Any) -> Any:
        """Return the part of all data that must fit a core's part of a cache."""
        return everything / self.cores if self.strict else everything

    def crossing(self, found: Crossing, level: CacheLevel | None, *, fits: Any) -> Crossing:
        """Return the bytes between a level and the one before it, from the misses of that one.

        Parameters
        ----------
        found
            The misses.
        level
            The level, None for the memory.
        fits
            Whether all data fit in it.
        """
        if not self.strict or level is None or not level.victim:
            return found
        # YaskSite, Eq. 8: a victim cache has w = 1, and v = 2 where the data fit in it.
        factor = select(fits, 2.0, 1.0)
        return Crossing(found.loads * factor, found.evicts * 0.0, found.allocates * factor)
