"""Stencils in two dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument
from uipick._generator import Generator
from uipick.generators._grid_arguments import GRID_2D_ARGUMENTS, GRID_2D_CONSTRAINTS, GRID_DTYPE, GRID_SIZES_2D
from uipick.generators._stencil import GridLaunch, at, box, grid_array, make_grid_kernel, star, tag_letter, weighted
from uipick.generators._work_removed import work_removed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp


def _shells(shape: str, radius: int) -> list[list[tuple[int, ...]]]:
    return star(2, radius) if shape == "star" else box(2, radius, 2)


def stencil2d(*, shape: str, radius: int, dtype: str, **grid: int | bool) -> lp.TranslationUnit:
    """Stencil on a 2-D grid, one Jacobi sweep: each point of v from its neighbours in u, all from global memory.

    ``shape:star`` takes the neighbours up to ``radius`` steps along an axis, (4 radius + 1) points: 5 with radius 1;
    ``shape:box`` takes the whole square of (2 radius + 1)^2 points: 9 with radius 1. The points of a star at one
    distance share a coefficient; of a box, those along the axes do, and the diagonal ones. Arrays have the interior's
    size (nx, ny) and a halo of the radius. Access tags: ``uCLD`` (centre), ``uXLD`` and ``uYLD`` (along an axis; those
    along x lie in the same row), ``uDLD`` (diagonal), ``vST``. It is an application: it isolates no feature.

    Source: Ernst et al., Analytical Performance Estimation during Code Generation on Modern GPUs, Figure 7 (5 points).
    """
    shells = _shells(shape, radius)
    terms = [[f"u$u{tag_letter(offset)}LD[{at(offset, radius)}]" for offset in shell] for shell in shells]
    return make_grid_kernel(
        "stencil2d",
        [f"v$vST[{at((0, 0), radius)}] = {weighted(terms)}"],
        [grid_array("u", dtype, 2, radius), grid_array("v", dtype, 2, radius, is_output=True)],
        GridLaunch.of(grid),
    )


def _tags_of(arguments: Mapping[str, Any]) -> set[str]:
    shells = _shells(arguments["shape"], arguments["radius"])
    return {"vST", *(f"u{tag_letter(offset)}LD" for shell in shells for offset in shell)}


STENCIL2D = Generator(
    name="stencil2d",
    tags=frozenset({"stencil2d", "stencil"}),
    arguments=(
        Argument("shape", "str", "neighbours along the axes only, or all in a square", ("star", "box")),
        Argument("radius", "int", "grid steps that the stencil reaches", (1, 2, 3, 4), (1,)),
        GRID_DTYPE,
        *GRID_2D_ARGUMENTS,
        *GRID_SIZES_2D,
    ),
    build=stencil2d,
    size_arguments=("nx", "ny"),
    constraints=GRID_2D_CONSTRAINTS,
)
STENCIL2D_MEM = work_removed(
    STENCIL2D,
    ("uCLD", "uXLD", "uYLD", "uDLD", "vST"),
    present=_tags_of,
    together=("uCLD_uXLD_uYLD", "uCLD_uXLD_uYLD_uDLD"),
)
