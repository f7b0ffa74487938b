"""A space of 7-point stencils on a 3-D grid: three ways of loading, work-group shapes, and planes per work-item.

perflex calibrate fdiff_incore --out fdiff.yaml
perflex prune fdiff.yaml examples/stencil_space.py:space nx=256 ny=256 nz=64 --keep 10%
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex import VariantSpace
from uipick import ALL_GENERATORS

if TYPE_CHECKING:
    import loopy as lp

STENCIL = next(generator for generator in ALL_GENERATORS if generator.name == "stencil3d")


def stencil(*, variant: str, wide: int, high: int, deep: int, chunk: int) -> lp.TranslationUnit:
    """Make a sweep with work-groups of wide by high by deep work-items, each computing chunk consecutive planes."""
    arguments: dict[str, int | str | bool] = {
        "points": 7,
        "variant": variant,
        "dtype": "float32",
        "lsize_0": wide,
        "lsize_1": high,
        "lsize_2": deep,
        "chunk": chunk,
        "groups_fit": True,
    }
    return STENCIL.built(arguments)


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
