"""Closed forms for star-shaped 3-D stencils in spatial blocks (YaskSite, Section V, Eq. 8, 10, 11 and Table II).

x is the outermost dimension, z the innermost one. `estimate_ecm` gives the same to leading order for any kernel; these
are the formulas of the paper as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError
from perflex.features.cpu.read_nests import read_nests

if TYPE_CHECKING:
    from perflex.features import Scop

__all__ = ["StarStencil", "star_stencil"]


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
        cores: int = 1,
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
        cores
            Working cores.
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
        whole = grids * self.itemsize * domain[0] * domain[1] * domain[2] / cores
        return base if cache_bytes <= whole else 0


def star_stencil(scop: Scop, fold: tuple[int, int] = (1, 1)) -> StarStencil:
    """Return the grids of a kernel that is a star-shaped stencil.

    Parameters
    ----------
    scop
        The kernel: one nest, each offset along one axis only, the same radius along all axes.
    fold
        Fold lengths (Lx, Ly).

    Raises
    ------
    UnsupportedKernelError
        The kernel is something else.
    """
    nests = read_nests(scop).nests
    arrays = {group.array for nest in nests for group in nest.groups}
    if len(nests) != 1 or len(arrays) != len(nests[0].groups):
        msg = f"kernel {scop.name!r} is no star-shaped stencil: more than one nest, or ways through an array"
        raise UnsupportedKernelError(msg, kernel=scop.name)
    radii = set()
    stencils = written = 0
    for group in nests[0].groups:
        middle = tuple(
            (
                max(stream.offset[axis] for stream in group.streams)
                + min(stream.offset[axis] for stream in group.streams)
            )
            // 2
            for axis in range(len(group.axes))
        )
        written += any(stream.stores for stream in group.streams)
        if len(group.streams) == 1:
            continue
        stencils += 1
        for stream in group.streams:
            if sum(value != center for value, center in zip(stream.offset, middle, strict=True)) > 1:
                msg = f"kernel {scop.name!r} is no star-shaped stencil: {group.text} has an offset along two axes"
                raise UnsupportedKernelError(msg, kernel=scop.name, access=group.text)
        radii |= {halo / 2 for halo in group.halo}
    itemsizes = {group.itemsize for group in nests[0].groups}
    if len(radii) != 1 or len(itemsizes) != 1 or not next(iter(radii)).is_integer():
        msg = f"kernel {scop.name!r} is no star-shaped stencil of one radius and element size"
        raise UnsupportedKernelError(msg, kernel=scop.name)
    return StarStencil(len(arrays) - written, written, stencils, int(radii.pop()), itemsizes.pop(), fold)
