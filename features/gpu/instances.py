"""Numbers of instances in boxes of work-groups."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from perflex.features.gpu.images import Imager

if TYPE_CHECKING:
    from perflex.features.gpu.footprints import Box
    from perflex.features.gpu.resolved import ResolvedLaunch, ResolvedPiece

__all__ = ["instances"]


def instances(launch: ResolvedLaunch, box: Box) -> int:
    """Return how many instances of statements the work-groups of a box execute."""
    parts = [piece.within(box) for piece in launch.pieces]
    return sum(_count(launch.kernel, part) for part in parts if part is not None)


def _count(kernel: str, piece: ResolvedPiece) -> int:
    imager = Imager(kernel, piece)
    guarded = frozenset[int]().union(*imager.parts)
    total = prod(end - start + 1 for dim, (start, end) in enumerate(piece.ranges) if dim not in guarded)
    return total * prod(imager.points(part) for part in imager.parts)
