"""Closed forms for star-shaped 3-D stencils in spatial blocks (YaskSite, Section V, Eq. 8, 10, 11 and Table II).

x is the outermost dimension, z the innermost one. These are the formulas of the paper as
printed, of which `estimate_ecm` knows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

__all__ = ["StarStencil"]


@dataclass(frozen=True)
class StarStencil:
    """Grids of a star-shaped stencil.

    Attributes
    ----------
    read, written
        Grids that are only read, and written (Nr, Nw).
    stencil
        Grids with stencil accesses (Ns).
    radius
        The stencil's radius r.
    itemsize
        Bytes of an element (d).
    fold
        Fold lengths (Lx, Ly).
    """

    read: int
    written: int
    stencil: int
    radius: int
    itemsize: int = 8
    fold: tuple[int, int] = (1, 1)

    @property
    def radii(self) -> tuple[int, int]:
        """Radii rx and ry in folded elements."""
        along_x, along_y = self.fold
        return -(-self.radius // along_x), -(-self.radius // along_y)

    @property
    def _others(self) -> int:
        return self.read + self.written - self.stencil

    def y_reuse_bytes(self, block_z: int) -> int:
        """Return the cache that reuse along y needs, in bytes (Eq. 10a, folded 11a)."""
        radius_x, radius_y = self.radii
        rows = self.stencil * (2 * (radius_x + radius_y) + 1) + self._others
        return rows * self.fold[0] * self.fold[1] * block_z * self.itemsize

    def x_reuse_bytes(self, block_y: int, block_z: int) -> int:
        """Return the cache that reuse along x needs, in bytes (Eq. 10b, folded 11b)."""
        planes = self.stencil * (2 * self.radii[0] + 1) + self._others
        return planes * self.fold[0] * block_y * block_z * self.itemsize

    def largest_block_z(self, cache_bytes: float) -> int:
        """Return the largest block along z that lets a cache hold the reuse along y; 0 if none does."""
        each = self.y_reuse_bytes(1)
        return max(0, -int(-cache_bytes // each) - 1)

    def largest_square_block(self, cache_bytes: float) -> int:
        """Return the largest block along y and z alike that lets a cache hold the reuse along x; 0 if none does."""
        each = self.x_reuse_bytes(1, 1)
        return isqrt(max(0, -int(-cache_bytes // each) - 1))

    def volume(
        self,
        cache_bytes: float,
        block: tuple[int, int],
        domain: tuple[int, int, int],
        *,
        victim: bool = False,
        fits: bool = False,
    ) -> int:
        """Return the bytes per update between a cache and the level beyond it (Table II).

        Parameters
        ----------
        cache_bytes
            The part of the cache that a core has.
        block
            Block sizes along y and z.
        domain
            Grid sizes along x, y and z.
        victim
            Whether the level beyond is a victim cache: no write-allocate then.
        fits
            Whether the data fit in that victim cache: everything goes there and back then.
        """
        radius_x, radius_y = self.radii
        factor = (2 if victim and fits else 1) * self.itemsize
        base = factor * (self.read + (1 if victim else 2) * self.written)
        if cache_bytes <= self.y_reuse_bytes(block[1]):
            return base + 2 * self.stencil * (radius_x + radius_y) * factor
        if cache_bytes <= self.x_reuse_bytes(*block):
            return base + 2 * self.stencil * radius_x * factor
        grids = self.read + self.written
        whole = grids * self.itemsize * domain[0] * domain[1] * domain[2]
        return base if cache_bytes <= whole else 0
