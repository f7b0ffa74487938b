"""Time step of the wave equation in three dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument
from uipick._generator import Generator
from uipick.generators._grid_arguments import GRID_3D_ARGUMENTS, GRID_3D_CONSTRAINTS, GRID_DTYPE, grid_sizes_3d
from uipick.generators._laplacian import LAPLACIAN_RADII, laplacian
from uipick.generators._stencil import GridLaunch, grid_array, star
from uipick.generators._sweep import VARIANT, make_sweep_kernel, sweep_tags, tile_constraints
from uipick.generators._work_removed import work_removed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp

# Square of wave speed times time step over grid spacing, where it is the same everywhere.
_SQUARED_COURANT_NUMBER = 0.0625


def wave3d(*, radius: int, speed: str, variant: str, dtype: str, **grid: int | bool) -> lp.TranslationUnit:
    """Time step of the wave equation on a 3-D grid: new = 2 u - old + c (Laplacian of u).

    The Laplacian is that of order 2 radius, a star of (6 radius + 1) points. With ``speed:array`` the factor c comes
    from a third array, with ``speed:constant`` it is 1/16 everywhere and folded into the coefficients. Neighbours of
    u come from global memory, private variables or local tiles as in ``stencil3d``, with the same access tags
    (``uCLD``, ``uXLD``, ``uYLD``, ``uZLD``, ``uTLD``); the other arrays are streamed: ``oldLD``, ``speedLD``,
    ``newST``. All have a halo of the radius. (The heat equation's step is ``stencil3d`` with 7 points.) It is an
    application: it isolates no feature.

    Source: Alappat et al., YaskSite (2021), Equation 5 (Wave3D, also known as Iso3DFD).
    """
    arrays = [grid_array("old", dtype, 3, radius), grid_array("new", dtype, 3, radius, is_output=True)]
    if speed == "array":
        arrays.insert(1, grid_array("speed", dtype, 3, radius))

    def update(terms: list[list[str]]) -> str:
        if speed == "array":
            return f"2*centre - old$oldLD[{{here}}] + speed$speedLD[{{here}}]*({laplacian(terms, radius, dtype, 1.0)})"
        return f"2*centre - old$oldLD[{{here}}] + {laplacian(terms, radius, dtype, _SQUARED_COURANT_NUMBER)}"

    return make_sweep_kernel(
        "wave3d",
        star(3, radius),
        update,
        arrays,
        target="new$newST",
        variant=variant,
        dtype=dtype,
        launch=GridLaunch.of(grid),
    )


def _shells_of(arguments: Mapping[str, Any]) -> list[list[tuple[int, ...]]]:
    return star(3, arguments["radius"])


def _tags_of(arguments: Mapping[str, Any]) -> set[str]:
    speed = {"speedLD"} if arguments["speed"] == "array" else set()
    return {"oldLD", "newST"} | speed | sweep_tags(arguments["variant"], _shells_of(arguments))


WAVE3D = Generator(
    name="wave3d",
    tags=frozenset({"wave3d", "stencil"}),
    arguments=(
        Argument("radius", "int", "grid steps that the stencil reaches", LAPLACIAN_RADII, (2,)),
        Argument("speed", "str", "wave speed: the same everywhere, or an array", ("constant", "array"), ("constant",)),
        VARIANT,
        GRID_DTYPE,
        *GRID_3D_ARGUMENTS,
        *grid_sizes_3d(256),
    ),
    build=wave3d,
    size_arguments=("nx", "ny", "nz"),
    constraints=(*GRID_3D_CONSTRAINTS, *tile_constraints(_shells_of)),
)
WAVE3D_MEM = work_removed(
    WAVE3D,
    ("uCLD", "uXLD", "uYLD", "uZLD", "uTLD", "oldLD", "speedLD", "newST"),
    present=_tags_of,
    together=("uCLD_uXLD_uYLD_uZLD_oldLD", "uCLD_uXLD_uYLD_uZLD_oldLD_speedLD", "uZLD_uTLD_oldLD"),
)
