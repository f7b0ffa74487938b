"""Stencils in three dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument
from uipick._generator import Generator
from uipick.generators._grid_arguments import GRID_3D_ARGUMENTS, GRID_3D_CONSTRAINTS, GRID_DTYPE, grid_sizes_3d
from uipick.generators._stencil import GridLaunch, box, grid_array, star, weighted
from uipick.generators._sweep import SWEEP_TOGETHER, VARIANT, make_sweep_kernel, sweep_tags, tile_constraints
from uipick.generators._work_removed import work_removed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp

_SHELLS = {7: star(3, 1), 19: box(3, 1, 2), 25: star(3, 4), 27: box(3, 1, 3)}


def stencil3d(*, points: int, variant: str, dtype: str, **grid: int | bool) -> lp.TranslationUnit:
    """Stencil on a 3-D grid, one Jacobi sweep: each point of v from 7, 19, 25 or 27 points of u.

    The neighbours are those one step along an axis (``points:7``), also those one step along two axes (19) or three
    (27), or those up to four steps along an axis (25). Neighbours at the same distance share a coefficient. Arrays
    have the interior's size (nx, ny, nz) and a halo of the stencil's radius; each work-item computes ``chunk``
    consecutive planes in a sequential loop (chunking, or thread folding in z), in one of three ways:

    ``variant:plain`` loads every neighbour from global memory: access tags ``uCLD`` (centre), ``uXLD``, ``uYLD``,
    ``uZLD`` (neighbours along an axis; only those along x lie in the same row) and ``uDLD`` (diagonal neighbours).
    A compiler may unroll the loop over planes and load a value once that two planes use.
    ``variant:column`` (7 and 25 points) loads each value of the work-item's own column once (``uZLD``) and keeps
    it in private variables while planes need it: (5 chunk + 2) loads for 7 points.
    ``variant:tile`` fetches what lies in or beside the column into local memory, plane by plane (``uTLD``): for 7 and
    25 points the work-group's part of the plane with a halo, corners included, while neighbours along z come from
    global memory (``uZLD``); for 19 and 27 points that part of all three planes.
    The store carries ``vST``. It is an application: it isolates no feature.

    Source: Su, Cai, Wen and Zhang, An analytical GPU performance model for 3D stencil computations from the angle of
    data traffic (2015), Sections 2.2, 3.5 and 4.1 (7 and 19 points, chunk_z); Ernst et al., Analytical Performance
    Estimation during Code Generation on Modern GPUs, Section 5.2 (25 points, thread folding).
    """
    return make_sweep_kernel(
        "stencil3d",
        _SHELLS[points],
        weighted,
        [grid_array("v", dtype, 3, 4 if points == 25 else 1, is_output=True)],
        target="v$vST",
        variant=variant,
        dtype=dtype,
        launch=GridLaunch.of(grid),
    )


def _shells_of(arguments: Mapping[str, Any]) -> list[list[tuple[int, ...]]]:
    return _SHELLS[arguments["points"]]


STENCIL3D = Generator(
    name="stencil3d",
    tags=frozenset({"stencil3d", "stencil"}),
    arguments=(
        Argument("points", "int", "points of the stencil", tuple(_SHELLS)),
        VARIANT,
        GRID_DTYPE,
        *GRID_3D_ARGUMENTS,
        *grid_sizes_3d(256),
    ),
    build=stencil3d,
    size_arguments=("nx", "ny", "nz"),
    constraints=(*GRID_3D_CONSTRAINTS, *tile_constraints(_shells_of)),
)
STENCIL3D_MEM = work_removed(
    STENCIL3D,
    ("uCLD", "uXLD", "uYLD", "uZLD", "uDLD", "uTLD", "vST"),
    present=lambda a: {"vST", *sweep_tags(a["variant"], _shells_of(a))},
    together=SWEEP_TOGETHER,
)
