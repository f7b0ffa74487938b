"""What a cache has to hold for reuse in blocks (YaskSite, Equation 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.analysis.blocks.grids import GridStencil


def needed_bytes(
    stencil: GridStencil, reuse: str, blocks: NDArray[np.int64], *, halo: bool = True
) -> NDArray[np.int64]:
    """Return what a cache must hold more than for reuse in blocks.

    Parameters
    ----------
    stencil
        The grids.
    reuse
        ``"row"`` or ``"plane"``.
    blocks
        Blocks, shape ``(n, 3)``, in points along x, y and z.
    halo
        Whether rows and planes are those of the block and its halo; without it, as Equation 10 has it.

    Returns
    -------
    array
        Shape ``(n,)``, in bytes; the cache must have more.
    """
    total = np.zeros(len(blocks), np.int64)
    for grid in stencil.grids:
        beside = grid.halo if halo else (0, 0, 0)
        row = blocks[:, 0] + beside[0]
        total += grid.itemsize * (grid.rows * row if reuse == "row" else grid.planes * row * (blocks[:, 1] + beside[1]))
    return total
