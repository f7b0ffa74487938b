"""Three transposes of a matrix in work-groups of 32 by 8 work-items that move tiles of 32 by 32 floats.

perflex roofline examples/transposes.py:naive examples/transposes.py:tiled examples/transposes.py:padded n=1024
    --machine V100 --time bound --out pictures
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick import ALL_GENERATORS, KernelCollection

if TYPE_CHECKING:
    import loopy as lp


def naive() -> lp.TranslationUnit:
    """Load with stride 1 and store with stride n."""
    return _transpose("naive")


def tiled() -> lp.TranslationUnit:
    """Load and store with stride 1, through a tile in local memory whose columns lie in one bank."""
    return _transpose("tiled")


def padded() -> lp.TranslationUnit:
    """Do the same with rows of the tile 33 elements apart, which no two work-items of a column share a bank in."""
    return _transpose("padded")


def _transpose(variant: str) -> lp.TranslationUnit:
    tags = ["transpose", f"variant:{variant}", "lsize:32", "rows:4", "dtype:float32", "groups_fit:True", "n:1024"]
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    return kernel.kernel
