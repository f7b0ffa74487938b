"""A space of 7-point stencils on a 3-D grid: three ways of loading, work-group shapes, and planes per work-item.

perflex calibrate fdiff_incore --out fdiff.yaml
perflex prune fdiff.yaml examples/stencil_space.py:space nx=256 ny=256 nz=64 --keep 10%
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex import VariantSpace
from uipick.generators.stencil3d import stencil3d

if TYPE_CHECKING:
    import loopy as lp


def stencil(*, variant: str, wide: int, high: int, deep: int, chunk: int) -> lp.TranslationUnit:
    """Make a sweep with work-groups of wide by high by deep work-items, each computing chunk consecutive planes."""
    grid: dict[str, int | bool] = {
        "lsize_0": wide,
        "lsize_1": high,
        "lsize_2": deep,
        "chunk": chunk,
        "groups_fit": True,
    }
    return stencil3d(points=7, variant=variant, dtype="float32", **grid)


space = VariantSpace(
    stencil,
    {
        "variant": ("plain", "column", "tile"),
        "wide": (8, 16, 32, 64, 128, 256),
        "high": (1, 2, 4, 8, 16),
        "deep": (1, 2, 4),
        "chunk": (1, 2, 4, 8, 16),
    },
    [
        "16 <= wide * high * deep <= 512",
        "deep * chunk <= 32",
        "deep == 1 if variant == 'tile' else True",
        "(wide + 2) * (high + 2) <= 4096 if variant == 'tile' else True",
    ],
    name="7-point stencil",
)
